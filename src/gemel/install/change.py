"""Change the configuration file of a host: plan, show the difference, write atomically, and undo.

What was written is remembered beside a copy of the file as it was, so that an entry of somebody else is never overwritten
unasked, and undoing restores the file byte for byte unless it has changed since.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from gemel.errors import StartError
from gemel.install import jsonc, toml
from gemel.install.hosts import Host, state_folder
from gemel.user_files import replace_file, writing


class Change(NamedTuple):
    """A planned change of a file.

    Args:
        path: The file.
        before: What it holds; None if there is none.
        after: What it is going to hold; None if it is going to be deleted.
        diff: The difference, with values of environment variables and headers left out.
        installation: Where to remember it.
        remembered: What to remember; None to forget.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    diff: str
    installation: Installation
    remembered: Mapping[str, Any] | None

    @property
    def is_empty(self) -> bool:
        """Whether the file stays as it is."""
        return self.before == self.after

    def apply(self) -> Path | None:
        """Write the file atomically.

        Returns:
            The copy of the file as it was before Gemel wrote to it, if there is one.

        Raises:
            StartError: The file has changed since the plan was made, or can't be written.
        """
        if _read_bytes(self.path) != self.before:
            raise StartError(f"{self.path} has changed meanwhile: nothing is written, try again")
        with writing(self.path):
            if self.remembered is not None:
                self.installation.keep(self.before, self.remembered)
            if self.after is None:
                self.path.unlink(missing_ok=True)
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(self.path, self.after, mode=0o600)
            if self.remembered is None:
                self.installation.forget()
        return self.installation.backup if self.remembered is not None and self.installation.backup.exists() else None


