"""Write the files of users. Nothing here follows a symbolic link that stands at the name of a file.

A folder may have been prepared by somebody else, as a repository that was cloned is: what it holds decides neither which other
file is written, nor whether a file is left half written.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from gemel.errors import StartError

#: What the names of files begin with until they are whole.
TEMPORARY = ".gemel-"
_POSIX = os.name != "nt"
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN


def replace_file(path: Path, data: bytes, *, mode: int = 0o666, keep: bool = True) -> None:
    """Write a file as a whole: a process that is killed leaves the old file or the new one.

    When this returns the data is on the disk.

    Args:
        path: The file.
        data: Its new content.
        mode: The permissions of a new file, less the umask.
        keep: Whether a file that exists keeps its permissions and its owner, and what is not a file that may be written is
            refused: a symbolic link, a device, a file without write permission. Otherwise the new file takes its place.

    Raises:
        OSError: The file can't be written, or is refused.
    """
    with _errors_of(path):
        kept = _check(path) if keep else None
        new = path.with_name(TEMPORARY + token_hex(8))
        descriptor = os.open(new, _NEW, mode if kept is None else 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if kept is not None and _POSIX:
                    if (kept.st_uid, kept.st_gid) != (os.geteuid(), os.getegid()):
                        with suppress(OSError):
                            os.fchown(descriptor, kept.st_uid, kept.st_gid)
                    os.fchmod(descriptor, stat.S_IMODE(kept.st_mode) & 0o777)
                os.fsync(descriptor)
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
        _sync_folder(path.parent)


def write_new_file(path: Path, data: bytes) -> None:
    """Write a file that does not exist.

    Raises:
        FileExistsError: There is something of that name, be it a symbolic link that leads nowhere.
        OSError: The file can't be written; then there is none.
    """
    with _errors_of(path):
        descriptor = os.open(path, _NEW, 0o666)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise


def append_to_file(path: Path, data: bytes) -> None:
    """Add to the end of a file that exists. Raises OSError, also for symbolic links, directories and devices."""
    with _errors_of(path):
        _check(path)
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | _PLAIN), "ab") as file:
            file.write(data)


def truncate_file(path: Path, size: int) -> None:
    """Cut a file that exists. Raises OSError, also for symbolic links, directories and devices."""
    with _errors_of(path):
        _check(path)
        with open(os.open(path, os.O_RDWR | _PLAIN), "r+b") as file:
            file.truncate(size)


def path_within(folder: Path, name: str | os.PathLike[str]) -> Path:
    """Return the path of a file in a folder.

    Raises:
        StartError: The name, or a symbolic link on the way, leads out of the folder.
    """
    root, path = Path(os.path.realpath(folder)), folder / name
    found = Path(os.path.realpath(path))
    if root not in found.parents:
        raise StartError(f"{path} leads out of {folder}, to {found}")
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a StartError in one line."""
    try:
        yield
    except OSError as exc:
        raise StartError(f"{exc.filename or path} can't be written: {exc.strerror or exc}") from exc


def _check(path: Path) -> os.stat_result | None:
    """Return the status of a file, None if there is none. Raises OSError unless it is one that may be written."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file that it leads to")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return status


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Let errors name the file, and not the temporary one."""
    try:
        yield
    except OSError as exc:
        exc.filename, exc.filename2 = str(path), None
        raise


def _sync_folder(folder: Path) -> None:
    """Put the new name on the disk; some file systems can't."""
    if _POSIX:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
