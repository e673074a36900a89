"""Reading files of receipts: whether their chains are whole, and what they say."""

from __future__ import annotations

import errno
import heapq
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from gemel.errors import GemelError, StartError
from gemel.receipts.entries import HashKey, Line, Position, read_line
from gemel.receipts.files import chains, current_file, rotated
from gemel.receipts.writer import LONGEST_LINE
from gemel.visible import escape_line

#: Seconds after which a line has its end, if it is being written.
_PAUSE = 0.2
#: How often files are read of which one is deleted meanwhile, and how often they are listed until none is renamed meanwhile.
_ATTEMPTS, _LISTINGS = 5, 100


class BrokenChain(GemelError):
    """A line is not the one that was written, or lines are missing before it.

    Args:
        message: What is wrong.
        file: The file.
        line: The number of the line in the file, from 1.
    """

    def __init__(self, message: str, file: Path, line: int) -> None:
        super().__init__(f"{file}:{line}: {message}")
        self.file = file
        self.line = line


class ChainReport(NamedTuple):
    """A chain that is whole.

    Attributes:
        files: Its files, the oldest first.
        first: The number of its first line. It is not 1 if older files were deleted.
        last: The number of its last line.
        head: The hash of its last line.
        receipts: How many of its lines are receipts.
        killed: How often a process ended without closing the file; calls that it served then have no receipt.
        repaired: How many torn lines were cut off.
        lost: How many receipts were not written.
        is_open: Whether the last process has not closed the file: it runs, or was killed.
    """

    files: Sequence[Path]
    first: int
    last: int
    head: str
    receipts: int
    killed: int
    repaired: int
    lost: int
    is_open: bool


def verify(
    path: str | os.PathLike[str], *, keys: Sequence[str | bytes] = (), heads: Sequence[str] = ()
) -> list[ChainReport]:
    """Check the chains of a file of receipts: of all processes that wrote it, over all rotated files.

    Lines that were removed at the end of a chain can't be noticed from what is left: keep the `head` of a chain somewhere else,
    and give it as one of `heads` later.

    Args:
        path: The file that was given to `Receipts`.
        keys: The keys with which it was written; several, if the key was changed. None if it was written without.
        heads: Hashes that must be those of lines in one of the chains.

    Returns:
        A report for each chain.

    Raises:
        BrokenChain: With the place of the first line that is wrong.
        StartError: There is no such file, a key is missing, or a head is in none of the chains.
        DefinitionError: A key is too short.
    """
    # Where a key is given, no line without one counts: anybody can write those.
    by_id = {key.id: key for key in map(HashKey, keys or (None,))}
    file = Path(path)
    for _ in range(_ATTEMPTS):
        before = _found(file)
        reports: list[ChainReport] | None = None
        with suppress(BrokenChain, StartError):
            reports = _verify(file, by_id, heads)
        if reports is not None:
            return reports
        if _found(file) == before:  # otherwise a process has deleted a file meanwhile
            break
    return _verify(file, by_id, heads)


def _verify(path: Path, keys: Mapping[str | None, HashKey], heads: Sequence[str]) -> list[ChainReport]:
    missing = set(heads)
    openings: dict[str, Path] = {}
    reports = [_verify_chain(files, keys, missing, openings) for files in _found(path)]
    if missing:
        raise StartError(f"{path} has no line with the hash {min(missing)}: lines were removed at the end of a chain")
    return reports


