"""Functions and classes of the other libraries that have no counterpart, written out in the programs that use them; data only."""

from __future__ import annotations

from typing import NamedTuple

from gemel.migrate.names import Name


class Written(NamedTuple):
    """The code of a function or class, what it needs to be imported, and other code that it needs."""

    code: str
    imports: tuple[Name, ...] = ()
    needs: tuple[str, ...] = ()


_SECURITY = "mcp.shared.path_security"
#: By the full name in the other library; the name stays the same.
WRITTEN = {
    f"{_SECURITY}.PathEscapeError": Written(
        '''\
class PathEscapeError(ValueError):
    """A path leads out of its folder."""
'''
    ),
    f"{_SECURITY}.contains_path_traversal": Written(
        '''\
def contains_path_traversal(value: str) -> bool:
    """Whether a relative path leads out of the folder that it starts in."""
    depth = 0
    for part in value.replace("\\\\", "/").split("/"):
        depth += (part not in ("", ".", "..")) - (part == "..")
        if depth < 0:
            return True
    return False
'''
    ),
    f"{_SECURITY}.is_absolute_path": Written(
        '''\
def is_absolute_path(value: str) -> bool:
    """Whether a path is absolute, or names a drive of Windows."""
    return value.startswith(("/", "\\\\")) or (value[:1].isascii() and value[:1].isalpha() and value[1:2] == ":")
'''
    ),
    f"{_SECURITY}.safe_join": Written(
        '''\
def safe_join(base: str | Path, *parts: str) -> Path:
    """Join a path and resolve its links; one that leads out of the folder is an error."""
    folder = Path(base).resolve()
    if any("\\0" in part or is_absolute_path(part) for part in parts):
        raise PathEscapeError(f"{parts!r} is not a relative path")
    path = folder.joinpath(*parts).resolve()
    if not path.is_relative_to(folder):
        raise PathEscapeError(f"{parts!r} leads out of {folder}")
    return path
''',
        (Name("Path", "pathlib"),),
        (f"{_SECURITY}.PathEscapeError", f"{_SECURITY}.is_absolute_path"),
    ),
    "fastmcp.dependencies.Progress": Written(
        '''\
class Progress:
    """Counts what is done, and tells the client."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.current: int | None = None
        self.total = 1
        self.message: str | None = None

    async def _report(self) -> None:
        await self._ctx.report_progress(self.current or 0, self.total, self.message)

    async def set_total(self, total: int) -> None:
        self.total = total

    async def increment(self, amount: int = 1) -> None:
        self.current = (self.current or 0) + amount
        await self._report()

    async def set_message(self, message: str | None) -> None:
        self.message = message
        await self._report()
''',
        (Name("Context"),),
    ),
}
WRITTEN["fastmcp.server.dependencies.Progress"] = WRITTEN["fastmcp.dependencies.Progress"]
#: The class that counts progress, as the default of a parameter.
PROGRESS = frozenset(name for name in WRITTEN if name.endswith(".Progress"))


def written_out(full_names: list[str]) -> list[Written]:
    """Return what is written out for these names, with what it needs in front, each once."""
    ordered: dict[str, Written] = {}
    for name in full_names:
        for inner in (*WRITTEN[name].needs, name):
            ordered.setdefault(WRITTEN[inner].code, WRITTEN[inner])
    return list(ordered.values())
