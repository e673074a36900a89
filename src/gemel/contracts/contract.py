"""What a server offers, in a form in which only what matters differs: definitions of tools, prompts and resources.

Knows the types of the listings and how older revisions see them; asks no server and reads no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from gemel.contracts.canonical import canonical
from gemel.contracts.json_schema import normal
from gemel.errors import InvalidResponse, shorten
from gemel.protocol.revisions.adapt import shape
from gemel.schema.base import RESERVED, Implementation, Model
from gemel.schema.methods import BY_SECTION, ItemList, Section
from gemel.schema.prompts import Prompt
from gemel.schema.tools import Tool

Definition: TypeAlias = dict[str, Any]

#: The sections in the order of a lock file.
SECTIONS: tuple[Section, ...] = tuple(BY_SECTION)
_BY_TYPE: Mapping[type[Model], ItemList] = {of.item: of for of in BY_SECTION.values()}
_to_json = msgspec.json.Encoder(order="sorted").encode
#: A definition that is nested deeper is refused.
MAX_DEPTH = 100
#: What a hint means that isn't there.
HINTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """What a server offers, as `fetch_contract(client)` found it or a lock file holds it.

    A section that is None was not listed, and is never compared.
    """

    #: The revision in which it was listed.
    revision: str
    #: What the server says about itself: its name, version and capabilities.
    server: Definition = {}
    #: The instructions of the server.
    instructions: str | None = None
    #: Tools by name.
    tools: dict[str, Definition] | None = None
    #: Prompts by name.
    prompts: dict[str, Definition] | None = None
    #: Resources by URI.
    resources: dict[str, Definition] | None = None
    #: Resource templates by their text.
    resource_templates: dict[str, Definition] | None = None

    def section(self, name: Section) -> dict[str, Definition] | None:
        """The definitions of one section.

        Args:
            name: "tools", "prompts", "resources" or "resourceTemplates".

        Returns:
            The definitions by name or URI; None if the server has no such feature.
        """
        by_name: dict[str, Definition] | None = getattr(self, BY_SECTION[name].field)
        return by_name

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
            of.field: {key: definition_of(listed_of(of, key, one), revision) for key, one in by_name.items()}
            for name, of in BY_SECTION.items()
            if (by_name := self.section(name)) is not None
        }
        server = identity(msgspec.convert(self.server, Implementation), revision) if self.server else {}
        return msgspec.structs.replace(self, revision=revision, server=server, **sections)


def identity(info: Implementation | None, revision: str) -> Definition:
    """Return who a server says it is."""
    return {} if info is None else _members(info, revision)


def definitions(section: Section, listed: Iterable[Model], revision: str) -> dict[str, Definition]:
    """Return the section of a contract for the items of a list.

    Raises:
        InvalidResponse: One name has two different definitions, or a definition is nested too deep.
    """
    by_key: dict[str, Definition] = {}
    for item in listed:
        key, definition = key_of(item), definition_of(item, revision)
        if by_key.setdefault(key, definition) != definition:
            raise InvalidResponse(f"The server lists two different {section} called {shorten(key)!r}")
    return by_key


def key_of(item: Model) -> str:
    """Return the name or URI by which an item is known."""
    return _BY_TYPE[type(item)].key_of(item)


def definition_of(item: Model, revision: str) -> Definition:
    """Return the members of an item in a revision, without its key and without what may differ any time.

    Left out are `execution` of tools, `size` and `lastModified` of resources, hints with their default value, members of
    `_meta` that the protocol or Gemel adds, and what is empty.

    Raises:
        InvalidResponse: The item is nested too deep.
    """
    try:
        definition = _members(item, revision)
    except ValueError as exc:
        raise InvalidResponse(f"{type(item).__name__} {shorten(key_of(item))!r} {exc}") from exc
    for word in (_BY_TYPE[type(item)].key, "execution", "size"):
        definition.pop(word, None)
    _keep(definition, "annotations", lambda name, value: name != "lastModified" and HINTS.get(name) is not value)
    _keep(definition, "_meta", lambda name, value: not name.startswith((RESERVED, "gemel/")))
    if isinstance(item, Tool):
        schema = normal(definition["inputSchema"])
        definition["inputSchema"] = schema if isinstance(schema, dict) else {} if schema else {"not": True}
        if "outputSchema" in definition:
            definition["outputSchema"] = normal(definition["outputSchema"])
    if isinstance(item, Prompt) and "arguments" in definition:
        arguments = definition["arguments"]
        required = [{word: value for word, value in one.items() if value is not False} for one in arguments]
        definition["arguments"] = sorted(required, key=canonical)
    return definition


def listed_of(of: ItemList, key: str, definition: Definition) -> Model:
    """Return the item that a definition came from. Raises ValueError for one that is not a definition."""
    return msgspec.convert({of.key: key, **definition}, of.item)


def _members(value: object, revision: str) -> Definition:
    """The members of a protocol type, without empty ones."""
    members: Definition = plain_json(msgspec.to_builtins(shape(value, revision)))
    return {word: member for word, member in members.items() if member not in ([], {}) or word == "inputSchema"}


def _keep(definition: Definition, word: str, condition: Callable[[str, Any], bool]) -> None:
    """Keep some members of a member, and itself only if there are any."""
    members = {name: value for name, value in definition.pop(word, {}).items() if condition(name, value)}
    if members:
        definition[word] = members


def plain_json(value: object, level: int = 1) -> Any:
    """Return a JSON value in which equal numbers have one form. Raises ValueError if it is nested too deep."""
    if level > MAX_DEPTH:
        raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {name: plain_json(member, level + 1) for name, member in value.items()}
    if isinstance(value, list):
        return [plain_json(item, level + 1) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def same(one: object, other: object) -> bool:
    """Return whether two values of definitions are the same JSON."""
    return _to_json(one) == _to_json(other)