def counted(count: int, noun: str) -> str:
    """A number with what it counts: "1 line", "2 lines"."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{'' if count == 1 else plural}"


class _ListedFile(NamedTuple):
    """A file, whose name changes when it is rotated."""

    path: Path
    inode: int

    def open(self) -> BinaryIO:
        """Open it, whatever its name is by now. Raises FileNotFoundError if it was deleted."""
        for path in (self.path, *rotated(current_file(self.path))):
            with suppress(FileNotFoundError):
                opened = path.open("rb")
                if os.fstat(opened.fileno()).st_ino == self.inode:
                    return opened
                opened.close()
        raise FileNotFoundError(errno.ENOENT, "it was deleted", str(self.path))


def _found(path: Path) -> list[list[_ListedFile]]:
    """The files of each process, the oldest first, at a moment when none is renamed."""
    found = _listed(path)
    for _ in range(_LISTINGS):
        before, found = found, _listed(path)
        if found == before:
            break
    if not found:
        raise StartError(f"No such file: {path}")
    return found


def _listed(path: Path) -> list[list[_ListedFile]]:
    try:
        return [[_ListedFile(file, file.stat().st_ino) for file in files] for files in chains(path)]
    except FileNotFoundError:  # it is renamed just now
        return []


def _verify_chain(
    files: Sequence[_ListedFile], keys: Mapping[str | None, HashKey], missing: set[str], openings: dict[str, Path]
) -> ChainReport:
    """Check one chain. Takes its lines out of `missing`, and adds those that begin a file or process to `openings`."""
    before: Position | None = None
    key: HashKey | None = None
    first = receipts = killed = repaired = lost = 0
    is_open = False
    for each in files:
        file = each.path
        for number, text in _lines(each):
            line = _checked_form(file, number, text)
            members = line.members
            kind = members.get("kind")
            if kind == "open":
                key = _key_of(members, keys, file, number)
                killed += is_open and members.get("again") is not True
                is_open = True
            if key is None:
                raise BrokenChain("the first line of a file says who writes it, and is missing", file, number)
            _check_place(before, line, file, number)
            if key.line(line.hashed) != members["hash"]:
                raise BrokenChain("the line was changed: its hash is another one", file, number)
            if kind == "open" and (other := openings.setdefault(members["hash"], file)) != file:
                raise BrokenChain(f"this is a copy of a line of {other}, and no other chain", file, number)
            is_open = is_open and kind != "close"
            receipts += kind == "call"
            repaired += kind == "repaired"
            lost += _lost(members)
            first = first or members["n"]
            before = line.position
            missing.discard(members["hash"])
    if before is None:
        raise BrokenChain("the file is empty", files[-1].path, 1)
    return ChainReport(
        files=[file.path for file in files],
        first=first,
        last=before.n,
        head=before.hash or "",
        receipts=receipts,
        killed=killed,
        repaired=repaired,
        lost=lost,
        is_open=is_open,
    )


def _lost(members: Mapping[str, Any]) -> int:
    count = members.get("receipts")
    return count if members.get("kind") == "lost" and isinstance(count, int) else 0


def _lines(file: _ListedFile) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers. Raises StartError if it can't be read."""
    try:
        with file.open() as lines:
            number = 0
            while text := lines.readline(LONGEST_LINE):
                number += 1
                if not text.endswith(b"\n"):
                    time.sleep(_PAUSE)  # a process may be writing it
                    text += lines.readline(LONGEST_LINE)
                yield number, text
    except OSError as exc:
        raise StartError(f"{file.path} can't be read: {exc.strerror or exc}") from exc


def _checked_form(file: Path, number: int, text: bytes) -> Line:
    if not text.endswith(b"\n"):
        raise BrokenChain(
            "the line has no end: it was cut, or its writer was killed and has not begun again", file, number
        )
    line = read_line(text[:-1])
    if line is None:
        raise BrokenChain("this is not a line of a receipts file", file, number)
    return line


def _key_of(members: Mapping[str, Any], keys: Mapping[str | None, HashKey], file: Path, number: int) -> HashKey:
    name = members.get("key")
    if isinstance(name, str | None) and name in keys:
        return keys[name]
    if name is None:
        raise BrokenChain("this was written without a key, and a key is given", file, number)
    shown = escape_line(str(name))[:100]
    if None in keys:
        raise StartError(f"{file}:{number}: this was written with a key (its id is {shown}), which is needed here")
    raise BrokenChain(f"this was written with another key (its id is {shown})", file, number)


def _check_place(before: Position | None, line: Line, file: Path, number: int) -> None:
    n = line.members["n"]
    if before is None:
        return
    if n > before.n + 1:
        raise BrokenChain(f"{counted(n - before.n - 1, 'line')} missing before this one", file, number)
    if n != before.n + 1:
        raise BrokenChain(f"this is line {n} of the chain, and stands behind line {before.n}", file, number)
    if line.members["before"] != before.hash:
        raise BrokenChain("the line before was changed: its hash is another one than this line says", file, number)


def read(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Read all lines of a file of receipts, of all processes, in the order of their times. Their hashes are not checked.

    What is not a line of such a file is left out.

    Args:
        path: The file that was given to `Receipts`.

    Yields:
        The members of each line.

    Raises:
        StartError: There is no such file, it can't be read, or has no such line.
    """
    is_file = False

    def members_of(files: Sequence[_ListedFile]) -> Iterator[dict[str, Any]]:
        for file in files:
            for _, text in _lines(file):
                line = read_line(text.rstrip(b"\n"))
                if line is not None:
                    yield line.members

    for members in heapq.merge(*map(members_of, _found(Path(path))), key=lambda members: str(members.get("at"))):
        is_file = True
        yield members
    if not is_file:
        raise StartError(f"{path} is no file of receipts")


def abandoned(path: str | os.PathLike[str], before: str) -> set[str]:
    """The states of rounds that asked the client for input before a time, and that no later round went on with."""
    asked: set[str] = set()
    for members in read(path):
        asked.discard(str(members.get("after")))
        state = members.get("state")
        if members.get("kind") == "asked" and isinstance(state, str) and str(members.get("at")) < before:
            asked.add(state)
    return asked
