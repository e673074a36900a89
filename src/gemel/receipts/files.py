"""The files of receipts: those of the processes that write at the same time, and those that were rotated.

Of `receipts.jsonl` the first process writes `receipts.jsonl`, the next one `receipts-2.jsonl`. A full file becomes
`receipts.jsonl.1`, and those before it get the next number.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from gemel.errors import BackendError

#: Processes that may write at the same time.
MOST_PROCESSES = 256


def file_of(path: Path, slot: int) -> Path:
    """The file of a process; slots begin with 1."""
    return path if slot == 1 else path.with_name(f"{path.stem}-{slot}{path.suffix}")


def rotated(path: Path) -> list[Path]:
    """The files that were rotated, the oldest first."""
    pattern = re.compile(re.escape(path.name) + r"\.([1-9][0-9]*)")
    found = [(int(match[1]), each) for each in _listed(path.parent) if (match := pattern.fullmatch(each.name))]
    return [each for _, each in sorted(found, reverse=True)]


def current_file(path: Path) -> Path:
    """The file that a file was before it was rotated."""
    name = re.sub(r"\.[1-9][0-9]*$", "", path.name)
    return path if name == path.name else path.with_name(name)


def chains(path: Path) -> list[list[Path]]:
    """The files of each process, the oldest first."""
    pattern = re.compile(re.escape(path.stem) + r"-([1-9][0-9]*)" + re.escape(path.suffix) + r"(\.[1-9][0-9]*)?")
    slots = {1} | {int(match[1]) for each in _listed(path.parent) if (match := pattern.fullmatch(each.name))}
    found = []
    for slot in sorted(slots & set(range(1, MOST_PROCESSES + 1))):  # `receipts-2026.jsonl` is a file of somebody else
        current = file_of(path, slot)
        files = [*rotated(current), *([current] if current.exists() else [])]
        if files:
            found.append(files)
    return found


def rotate(path: Path, keep: int | None) -> None:
    """Give a full file the number 1, and those before it the next one; delete the oldest ones of more than `keep`."""
    files = rotated(path)
    if keep is not None:
        while len(files) >= max(keep, 1):
            files.pop(0).unlink()
    for each in files:
        each.rename(path.with_name(f"{path.name}.{int(each.name.rpartition('.')[2]) + 1}"))
    if keep == 0:
        path.unlink()
    else:
        path.rename(path.with_name(f"{path.name}.1"))


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


class WriterSlot:
    """The number of this process among those that write at the same time: free again when the process ends, however it does.

    Args:
        path: The file of the first process. The file with `.lock` behind its name has a byte for each process, which is locked.

    Raises:
        OSError: The lock file can't be made.
        BackendError: There are too many processes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.lock")
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            self.number = next((slot for slot in range(1, MOST_PROCESSES + 1) if self._lock(slot)), 0)
            if not self.number:
                raise BackendError(f"{MOST_PROCESSES} processes write {path} already")
        except BaseException:
            os.close(self._descriptor)
            raise

    def _lock(self, slot: int) -> bool:
        try:
            if os.name == "nt":
                msvcrt: Any = import_module("msvcrt")
                os.lseek(self._descriptor, slot, os.SEEK_SET)
                msvcrt.locking(self._descriptor, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
        except (BlockingIOError, PermissionError):
            return False
        return True

    @property
    def is_in_place(self) -> bool:
        """Whether the file of the locks is still the one of its name: otherwise others don't see this lock."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False

    def release(self) -> None:
        """Free it. In a process that was forked this leaves that of the parent locked."""
        os.close(self._descriptor)
