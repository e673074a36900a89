"""Reads results of which a part is not valid: the part is left out and noted, and the rest is used.

A result without any valid item is not valid: nothing would tell it from an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import Raw

from gemel.protocol.deviations import Deviations, Note
from gemel.schema.completion import CompleteResult, Completion
from gemel.schema.content import BLOCKS, ResourceContents
from gemel.schema.lifecycle import InitializeResult, ServerCapabilities
from gemel.schema.methods import LISTS
from gemel.schema.prompts import GetPromptResult, Prompt, PromptArgument, PromptMessage
from gemel.schema.resources import ReadResourceResult
from gemel.schema.tools import CallToolResult

_members = msgspec.json.Decoder(dict[str, Raw])
_items = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)

#: Members that people or models read, that describe other members, or that let a result be kept: nothing is wrong without
#: them. A result without `cacheScope` is kept for its caller only, and an argument of a prompt without `required` is optional.
_DISPENSABLE = frozenset(
    {"annotations", "icons", "title", "description", "_meta", "execution", "size", "ttlMs", "cacheScope", "required"}
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


def salvage(raw: Raw, kind: Any, decode: Callable[[Raw], Any], deviations: Deviations, uri: str = "") -> Any:
    """Read a result without what is not valid in it, and note that.

    Args:
        raw: The result.
        kind: Its type.
        decode: Reads the type.
        deviations: Takes the notes.
        uri: The URI that was asked for, if any.

    Returns:
        The result.

    Raises:
        msgspec.MsgspecError: It is not valid in another part, or no item is.
    """
    of = _LISTS.get(kind)
    members = _members.decode(raw)
    if kind is CompleteResult and "completion" in members:
        return _salvage_completion(members, decode, deviations)
    if of is None or (of.member not in members and "structuredContent" not in members):
        return decode(raw)
    notes: list[tuple[str, str]] = []
    if of.member not in members:
        notes.append(("content-missing", ""))
        members[of.member] = Raw(b"[]")
    elif _is_null(members[of.member]):
        notes.append(("null-list", of.member))
        members[of.member] = Raw(b"[]")
    items = _listed(members[of.member], kind, notes)
    if uri and kind is ReadResourceResult and len(items) == 1:
        items[0] = _with_uri(items[0], uri, notes)
    usable: list[Raw] = []
    for item in items:
        try:
            usable.append(_usable(item, of.item, notes))
        except (msgspec.MsgspecError, RecursionError) as exc:
            notes.append((of.deviation, f"{exc}: {_start(item)}"))
    if items and not usable and "structuredContent" not in members:
        return decode(raw)
    members[of.member] = Raw(msgspec.json.encode(usable))
    notes += _drop_invalid(members, kind)
    result = decode(Raw(msgspec.json.encode(members)))
    for name, detail in notes:
        deviations.note(name, detail)
    return result


def _listed(value: Raw, kind: Any, notes: list[tuple[str, str]]) -> list[Raw]:
    """The items of a list, or the one in place of it: a block or a text of a tool, the contents of a resource.

    A message of a prompt that has several blocks becomes several messages.
    """
    if kind not in (CallToolResult, ReadResourceResult, GetPromptResult):
        return _items.decode(value)
    begin = bytes(memoryview(value)[:1])
    if begin == b"{" and kind is not GetPromptResult:
        notes.append(("content-form", _start(value)))
        return [value]
    if begin == b'"' and kind is CallToolResult:
        notes.append(("content-form", _start(value)))
        return [_text_block(value)]
    items = _items.decode(value)
    return items if kind is not GetPromptResult else [one for item in items for one in _messages(item, notes)]


def _messages(item: Raw, notes: list[tuple[str, str]]) -> list[Raw]:
    """A message of a prompt as one or several messages of one block each."""
    try:
        members = _members.decode(item)
        content = members["content"]
        begin = bytes(memoryview(content)[:1])
        if begin not in (b"[", b'"'):
            return [item]
        blocks = [_text_block(content)] if begin == b'"' else _items.decode(content)
    except (msgspec.MsgspecError, KeyError):
        return [item]
    notes.append(("content-form", _start(content)))
    return [Raw(msgspec.json.encode({**members, "content": block})) for block in blocks]


def _text_block(text: Raw) -> Raw:
    return Raw(b'{"type":"text","text":' + bytes(text) + b"}")


def _with_uri(item: Raw, uri: str, notes: list[tuple[str, str]]) -> Raw:
    """The only contents of a resource with the URI that was asked for, if they have none."""
    try:
        members = _members.decode(item)
    except msgspec.MsgspecError:
        return item
    if not _is_null(members.get("uri", Raw(b"null"))) or members.keys().isdisjoint(("text", "blob")):
        return item
    notes.append(("uri-missing", _start(item)))
    return Raw(msgspec.json.encode({**members, "uri": uri}))


def _salvage_completion(members: dict[str, Raw], decode: Callable[[Raw], Any], deviations: Deviations) -> Any:
    """Read suggestions, of which all but the values may be left out."""
    notes: list[tuple[str, str]] = []
    is_null = _is_null(members["completion"])
    found = {"values": Raw(b"null")} if is_null else _members.decode(members["completion"])
    if "values" in found and _is_null(found["values"]):
        notes.append(("null-list", "completion"))
        found["values"] = Raw(b"[]")
    members["completion"] = _without_invalid(Raw(msgspec.json.encode(found)), Completion, "completion.", notes)
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


def _start(value: Raw) -> str:
    """The start of what was sent, for a note."""
    return bytes(memoryview(value)[:200]).decode("utf-8", "replace")


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
    if kind is Prompt and "arguments" in members:
        arguments = [_usable(argument, PromptArgument, notes) for argument in _items.decode(members["arguments"])]
        members["arguments"] = Raw(msgspec.json.encode(arguments))
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
