"""Files and folders as resources. Nothing outside of the root folder can be read.

A path is checked as text, then with its symlinks resolved, and is then opened name by name from the root without following
symlinks, so that a symlink which appears in between isn't followed.
https://modelcontextprotocol.io/specification/2025-11-25/server/resources#security-considerations
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from gemel.errors import DefinitionError, ResourceNotFound
from gemel.schema.base import Model
from gemel.schema.content import ResourceContents
from gemel.server.context import Context
from gemel.server.features.content import JSON, contents_from_bytes, guess_mime_type, too_large

logger = logging.getLogger("gemel")

#: At most this many entries of a folder are listed.
MAX_ENTRIES = 10_000
#: The MIME type of a folder, as in the shared MIME-info database.
FOLDER = "inode/directory"

#: The file doesn't exist or may not be read; clients get the same error for both.
_MISSING = (FileNotFoundError, NotADirectoryError, PermissionError)
_MISSING_NUMBERS = (errno.ELOOP, errno.EMLINK, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.ENODEV)
_STEPWISE = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class FolderEntry(Model, kw_only=True):
    """An entry in the contents of a folder."""

    uri: str
    name: str
    mime_type: str | None = None
    size: int | None = None


class Folder(Model, kw_only=True):
    """The contents of a folder, as JSON; `more` if some entries are left out."""

    entries: list[FolderEntry]
    more: bool = False


class Files:
    """The files below a root, under URIs that begin with `prefix`. All methods but the constructor may block on the disk.

    Names that begin with a dot are left out unless `hidden`; so are devices, pipes, sockets, and symlinks that lead out of
    the root. `limit`, in bytes, is for one file. `mime_type` is for all files; by default their names decide.
    """

    def __init__(
        self, root: str | os.PathLike[str], prefix: str, *, hidden: bool, limit: int, mime_type: str | None = None
    ) -> None:
        self._root = os.path.realpath(root)
        self._prefix = prefix
        self._hidden = hidden
        self._limit = limit
        self._mime_type = mime_type
        if not os.path.exists(self._root):
            raise DefinitionError(f"add_files: there is no {os.fspath(root)}")
        #: Whether the root is one file.
        self.single = not os.path.isdir(self._root)
        if not self.single and not prefix.endswith("/"):
            raise DefinitionError(f"add_files: the URI of a folder ends with a slash: write {prefix + '/'!r}")

    def read(self, ctx: Context[Any], path: str) -> ResourceContents:
        """One file or folder by its decoded path. Raises ResourceNotFound."""
        uri = ctx.decoded_params["uri"]
        with self._opened(path, uri) as (file, status):
            if stat.S_ISDIR(status.st_mode):
                return self._folder(file, path, uri)
            if path.endswith("/"):
                raise ResourceNotFound(uri)
            return self._file(file, status, uri)

    def read_root(self, ctx: Context[Any]) -> ResourceContents:
        """The root itself."""
        return self.read(ctx, "")

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of this path."""
        try:
            with self._opened(path, ""):
                return True
        except ResourceNotFound:
            return False

    def complete(self, value: str) -> list[str]:
        """The paths that begin with this text, down to the next level; folders end with a slash."""
        above, slash, begin = value.rpartition("/")
        try:
            with self._opened(above, "") as (file, status):
                entries = self._scan(file, above, begin) if stat.S_ISDIR(status.st_mode) else []
                ends = {entry.name: "/" if is_folder else "" for entry, is_folder in entries}
        except ResourceNotFound:
            return []
        return [above + slash + name + end for name, end in ends.items()]

    def walk(self, start: str = "") -> dict[str, tuple[int, int, int]]:
        """All files below a folder by their paths, each with its size, time of change and number.

        Symlinks to folders are not followed.
        """
        files: dict[str, tuple[int, int, int]] = {}
        folders = [start] if self._is_folder(start) else []
        while folders:
            above = folders.pop()
            with os.scandir(os.path.join(self._root, *above.split("/"))) as entries:
                for entry in entries:
                    path = f"{above}/{entry.name}" if above else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if self._allowed(entry.name):
                            folders.append(path)
                    elif (status := self._status(entry, path)) is not None and stat.S_ISREG(status.st_mode):
                        files[path] = status.st_size, status.st_mtime_ns, status.st_ino
                    if len(files) + len(folders) > MAX_ENTRIES:
                        raise ValueError(f"it has more than {MAX_ENTRIES} files and folders")
        return files

    def finds(self, path: str) -> bool:
        """Whether `walk` finds a file of this path; without looking at others."""
        above, _, name = path.rpartition("/")
        if not self._is_folder(above) or not self._allowed(name):
            return False
        try:
            status = os.stat(os.path.join(self._root, *self._names(path)), follow_symlinks=False)
        except (OSError, ValueError):
            return False
        return stat.S_ISREG(status.st_mode)

    def _is_folder(self, path: str) -> bool:
        """Whether there is a folder of this path, without symlinks on the way."""
        place = self._root
        for name in path.split("/") if path else ():
            place = os.path.join(place, name)
            try:
                if not self._allowed(name) or not stat.S_ISDIR(os.lstat(place).st_mode):
                    return False
            except (OSError, ValueError):
                return False
        return True

    def load(self, path: str) -> bytes:
        """The bytes of one file by its decoded path. Raises ResourceNotFound."""
        from urllib.parse import quote

        with self._opened(path, self._prefix + quote(path)) as (file, status):
            if not stat.S_ISREG(status.st_mode):
                raise ResourceNotFound(self._prefix + quote(path))
            return self._bytes(file, status)

    # ---------------------------------------------------------------- opening

    @contextmanager
    def _opened(self, path: str, uri: str) -> Iterator[tuple[int, os.stat_result]]:
        """Open a file or folder below the root. Raises ResourceNotFound for what doesn't exist or can't be read."""
        try:
            file = self._open(self._names(path))
        except (OSError, ValueError) as exc:
            if isinstance(exc, OSError) and not isinstance(exc, _MISSING) and exc.errno not in _MISSING_NUMBERS:
                raise
            logger.debug("%s: %s", uri or path, exc)
            raise ResourceNotFound(uri) from None
        try:
            status = os.fstat(file)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                raise ResourceNotFound(uri)
            yield file, status
        finally:
            os.close(file)

    def _names(self, path: str) -> list[str]:
        """The names from the root to the file, with symlinks resolved. Raises FileNotFoundError for paths out of the root."""
        asked = path.removesuffix("/").split("/") if path else []
        if leads_out(path) or not all(map(self._allowed, asked)):
            raise FileNotFoundError(f"{path!r} is not below the root")
        real = os.path.realpath(os.path.join(self._root, *asked))
        if os.path.commonpath((self._root, real)) != self._root:
            raise FileNotFoundError(f"{path!r} leads out of the root by a symlink")
        names = [] if real == self._root else os.path.relpath(real, self._root).split(os.sep)
        if not all(map(self._allowed, names)):
            raise FileNotFoundError(f"{path!r} leads to a hidden name")
        return names

    def _allowed(self, name: str) -> bool:
        if not name or name in (".", "..") or "\\" in name or (os.name == "nt" and ":" in name):
            return False
        return self._hidden or not name.startswith(".")

    def _open(self, names: list[str]) -> int:
        """Open name by name, without following symlinks."""
        if not _STEPWISE:
            return self._open_checked(os.path.join(self._root, *names))
        place = os.open(self._root, _READ | os.O_NOFOLLOW | (0 if self.single else os.O_DIRECTORY))
        for depth, name in enumerate(names, 1):
            above, folder = place, os.O_DIRECTORY if depth < len(names) else 0
            try:
                place = os.open(name, _READ | os.O_NOFOLLOW | folder, dir_fd=above)
            finally:
                os.close(above)
        return place

    def _open_checked(self, path: str) -> int:
        """For systems that can't open name by name: open, then check again where the path leads."""
        file = os.open(path, _READ)
        if os.path.realpath(path) != path or not os.path.samestat(os.fstat(file), os.stat(path)):
            os.close(file)
            raise FileNotFoundError(f"{path!r} changed while it was opened")
        return file

    # ---------------------------------------------------------------- reading

    def _file(self, file: int, status: os.stat_result, uri: str) -> ResourceContents:
        return contents_from_bytes(self._bytes(file, status), uri, self._mime_type or guess_mime_type(uri))

    def _bytes(self, file: int, status: os.stat_result) -> bytes:
        if status.st_size > self._limit:
            raise too_large(self._limit)
        chunks: list[bytes] = []
        remaining = self._limit + 1  # it may grow while it is read
        while remaining > 0 and (chunk := os.read(file, min(remaining, 1 << 20))):
            chunks.append(chunk)
            remaining -= len(chunk)
        if remaining <= 0:
            raise too_large(self._limit)
        return b"".join(chunks)

    def _folder(self, file: int, path: str, uri: str) -> ResourceContents:
        entries = self._entries(file, path.removesuffix("/"))
        folder = Folder(entries=entries[:MAX_ENTRIES], more=len(entries) > MAX_ENTRIES)
        return ResourceContents(uri=uri, text=msgspec.json.encode(folder).decode(), mime_type=JSON)

    def _entries(self, file: int, path: str) -> list[FolderEntry]:
        """The entries of a folder, sorted by name."""
        entries: list[FolderEntry] = []
        for found, is_folder in self._scan(file, path):
            entry = self._entry(found, f"{path}/{found.name}" if path else found.name, is_folder)
            if entry is not None:
                entries.append(entry)
            if len(entries) > MAX_ENTRIES:
                break
        return entries

    def _scan(self, file: int, path: str, begin: str = "") -> list[tuple[os.DirEntry[str], bool]]:
        """The entries of a folder whose names begin with a text, sorted by name, and whether each is a folder.

        The operating system tells the kinds of all entries at once; only symlinks are looked at.
        """
        found: list[tuple[os.DirEntry[str], bool]] = []
        with os.scandir(file if _STEPWISE else os.path.join(self._root, *path.split("/"))) as entries:
            for entry in entries:
                if not entry.name.startswith(begin) or not self._allowed(entry.name):
                    continue
                if entry.is_symlink():
                    status = self._status(entry, f"{path}/{entry.name}" if path else entry.name)
                    mode = 0 if status is None else status.st_mode
                    is_folder, is_file = stat.S_ISDIR(mode), stat.S_ISREG(mode)
                else:
                    is_folder, is_file = entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)
                if (is_folder or is_file) and _is_text(entry.name):
                    found.append((entry, is_folder))
        return sorted(found, key=lambda pair: pair[0].name)

    def _status(self, entry: os.DirEntry[str], path: str) -> os.stat_result | None:
        """The status of an entry of a folder below the root; None if it can't be read."""
        if not self._allowed(entry.name) or not _is_text(entry.name):
            return None
        try:
            if entry.is_symlink():
                return os.stat(os.path.join(self._root, *self._names(path)), follow_symlinks=False)
            return entry.stat(follow_symlinks=False)
        except (OSError, ValueError):  # gone, or not below the root
            return None

    def _entry(self, entry: os.DirEntry[str], path: str, is_folder: bool) -> FolderEntry | None:
        """One entry of a folder; None if it can't be read."""
        from urllib.parse import quote

        name, uri = entry.name, self._prefix + quote(path)
        if is_folder:
            return FolderEntry(uri=uri + "/", name=name, mime_type=FOLDER)
        status = self._status(entry, path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return None
        return FolderEntry(uri=uri, name=name, mime_type=self._mime_type or guess_mime_type(name), size=status.st_size)


def _is_text(name: str) -> bool:
    """Whether a name can be sent and asked for again: it is Unicode, and not read as a path out of its folder."""
    try:
        name.encode()
    except UnicodeError:
        return False
    return not leads_out(name)


def default_uri(root: str | os.PathLike[str]) -> str:
    """The default URI of a file or folder: its name, without the path on the disk."""
    from urllib.parse import quote

    path = os.path.realpath(root)
    return f"file:///{quote(os.path.basename(path))}" + ("/" if os.path.isdir(path) else "")


#: A text that is percent-encoded more often than this is rejected.
_ROUNDS = 4

_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}")
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")


def leads_out(text: str) -> bool:
    """Whether a text contains `..` as a part of a path, starts like an absolute path, or contains NUL.

    Both `/` and `\\` separate parts; Unicode lookalikes count as the characters that they look like. Percent-encoded text
    is decoded and checked again, so that decoding it once more is safe.
    """
    for _ in range(_ROUNDS):
        if _leads_out(text):
            return True
        if _TRIPLET.search(text) is None:
            return False
        from urllib.parse import unquote_to_bytes

        try:
            text = unquote_to_bytes(text).decode()
        except UnicodeError:
            return True
    return True


def _leads_out(text: str) -> bool:
    if "\0" in text:
        return True
    if not text.isascii():
        import unicodedata

        text = unicodedata.normalize("NFKC", text)
    text = text.replace("\\", "/")
    if text.startswith("/") or _DRIVE.match(text) is not None:
        return True
    # Some systems ignore blanks and dots at the end of a name, some everything after a semicolon.
    return ".." in text and any(part.partition(";")[0].strip(" \t\r\n") == ".." for part in text.split("/"))
