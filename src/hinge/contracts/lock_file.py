"""The lock file: a contract as JSON that people can read and review, written the same way every time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from hinge.contracts.canonical import fingerprint
from hinge.contracts.contract import MAX_DEPTH, SECTIONS, SINGULAR, Contract, Definition, Section, depth, listed_of
from hinge.contracts.display import escaped
from hinge.errors import StartError, shorten
from hinge.schema.base import Implementation

#: The member that tells a lock file from other JSON, and the only format there is.
MARK = "hingeLock"
FORMAT = 1
#: A larger file is refused.
MAX_BYTES = 64 * 1024 * 1024


def written(contract: Contract) -> str:
    """The text of a lock file. The same contract gives the same text, on every machine and Python.

    Characters that can't be seen or that change the order of others stand as `\\uXXXX`: what a reviewer sees is all there is.
    """
    found: dict[str, Any] = {MARK: FORMAT, "revision": contract.revision, "server": contract.server}
    if contract.instructions is not None:
        found["instructions"] = contract.instructions
    digests: dict[str, Any] = {}
    for name in SECTIONS:
        section = contract.section(name)
        if section is not None:
            entries = {key: {"fingerprint": fingerprint(one), "definition": one} for key, one in section.items()}
            found[name] = dict(sorted(entries.items()))
            digests[name] = {key: entry["fingerprint"] for key, entry in entries.items()}
    found["fingerprint"] = fingerprint({"instructions": contract.instructions, **digests})
    ordered = {MARK: FORMAT, "fingerprint": found.pop("fingerprint"), **found}
    return escaped(json.dumps(_in_order(ordered), indent=2, ensure_ascii=False)) + "\n"


def _in_order(found: dict[str, Any]) -> dict[str, Any]:
    """Definitions with their members in order; the outline of the file stays as it is."""
    return {
        word: {key: {**entry, "definition": _sorted(entry["definition"])} for key, entry in value.items()}
        if word in SECTIONS
        else _sorted(value)
        for word, value in found.items()
    }


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def read_lock(path: str | os.PathLike[str]) -> Contract:
    """The contract that a lock file holds. Raises StartError, with the place, for a file that can't be taken as it is."""
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise StartError(f"{path} is larger than {MAX_BYTES} bytes")
        found = msgspec.json.decode(Path(path).read_bytes())
    except OSError as exc:
        raise StartError(f"{path} can't be read: {exc.strerror or exc}") from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        raise StartError(f"{path} is not JSON: {exc}") from exc
    if not isinstance(found, dict) or MARK not in found:
        raise StartError(f"{path} is no lock file: `hinge lock TARGET -o {path}` writes one")
    if found[MARK] != FORMAT:
        raise StartError(f"{path} has format {shorten(str(found[MARK]))}; this version of Hinge knows format {FORMAT}")
    return _Reader(str(path), found).read()


def is_lock(path: str) -> bool:
    """Whether there is a file of that name which says that it is a lock."""
    try:
        with open(path, "rb") as file:
            head = file.read(200).lstrip(b"\xef\xbb\xbf \t\r\n")
    except (OSError, ValueError):
        return False
    return head.startswith(b"{") and f'"{MARK}"'.encode() in head


class _Reader:
    """Reads the members of a lock file and holds every fingerprint against what it is of."""

    def __init__(self, path: str, found: dict[str, Any]) -> None:
        self._path = path
        self._found = found

    def read(self) -> Contract:
        revision, instructions = self._found.get("revision"), self._found.get("instructions")
        server = self._found.get("server", {})
        if not isinstance(revision, str):
            raise self._wrong("revision", "must be the revision of the protocol, a text")
        if instructions is not None and not isinstance(instructions, str):
            raise self._wrong("instructions", "must be a text")
        try:
            msgspec.convert(server or {"name": "", "version": ""}, Implementation)
        except msgspec.ValidationError as exc:
            raise self._wrong("server", str(exc)) from exc
        tools, prompts, resources, templates = (self._section(name) for name in SECTIONS)
        digests = {
            name: {key: entry["fingerprint"] for key, entry in self._found[name].items()}
            for name in SECTIONS
            if name in self._found
        }
        if self._found.get("fingerprint") != fingerprint({"instructions": instructions, **digests}):
            raise self._wrong("fingerprint", "is not that of what the file holds: it was changed by hand or in a merge")
        return Contract(
            revision=revision,
            server=server,
            instructions=instructions,
            tools=tools,
            prompts=prompts,
            resources=resources,
            resource_templates=templates,
        )

    def _section(self, name: Section) -> dict[str, Definition] | None:
        if name not in self._found:
            return None
        if not isinstance(self._found[name], dict):
            raise self._wrong(name, "must be an object that maps names to definitions")
        return {key: self._entry(name, key, entry) for key, entry in self._found[name].items()}

    def _entry(self, section: Section, key: str, entry: Any) -> Definition:
        place = f"{SINGULAR[section]} {shorten(key)!r}"
        if not isinstance(entry, dict) or not isinstance(entry.get("definition"), dict) or "fingerprint" not in entry:
            raise self._wrong(place, "must have a fingerprint and a definition")
        definition: Definition = entry["definition"]
        if depth(definition) > MAX_DEPTH:
            raise self._wrong(place, f"is nested deeper than {MAX_DEPTH} levels")
        try:
            listed_of(section, key, definition)
        except msgspec.ValidationError as exc:
            raise self._wrong(place, f"is no definition: {exc}") from exc
        if entry["fingerprint"] != fingerprint(definition):
            raise self._wrong(
                place, "the fingerprint is not that of the definition, which was changed by hand or in a merge"
            )
        return definition

    def _wrong(self, place: str, what: str) -> StartError:
        return StartError(f"{self._path}: {place}: {what}; write the file anew with `hinge lock`")
