"""The lock file: a contract as JSON that people can read and review, written the same way every time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from gemel.contracts.canonical import fingerprint
from gemel.contracts.contract import SECTIONS, Contract, Definition, listed_of, plain_json
from gemel.contracts.display import escaped
from gemel.errors import StartError, shorten
from gemel.schema.base import Implementation
from gemel.schema.methods import BY_SECTION, ItemList

#: The member that tells a lock file from other JSON, and the only format there is.
MARK = "gemelLock"
FORMAT = 1
#: A larger file is refused.
MAX_BYTES = 64 * 1024 * 1024


def written(contract: Contract) -> str:
    """Return the text of a lock file. The same contract gives the same text, on every machine and Python.

    Invisible characters and those that change the order of others are written as `\\uXXXX`.
    """
    lock: dict[str, Any] = {MARK: FORMAT, "fingerprint": "", "revision": contract.revision}
    lock["server"] = _sorted(contract.server)
    if contract.instructions is not None:
        lock["instructions"] = contract.instructions
    for name in SECTIONS:
        section = contract.section(name)
        if section is not None:
            lock[name] = {
                key: {"fingerprint": fingerprint(section[key]), "definition": _sorted(section[key])}
                for key in sorted(section)
            }
    lock["fingerprint"] = _fingerprint(lock)
    return escaped(json.dumps(lock, indent=2, ensure_ascii=False)) + "\n"


def _fingerprint(lock: dict[str, Any]) -> str:
    """The fingerprint of the whole file."""
    sections = {name: {key: one["fingerprint"] for key, one in lock[name].items()} for name in SECTIONS if name in lock}
    return fingerprint({"instructions": lock.get("instructions"), **sections})


def _sorted(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def read_lock(path: str | os.PathLike[str]) -> Contract:
    """The contract that a lock file holds. Raises StartError, with the place, for a file that can't be taken as it is."""
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise StartError(f"{path} is larger than {MAX_BYTES} bytes")
        data = msgspec.json.decode(Path(path).read_bytes())
    except OSError as exc:
        raise StartError(f"{path} can't be read: {exc.strerror or exc}") from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        raise StartError(f"{path} is not JSON: {exc}") from exc
    if not isinstance(data, dict) or MARK not in data:
        raise StartError(f"{path} is not a lock file: `gemel lock TARGET -o {path}` writes one")
    if data[MARK] != FORMAT:
        raise StartError(f"{path} has format {shorten(str(data[MARK]))}; this version of Gemel knows format {FORMAT}")
    return _Reader(str(path), data).read()


def is_lock(path: str) -> bool:
    """Whether there is a file of that name which says that it is a lock."""
    if not os.path.isfile(path):  # a pipe would wait for its other end
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(200).lstrip(b"\xef\xbb\xbf \t\r\n")
    except (OSError, ValueError):
        return False
    return head.startswith(b"{") and f'"{MARK}"'.encode() in head


class _Reader:
    """Reads the members of a lock file and checks every fingerprint."""

    def __init__(self, path: str, lock: dict[str, Any]) -> None:
        self._path = path
        self._lock = lock

    def read(self) -> Contract:
        revision, instructions = self._lock.get("revision"), self._lock.get("instructions")
        server = self._lock.get("server", {})
        if not isinstance(revision, str):
            raise self._wrong("revision", "must be the revision of the protocol, a text")
        if instructions is not None and not isinstance(instructions, str):
            raise self._wrong("instructions", "must be a text")
        try:
            msgspec.convert(server or {"name": "", "version": ""}, Implementation)
        except msgspec.ValidationError as exc:
            raise self._wrong("server", str(exc)) from exc
        sections = {of.field: self._section(of) for of in BY_SECTION.values() if of.member in self._lock}
        if self._lock.get("fingerprint") != _fingerprint(self._lock):
            raise self._wrong("fingerprint", "is not that of what the file holds: it was changed by hand or in a merge")
        return Contract(revision=revision, server=server, instructions=instructions, **sections)

    def _section(self, of: ItemList) -> dict[str, Definition]:
        entries = self._lock[of.member]
        if not isinstance(entries, dict):
            raise self._wrong(of.member, "must be an object that maps names to definitions")
        return {key: self._entry(of, key, entry) for key, entry in entries.items()}

    def _entry(self, of: ItemList, key: str, entry: object) -> Definition:
        place = f"{of.word} {shorten(key)!r}"
        if not isinstance(entry, dict) or not isinstance(entry.get("definition"), dict) or "fingerprint" not in entry:
            raise self._wrong(place, "must have a fingerprint and a definition")
        try:
            definition: Definition = plain_json(entry["definition"])
            listed_of(of, key, definition)
        except ValueError as exc:
            raise self._wrong(place, f"is not a definition: {exc}") from exc
        if entry["fingerprint"] != fingerprint(definition):
            raise self._wrong(
                place, "the fingerprint is not that of the definition: it was changed by hand or in a merge"
            )
        return definition

    def _wrong(self, place: str, reason: str) -> StartError:
        return StartError(f"{self._path}: {place}: {reason}; write the file anew with `gemel lock`")
