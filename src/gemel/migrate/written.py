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
#: What calls a function of the official SDK that returns `InputRequiredResult` again with the answers.
IN_ROUNDS = Written(
    '''\
async def in_rounds(ctx: Context, run: Callable[[dict[str, Any] | None, str | None], Awaitable[Any]]) -> Any:
    """Call a function with the answers to what it asks, until it returns something else."""

    def ask(key: str, request: InputRequest) -> Awaitable[Any]:
        params = request.params
        if request.method == "roots/list":
            return ctx.list_roots(key=key)
        if request.method == "sampling/createMessage":
            options = {name: getattr(params, name) for name in params.__struct_fields__}
            return ctx.sample(**{name: value for name, value in options.items() if value is not None}, key=key)
        if isinstance(params, ElicitUrlParams):
            return ctx.elicit_url(params.message, params.url, key=key)
        return ctx.elicit(params.message, params.requested_schema, key=key)

    async def answer(request: InputRequest, question: Awaitable[Any]) -> Any:
        try:
            value = await question
        except Declined as declined:
            return ElicitResult(action=declined.action, content=None)
        if request.method == "roots/list":
            return ListRootsResult(roots=value)
        return value if request.method == "sampling/createMessage" else ElicitResult(action="accept", content=value)

    responses, state = None, None
    for number in range(10):
        result = await run(responses, state)
        if not isinstance(result, InputRequiredResult):
            return result
        requests = result.input_requests or {}
        questions = {key: ask(f"{number}.{key}", request) for key, request in requests.items()}
        responses = {key: await answer(requests[key], question) for key, question in questions.items()}
        state = result.request_state or None
    raise ToolError("Too many questions")
''',
    (
        Name("Any", "typing"),
        Name("Awaitable", "collections.abc"),
        Name("Callable", "collections.abc"),
        Name("Context"),
        Name("Declined"),
        Name("ElicitResult"),
        Name("ElicitUrlParams"),
        Name("InputRequest", "gemel.schema.input_required"),
        Name("InputRequiredResult"),
        Name("ListRootsResult", "gemel.schema.roots"),
        Name("ToolError"),
    ),
)
#: `ctx.session.check_client_capability(…)` of the official SDK.
DECLARES = Written(
    '''\
def declares(declared: ClientCapabilities, wanted: ClientCapabilities) -> bool:
    """Whether a client declared these capabilities."""
    for name in ("roots", "sampling", "elicitation", "experimental", "extensions"):
        if getattr(wanted, name) is not None and getattr(declared, name) is None:
            return False
    if wanted.roots is not None and wanted.roots.list_changed and not declared.roots.list_changed:
        return False
    for part in ("tools", "context"):
        if getattr(wanted.sampling, part, None) is not None and getattr(declared.sampling, part) is None:
            return False
    if any(declared.experimental.get(key) != value for key, value in (wanted.experimental or {}).items()):
        return False
    return all(identifier in declared.extensions for identifier in wanted.extensions or ())
''',
    (Name("ClientCapabilities", "gemel.schema.lifecycle"),),
)
#: The class that counts progress, as the default of a parameter.
PROGRESS = frozenset(name for name in WRITTEN if name.endswith(".Progress"))


def written_out(full_names: list[str]) -> list[Written]:
    """Return what is written out for these names, with what it needs in front, each once."""
    ordered: dict[str, Written] = {}
    for name in full_names:
        for inner in (*WRITTEN[name].needs, name):
            ordered.setdefault(WRITTEN[inner].code, WRITTEN[inner])
    return list(ordered.values())
