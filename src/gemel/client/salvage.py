"""Reads results of which a part is not valid: the part is left out and noted, and the rest is used.

A result without any valid item is not valid: nothing would tell it from an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import Raw

from gemel.protocol.deviations import Deviations, Note
from gemel.schema.content import BLOCKS, ResourceContents
from gemel.schema.lifecycle import InitializeResult, ServerCapabilities
from gemel.schema.methods import LISTS
from gemel.schema.prompts import GetPromptResult, PromptMessage
from gemel.schema.resources import ReadResourceResult
from gemel.schema.tools import CallToolResult

_members = msgspec.json.Decoder(dict[str, Raw])
_items = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)

#: Members that people or models read, that describe other members, or that let a result be kept: nothing is wrong without
#: them. A result without `cacheScope` is kept for its caller only.
_DISPENSABLE = frozenset(
    {"annotations", "icons", "title", "description", "_meta", "execution", "size", "ttlMs", "cacheScope"}
)


class _ItemList(NamedTuple):
    """The list in a result, the type of its items (None for content blocks), and how one that is left out is noted."""

    member: str
    item: type | None
    deviation: str


_LISTS: Mapping[Any, _ItemList] = {
    **{of.result: _ItemList(of.member, of.item, "item-left-out") for of in LISTS.values()},
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
    elif _is_null(members[of.member]):
        notes.append(("null-list", of.member))
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


def salvage_opening(raw: Raw, kind: object, note: Note) -> Raw:
    """Leave optional members that are not valid out of the answer to `initialize` or `server/discover`.

    The name and the version of a server are for display only: they are empty texts where they are missing or not valid.

    Args:
        raw: The result, which is not valid.
        kind: Its type.
        note: Takes the notes, if the rest is valid.

    Returns:
        The rest, or the result as it is if it is not an object.
    """
    notes: list[tuple[str, str]] = []
    try:
        rest = _without_invalid(raw, kind, "", notes)
        if kind is InitializeResult:
            rest = _with_identity(rest, notes)
        msgspec.json.decode(rest, type=kind)
    except msgspec.MsgspecError:
        return raw
    for name, detail in notes:
        note(name, detail)
    return rest


def _without_invalid(raw: Raw, kind: Any, place: str, notes: list[tuple[str, str]]) -> Raw:
    """An object without optional members that are not valid, at any depth. A capability that is true has no details."""
    members = _members.decode(raw)
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        if name not in members or name == "resultType":
            continue
        try:
            msgspec.json.decode(members[name], type=field.type)
            continue
        except msgspec.ValidationError as exc:
            left_out = ("member-left-out", f"{place}{name}: {exc}")
        value = bytes(memoryview(members[name])).strip()
        inner = next((one for one in (field.type, *get_args(field.type)) if hasattr(one, "__struct_fields__")), None)
        if inner is not None and value.startswith(b"{"):
            members[name] = _without_invalid(members[name], inner, f"{place}{name}.", notes)
            continue
        if kind is ServerCapabilities and value == b"true":
            members[name] = Raw(b"{}")
        elif not field.required:
            del members[name]
        notes.append(left_out)
    return Raw(msgspec.json.encode(members))


def _with_identity(raw: Raw, notes: list[tuple[str, str]]) -> Raw:
    """An answer to `initialize` whose `serverInfo` has a name and a version."""
    members = _members.decode(raw)
    try:
        identity = _members.decode(members["serverInfo"])
    except (KeyError, msgspec.ValidationError):
        identity = {}
    for name in ("name", "version"):
        try:
            _text.decode(identity[name])
        except (KeyError, msgspec.ValidationError):
            identity[name] = Raw(b'""')
            if not any(detail.startswith("serverInfo") for _, detail in notes):
                notes.append(("member-left-out", f"serverInfo.{name}: it is missing"))
    members["serverInfo"] = Raw(msgspec.json.encode(identity))
    return Raw(msgspec.json.encode(members))


def _is_null(value: Raw) -> bool:
    return bytes(memoryview(value)).strip() == b"null"


def _usable(item: Raw, kind: type | None, notes: list[tuple[str, str]]) -> Raw:
    """An item without dispensable members that are not valid. Raises MsgspecError for one that is not valid without them."""
    if kind is None:
        members = _members.decode(item)
        kind = BLOCKS.get(_text.decode(members.get("type", b"")))
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
        if name not in members or not (name in _DISPENSABLE or (not field.required and _is_null(members[name]))):
            continue
        try:
            msgspec.json.decode(members[name], type=field.type)
        except msgspec.ValidationError as exc:
            dropped.append(("member-left-out", f"{name}: {exc}"))
            del members[name]
    return dropped
