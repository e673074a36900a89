"""Reads results of which a part is not valid: the part is left out and noted, and the rest is used.

A result without any valid item is not valid: nothing would tell it from an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from gemel.protocol.deviations import Deviations
from gemel.schema.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from gemel.schema.prompts import GetPromptResult, ListPromptsResult, Prompt, PromptMessage
from gemel.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from gemel.schema.tools import CallToolResult, ListToolsResult, Tool

_members = msgspec.json.Decoder(dict[str, Raw])
_items = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)

#: Members that people or models read, that describe other members, or that let a result be kept: nothing is wrong without
#: them. A result without `cacheScope` is kept for its caller only.
_DISPENSABLE = frozenset(
    {"annotations", "icons", "title", "description", "_meta", "execution", "size", "ttlMs", "cacheScope"}
)

_BLOCKS: Mapping[str, type] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource_link": ResourceLink,
    "resource": EmbeddedResource,
}


class _ItemList(NamedTuple):
    """The list in a result, the type of its items (None for content blocks), and how one that is left out is noted."""

    member: str
    item: type | None
    deviation: str


_LISTS: Mapping[Any, _ItemList] = {
    ListToolsResult: _ItemList("tools", Tool, "item-left-out"),
    ListPromptsResult: _ItemList("prompts", Prompt, "item-left-out"),
    ListResourcesResult: _ItemList("resources", Resource, "item-left-out"),
    ListResourceTemplatesResult: _ItemList("resourceTemplates", ResourceTemplate, "item-left-out"),
    ReadResourceResult: _ItemList("contents", ResourceContents, "item-left-out"),
    GetPromptResult: _ItemList("messages", PromptMessage, "block-left-out"),
    CallToolResult: _ItemList("content", None, "block-left-out"),
}


def salvage(raw: Raw, kind: Any, decode: Callable[[Raw], Any], deviations: Deviations) -> Any:
    """Read a result without what is not valid in it, and note that.

    Args:
        raw: The result.
        kind: Its type.
        decode: Reads the type.
        deviations: Takes the notes.

    Returns:
        The result.

    Raises:
        msgspec.MsgspecError: It is not valid in another part, or no item is.
    """
    of = _LISTS.get(kind)
    members = _members.decode(raw)
    if of is None or (of.member not in members and "structuredContent" not in members):
        return decode(raw)
    notes: list[tuple[str, str]] = []
    if of.member not in members:
        notes.append(("content-missing", ""))
        members[of.member] = Raw(b"[]")
    items = _items.decode(members[of.member])
    usable: list[Raw] = []
    for item in items:
        try:
            usable.append(_usable(item, of.item, notes))
        except (msgspec.MsgspecError, RecursionError) as exc:
            notes.append((of.deviation, f"{exc}: {bytes(memoryview(item)[:200]).decode('utf-8', 'replace')}"))
    if items and not usable and "structuredContent" not in members:
        return decode(raw)
    members[of.member] = Raw(msgspec.json.encode(usable))
    notes += _drop_invalid(members, kind)
    result = decode(Raw(msgspec.json.encode(members)))
    for name, detail in notes:
        deviations.note(name, detail)
    return result


def _usable(item: Raw, kind: type | None, notes: list[tuple[str, str]]) -> Raw:
    """An item without dispensable members that are not valid. Raises MsgspecError for one that is not valid without them."""
    if kind is None:
        members = _members.decode(item)
        kind = _BLOCKS.get(_text.decode(members.get("type", b"")))
        if kind is None:
            raise msgspec.ValidationError("The type of the block is not known")
    try:
        msgspec.json.decode(item, type=kind)
        return item
    except msgspec.ValidationError:
        members = _members.decode(item)
    if kind is PromptMessage and "content" in members:
        members["content"] = _usable(members["content"], None, notes)
    dropped = _drop_invalid(members, kind)
    text = msgspec.json.encode(members)
    msgspec.json.decode(text, type=kind)
    notes += dropped
    return Raw(text)


def _drop_invalid(members: dict[str, Raw], kind: type) -> list[tuple[str, str]]:
    """Drop dispensable members that are not valid. Returns how that is noted."""
    dropped: list[tuple[str, str]] = []
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        if name not in _DISPENSABLE or name not in members:
            continue
        try:
            msgspec.json.decode(members[name], type=field.type)
        except msgspec.ValidationError as exc:
            dropped.append(("member-left-out", f"{name}: {exc}"))
            del members[name]
    return dropped