class Installation:
    """What Gemel remembers of one entry, in a folder of its own that only the user can read.

    Args:
        path: The configuration file.
        name: The name of the entry.
        state: The folder of all records; the platform's usual one by default.
    """

    def __init__(self, path: Path, name: str, state: Path | None = None) -> None:
        state = state_folder(sys.platform, os.environ) if state is None else state
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()
        self._folder = state / f"{name}-{digest[:16]}"
        #: The file as it was before the entry was written.
        self.backup = self._folder / path.name

    def load(self) -> dict[str, Any]:
        """Read what is remembered, {} if nothing is."""
        try:
            value = json.loads((self._folder / "record.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def keep(self, before: bytes | None, remembered: Mapping[str, Any]) -> None:
        """Remember an entry, with a copy of the file unless there is an earlier one. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.load():
            self.backup.unlink(missing_ok=True)
            if before is not None:
                replace_file(self.backup, before, mode=0o600)
        replace_file(self._folder / "record.json", json.dumps(remembered, indent=2).encode(), mode=0o600)

    def forget(self) -> None:
        """Delete it."""
        shutil.rmtree(self._folder, ignore_errors=True)


def plan_install(
    host: Host, path: Path, name: str, entry: Mapping[str, Any], *, force: bool = False, state: Path | None = None
) -> Change:
    """Plan to add or update an entry.

    Args:
        host: The host.
        path: Its configuration file; it need not exist.
        name: The name of the entry.
        entry: The entry.
        force: Whether to overwrite an entry that Gemel did not write.
        state: Where Gemel remembers what it wrote; the platform's usual place by default.

    Returns:
        The change, to be shown and applied.

    Raises:
        StartError: The file can't be read or changed, or has an entry of that name that Gemel did not write.
    """
    file = _File(host, path, name)
    installation = Installation(file.path, name, state)
    remembered = installation.load()
    if file.entry is not None and not force and file.entry != entry and remembered.get("entry") != _digest(file.entry):
        text = f"{path} has a server {name!r} that gemel did not write, or that was changed since"
        raise StartError(f"{text}: choose another --name, or --force to replace it")
    after = file.before if file.entry == entry else file.with_entry(entry)
    existed = remembered.get("existed", file.before is not None)
    kept = {"file": str(file.path), "entry": _digest(entry), "written": _hash(after), "existed": existed}
    return Change(file.path, file.before, after, file.diff(after, file.entry, entry), installation, kept)


def plan_uninstall(host: Host, path: Path, name: str, *, force: bool = False, state: Path | None = None) -> Change:
    """Plan to undo an installation: the file as it was, or without the entry if it has changed since.

    Args:
        host: The host.
        path: Its configuration file.
        name: The name of the entry.
        force: Whether to remove an entry that Gemel did not write.
        state: Where Gemel remembers what it wrote; the platform's usual place by default.

    Returns:
        The change, to be shown and applied.

    Raises:
        StartError: There is no such entry, or Gemel did not write it.
    """
    file = _File(host, path, name)
    installation = Installation(file.path, name, state)
    remembered = installation.load()
    if file.entry is None:
        raise StartError(f"{path} has no server {name!r}; it has {', '.join(file.servers) or 'none'}")
    if not force and remembered.get("entry") != _digest(file.entry):
        text = f"{path}: gemel did not write the server {name!r}, or it was changed since"
        raise StartError(f"{text}: --force removes it")
    earlier = _File(host, installation.backup, name) if remembered and installation.backup.exists() else None
    if remembered and remembered.get("written") == _hash(file.before):
        after = None if not remembered.get("existed", True) else earlier.before if earlier else file.without_entry()
    elif earlier is not None and earlier.entry is not None:
        after = file.with_entry(earlier.entry)
    else:
        after = file.without_entry()
    return Change(file.path, file.before, after, file.diff(after, file.entry), installation, None)


def names_that_run(host: Host, path: Path, file: str) -> list[str]:
    """Return the names of the entries that run a Python file.

    Args:
        host: The host.
        path: Its configuration file.
        file: The absolute path of the Python file.

    Raises:
        StartError: The configuration can't be read.
    """
    return [name for name, entry in _File(host, path, "").servers.items() if _runs(entry, file)]


def _runs(entry: object, file: str) -> bool:
    words = entry.get("args") if isinstance(entry, Mapping) else None
    return isinstance(words, list) and any(str(word) == file or str(word).startswith(f"{file}:") for word in words)


class _File:
    """A configuration file, and the entry of one server in it."""

    def __init__(self, host: Host, path: Path, name: str) -> None:
        #: The file itself, if the configuration is a symbolic link.
        self.path = Path(os.path.realpath(path))
        self.before = _read_bytes(self.path)
        self._shown = path
        self._syntax: ModuleType = toml if path.suffix == ".toml" else jsonc
        self._keys = (host.section, name)
        try:
            self._text = (self.before or b"").decode("utf-8")
            self._mark = "\ufeff" if self._text.startswith("\ufeff") else ""
            self._text = self._text.removeprefix(self._mark)
            servers = self._syntax.get(self._text, self._keys[:1])
            self.entry: Any = self._syntax.get(self._text, self._keys)
        except UnicodeDecodeError as exc:
            raise StartError(f"{path} is not UTF-8: {exc.reason} at byte {exc.start}") from None
        except StartError as exc:
            raise StartError(f"{path}: {exc}") from None
        self.servers: Mapping[str, Any] = servers if isinstance(servers, Mapping) else {}

    def with_entry(self, entry: Mapping[str, Any]) -> bytes:
        """The content with an entry."""
        return self._edited(lambda: self._syntax.put(self._text, self._keys, entry))

    def without_entry(self) -> bytes:
        """The content without the entry."""
        return self._edited(lambda: self._syntax.cut(self._text, self._keys))

    def _edited(self, edit: Any) -> bytes:
        try:
            text: str = edit()
        except StartError as exc:
            raise StartError(f"{self._shown}: {exc}") from None
        return (self._mark + text).encode("utf-8")

    def diff(self, after: bytes | None, *entries: object) -> str:
        """The difference to another content, without the values of these entries' variables and headers."""
        old, new = (_masked((content or b"").decode("utf-8", "replace"), entries) for content in (self.before, after))
        names = (str(self._shown) if self.before is not None else os.devnull, str(self._shown))
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="")
        return "".join(f"{line}\n" for line in lines)


def _masked(text: str, entries: tuple[Any, ...]) -> str:
    for value in sorted({value for entry in entries for value in _secrets(entry)}, key=len, reverse=True):
        text = text.replace(json.dumps(value, ensure_ascii=False), '"***"')
    return text


def _secrets(entry: object) -> Iterator[str]:
    for member in ("env", "headers", "http_headers"):
        values = entry.get(member) if isinstance(entry, Mapping) else None
        if isinstance(values, Mapping):
            yield from (value for value in values.values() if isinstance(value, str) and "${" not in value and value)


def _digest(entry: object) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def _hash(content: bytes | None) -> str:
    return hashlib.sha256(content or b"").hexdigest()


def _read_bytes(path: Path) -> bytes | None:
    if path.exists() and not path.is_file():  # a pipe would wait for its other end
        raise StartError(f"{path} can't be read: it is not a regular file")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StartError(f"{path} can't be read: {exc.strerror or exc}") from exc
