"""Files and folders: which are rewritten, and the difference."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import libcst as cst

from gemel.errors import StartError
from gemel.migrate.source import Migration, Note, migrate_source

#: Folders that hold no source of the project.
_SKIPPED = frozenset({".git", ".tox", ".venv", "__pycache__", "build", "dist", "node_modules", "site-packages", "venv"})


class FileMigration(NamedTuple):
    """One file, its source before and after, and what is left to do. `source` is None if the file isn't Python."""

    path: Path
    before: str
    source: str | None
    notes: tuple[Note, ...]

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty without one."""
        if self.source is None or self.source == self.before:
            return ""
        before, after = self.before.splitlines(keepends=True), self.source.splitlines(keepends=True)
        lines = difflib.unified_diff(before, after, str(self.path), str(self.path))
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def write(self) -> None:
        """Write the new source to the file."""
        if self.diff:
            self.path.write_bytes((self.source or "").encode())


def migrate_paths(paths: Iterable[str | Path]) -> Iterator[FileMigration]:
    """Rewrite files, and the Python files in folders, without writing them.

    Args:
        paths: Files and folders. Hidden folders, environments and build results in a folder are left out.

    Yields:
        Each file for which there is something to change or to say.

    Raises:
        StartError: A path doesn't exist.
    """
    for path in _files(paths):
        before = path.read_bytes().decode("utf-8", "replace")
        try:
            result = migrate_source(before)
        except (cst.ParserSyntaxError, UnicodeEncodeError) as exc:
            yield FileMigration(path, before, None, (Note(1, f"can't be parsed: {str(exc).splitlines()[0]}"),))
            continue
        if result != Migration(before, ()):
            yield FileMigration(path, before, *result)


def _files(paths: Iterable[str | Path]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_file():
            yield path
        elif path.is_dir():
            for file in sorted(path.rglob("*.py")):
                if not _SKIPPED.intersection(file.relative_to(path).parts[:-1]):
                    yield file
        else:
            raise StartError(f"{path} doesn't exist")
