"""What a server offers, in a form in which only what matters differs: definitions of tools, prompts and resources.

Knows the types of the listings and how older revisions see them; asks no server and reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from hinge.contracts.canonical import canonical
from hinge.contracts.json_schema import normal
from hinge.errors import InvalidResponse, shorten
from hinge.protocol.revisions.adapt import shape
from hinge.schema.base import RESERVED, Implementation
from hinge.schema.prompts import Prompt
from hinge.schema.resources import Resource, ResourceTemplate
from hinge.schema.tools import Tool

Section: TypeAlias = Literal["tools", "prompts", "resources", "resourceTemplates"]
Listed: TypeAlias = Tool | Prompt | Resource | ResourceTemplate
Definition: TypeAlias = dict[str, Any]

SECTIONS: tuple[Section, ...] = get_args(Section)
#: What the entries of a section are, by which member they are known, and what one is called.
_TYPES: Mapping[Section, type[Listed]] = {
    "tools": Tool,
    "prompts": Prompt,
    "resources": Resource,
    "resourceTemplates": ResourceTemplate,
}
_KEYS: Mapping[Section, str] = {
    "tools": "name",
    "prompts": "name",
    "resources": "uri",
    "resourceTemplates": "uriTemplate",
}
SINGULAR: Mapping[Section, str] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "resourceTemplates": "resource template",
}
#: A definition that is nested deeper is refused.
MAX_DEPTH = 100
#: What a hint means that isn't there.
HINTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """What a server offers, as `fetch_contract(client)` found it or a lock file holds it.

    `revision` is that of the conversation in which it was listed. Each section maps names (of resources their URIs, of
    templates their text) to definitions; a section that is None was not looked at, and is never compared.
    """

    revision: str
    server: Definition = {}
    instructions: str | None = None
    tools: dict[str, Definition] | None = None
    prompts: dict[str, Definition] | None = None
    resources: dict[str, Definition] | None = None
    resource_templates: dict[str, Definition] | None = None

    def section(self, name: Section) -> dict[str, Definition] | None:
        """The definitions of one section.

        Args:
            name: "tools", "prompts", "resources" or "resourceTemplates".

        Returns:
            The definitions by name or URI; None if the server has no such feature.
        """
        found: dict[str, Definition] | None = getattr(self, "resource_templates" if name.endswith("tes") else name)
        return found

    def seen_in(self, revision: str) -> Contract:
        """The contract as clients of an older revision see it.

        Args:
            revision: A protocol revision.

        Returns:
            The contract without what that revision doesn't have; itself if it is of that revision or older.
        """
        if revision >= self.revision:
            return self
        sections = {
            "resource_templates" if name == "resourceTemplates" else name: {
                key: definition_of(listed_of(name, key, definition), revision) for key, definition in found.items()
            }
            for name in SECTIONS
            if (found := self.section(name)) is not None
        }
        server = identity(msgspec.convert(self.server, Implementation), revision) if self.server else {}
        return msgspec.structs.replace(self, revision=revision, server=server, **sections)


def identity(info: Implementation | None, revision: str) -> Definition:
    """Who a server says it is."""
    return {} if info is None else _written(shape(info, revision))


def definitions(section: Section, listed: Iterable[Listed], revision: str) -> dict[str, Definition]:
    """The section of a contract for what was listed. Raises InvalidResponse if one name has two definitions."""
    found: dict[str, Definition] = {}
    for item in listed:
        key, definition = key_of(item), definition_of(item, revision)
        if found.setdefault(key, definition) != definition:
            raise InvalidResponse(f"The server lists two different {section} called {shorten(key)!r}")
    return found


def key_of(item: Listed) -> str:
    """What an entry is known by."""
    if isinstance(item, Tool | Prompt):
        return item.name
    return item.uri if isinstance(item, Resource) else item.uri_template


def definition_of(item: Listed, revision: str) -> Definition:
    """What a listed entry says, in the words of a revision, without its key and without what may differ any time.

    Left out are `execution` of tools, `size` and `lastModified` of resources, hints that say what holds anyway, members of
    `_meta` that the protocol or Hinge adds, and what is empty. Raises InvalidResponse for what is nested too deep.
    """
    found = _written(shape(item, revision))
    key = found.pop(_KEYS[_section_of(item)])
    if depth(found) > MAX_DEPTH:
        raise InvalidResponse(f"{type(item).__name__} {shorten(key)!r} is nested deeper than {MAX_DEPTH} levels")
    for word in ("execution", "size"):
        found.pop(word, None)
    _tidy(found, "annotations", lambda name, value: name != "lastModified" and HINTS.get(name) is not value)
    _tidy(found, "_meta", lambda name, value: not name.startswith((RESERVED, "hinge/")))
    if isinstance(item, Tool):
        schema = normal(found["inputSchema"])
        found["inputSchema"] = schema if isinstance(schema, dict) else {} if schema else {"not": True}
        if "outputSchema" in found:
            found["outputSchema"] = normal(found["outputSchema"])
    if isinstance(item, Prompt) and "arguments" in found:
        given = [{word: value for word, value in one.items() if value is not False} for one in found["arguments"]]
        found["arguments"] = sorted(given, key=canonical)
    return found


def listed_of(section: Section, key: str, definition: Definition) -> Listed:
    """The entry that a definition came from. Raises ValueError for one that is no definition."""
    return msgspec.convert({_KEYS[section]: key, **definition}, _TYPES[section])


def _section_of(item: Listed) -> Section:
    return next(section for section, kind in _TYPES.items() if isinstance(item, kind))


def _written(value: Any) -> Definition:
    found: Definition = msgspec.to_builtins(value)
    return {word: one for word, one in found.items() if one not in ([], {}) or word == "inputSchema"}


def _tidy(found: Definition, word: str, keep: Any) -> None:
    """Drop members of a member, and it itself when nothing is left."""
    if word in found:
        found[word] = {name: value for name, value in found[word].items() if keep(name, value)}
        if not found[word]:
            del found[word]


def depth(value: Any) -> int:
    """How deep a JSON value is nested."""
    deepest, left = 0, [(value, 1)]
    while left:
        item, level = left.pop()
        deepest = max(deepest, level)
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        left.extend((one, level + 1) for one in inner)
    return deepest
