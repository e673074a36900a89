"""Files that only their user can read: replaced as a whole, refused if others can reach them; and locks that end with a process."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from gemel.auth.client.tokens import TokenStoreError
from gemel.user_files import replace_file

#: Bytes of a file.
MAX_BYTES = 1 << 20
_POSIX = os.name != "nt"
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a TokenStoreError in one line."""
    try:
        yield
    except OSError as exc:
        raise TokenStoreError(f"{path} can't be used: {exc.strerror or exc}") from None


def make_directory(path: Path) -> None:
    """Make a directory for its user only. Raises TokenStoreError if it fails, or if others can write to one that exists."""
    with file_errors(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _POSIX:
            _check(path, path.stat(), 0o022, "write to it; run chmod 700 on it")


def read_private(path: Path) -> bytes | None:
    """Return the contents of a file, None if there is none.

    Raises TokenStoreError if it can't be read, is not a plain file, is too large, or other users can read or write it.
    """
    with file_errors(path):
        try:
            with open(path, "rb", opener=_open_plainly) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
                    raise TokenStoreError(f"{path} is not a file that Gemel wrote: delete it and log in again")
                if _POSIX:
                    _check(path, status, 0o077, "read or write it; delete it and log in again")
                return file.read(MAX_BYTES)
        except FileNotFoundError:
            return None


def _open_plainly(path: str, flags: int) -> int:
    """Open a file without following a link, and without waiting for the other end of a pipe."""
    return os.open(path, flags | _NO_LINKS | getattr(os, "O_NONBLOCK", 0))


def _check(path: Path, status: os.stat_result, mask: int, text: str) -> None:
    if status.st_uid != os.geteuid():
        raise TokenStoreError(f"{path} belongs to another user: choose another directory")
    if status.st_mode & mask:
        raise TokenStoreError(f"{path}: other users can {text}")


def write_private(path: Path, data: bytes) -> None:
    """Replace a file. When this returns the data is on the disk; a process that is killed leaves the old file.

    Raises TokenStoreError if it can't be written.
    """
    with file_errors(path):
        replace_file(path, data, mode=0o600, keep=False)


def try_lock(path: Path) -> int | None:
    """Take the lock of a file, which excludes threads and processes alike.

    Returns the descriptor that holds it until it is closed, None if somebody else does. Raises TokenStoreError.
    """
    with file_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS | _BINARY, 0o600)
        try:
            if _POSIX:
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                msvcrt: Any = import_module("msvcrt")
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
