"""Files and folders: which are rewritten, and the difference."""

from __future__ import annotations

import difflib
import io
import os
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import libcst as cst

from gemel.errors import StartError
from gemel.migrate.project import Sources
from gemel.migrate.source import Migration, Note, migrate_sources
from gemel.user_files import replace_file, writing

#: Folders that hold no source of the project.
_SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"})


class FileMigration(NamedTuple):
    """One file, its source before and after, and what is left to do. `source` is None if the file can't be read as Python."""

    path: Path
    before: str
    source: str | None
    notes: tuple[Note, ...]
    encoding: str = "utf-8"
    #: Whether the module has servers, and its functions without parameters that return one.
    serves: bool = False
    factories: tuple[str, ...] = ()
    #: Whether the module makes a server anywhere, and its functions without parameters that run one.
    makes: bool = False
    runners: tuple[str, ...] = ()
    #: What the servers do as the other library does, other than Gemel by default.
    kept: tuple[str, ...] = ()

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty without one."""
        if self.source is None or self.source == self.before:
            return ""
        before, after = self.before.splitlines(keepends=True), self.source.splitlines(keepends=True)
        lines = difflib.unified_diff(before, after, str(self.path), str(self.path))
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def written_line(self, line: int) -> int:
        """Return the line of the new source for one of the old source."""
        return _other_line(self.before, self.source or self.before, line)

    def original_line(self, line: int) -> int:
        """Return the line of the old source for one of the new source."""
        return _other_line(self.source or self.before, self.before, line)

    def write(self) -> None:
        """Write the new source to the file, in the encoding that it had. Raises StartError if it can't be written."""
        if self.diff:
            with writing(self.path):
                replace_file(self.path, (self.source or "").encode(self.encoding))


def migrate_paths(paths: Iterable[str | Path]) -> Iterator[FileMigration]:
    """Rewrite files, and the Python files in folders, without writing them.

    Args:
        paths: Files and folders. Hidden folders, environments, build results and symbolic links in a folder are left out.

    Yields:
        Each file for which there is something to change or to say, each that has servers, and each by way of which one of them
        imports another.

    Raises:
        StartError: A path doesn't exist.
    """
    decoded: dict[Path, tuple[str, str]] = {}
    for path in _files(paths):
        try:
            data = path.read_bytes()
        except OSError as exc:
            raise StartError(f"{path} can't be read: {exc.strerror or exc}") from exc
        try:
            decoded[path] = _decode(data)
        except (SyntaxError, LookupError, UnicodeError) as exc:
            if b"mcp" in data:
                note = Note(1, f"can't be decoded: {exc}; declare the encoding (PEP 263)")
                yield FileMigration(path, "", None, (note,))
    texts = {path: text for path, (text, _) in decoded.items()}
    results = migrate_sources(texts)
    linking = _linking(texts, {path for path, result in results.items() if _says_something(result, texts[path])})
    for path, (before, encoding) in decoded.items():
        result = results[path]
        if isinstance(result, cst.ParserSyntaxError):
            note = Note(1, f"can't be parsed: {str(result).splitlines()[0]}")
            yield FileMigration(path, before, None, (note,))
        elif path in linking or _says_something(result, before):
            try:
                result.source.encode(encoding)
            except UnicodeError as exc:
                note = Note(1, f"can't be encoded: {exc}; declare another encoding (PEP 263)")
                yield FileMigration(path, before, None, (note,))
            else:
                yield FileMigration(
                    path,
                    before,
                    result.source,
                    result.notes,
                    encoding,
                    serves=result.serves,
                    factories=result.factories,
                    makes=result.makes,
                    runners=result.runners,
                    kept=result.kept,
                )


def _says_something(result: Migration | cst.ParserSyntaxError, before: str) -> bool:
    return isinstance(result, Migration) and bool(result.source != before or result.notes or result.serves)


def _linking(texts: Mapping[Path, str], ends: set[Path]) -> set[Path]:
    """The other files by way of which one of these files imports another one of them."""
    sources = Sources(texts)
    importing: dict[Path, set[Path]] = {path: set() for path in ends}
    new = list(ends)
    while new:
        path = new.pop()
        for imported in sources.imported_by(path):
            if imported not in importing:
                importing[imported] = set()
                new.append(imported)
            importing[imported].add(path)
    found, new = set(ends), list(ends)
    while new:
        more = importing[new.pop()] - found
        found |= more
        new += more
    return found - ends


def _other_line(old: str, new: str, line: int) -> int:
    """The line of the new text that one of the old text became, the nearest one if it is gone."""
    before, after = old.splitlines(), new.splitlines()
    for tag, start, end, new_start, new_end in difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        if start < line <= end:
            if tag == "equal":
                return line + new_start - start
            text = before[line - 1].strip()
            block = range(new_start, new_end)
            near = max(block, key=lambda at: difflib.SequenceMatcher(a=text, b=after[at].strip()).ratio(), default=None)
            return max(1, new_start) if near is None else near + 1
    return line


def _decode(data: bytes) -> tuple[str, str]:
    """Return the source and its encoding, which a byte order mark or a comment declares (PEP 263).

    Raises SyntaxError, LookupError or UnicodeError if it can't be decoded.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding), encoding


def _files(paths: Iterable[str | Path]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_file():
            yield path
        elif path.is_dir():
            for place, folders, names in os.walk(path):  # which doesn't follow symbolic links to folders
                folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
                files = (Path(place, name) for name in sorted(names) if name.endswith(".py"))
                yield from (file for file in files if file.is_file() and not file.is_symlink())
        else:
            raise StartError(f"{path} doesn't exist")
