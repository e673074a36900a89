"""Change one member of a JSON text and keep every other byte: comments, trailing commas, layout.

The text is read into nodes with their positions; an edit inserts or cuts a piece. Each edit is read again and compared with
what it should be, so that a text is changed as intended or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from gemel.client.group.jsonc import COMMENT, JsonNode, read
from gemel.errors import StartError

_INDENTATION = re.compile(r"[ \t]*")


def get(text: str, path: Sequence[str]) -> Any:
    """Return the value at a path of keys, or None.

    Raises:
        StartError: The text is not JSON with comments, or something on the path is not an object.
    """
    value = read(text).value
    for key in path:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise StartError(f"{key!r} can't be read: what should contain it is not an object")
        value = value.get(key)
    return value


def put(text: str, path: Sequence[str], value: object) -> str:
    """Return the text with a value at a path; objects on the way are made.

    Raises:
        StartError: The text is not JSON with comments, or something on the path is not an object.
    """
    text = text if text.strip() else "{}\n"
    root = node = read(text)
    changed: Any = root.value
    for depth, key in enumerate(path, 1):
        if not isinstance(changed, dict):
            raise StartError(f"{key!r} can't be added: what should contain it is not an object")
        member = node.member(key)
        if member is None:
            for inner in reversed(path[depth:]):
                value = {inner: value}
            changed[key] = value
            return _checked(_insert(text, root, node, key, value), root.value)
        node = member.node
        if depth == len(path):
            changed[key] = value
        changed = changed[key]
    return _checked(_replace(text, root, node, value), root.value)


def cut(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at a path.

    Raises:
        StartError: There is none, or the text is not JSON with comments.
    """
    root = node = read(text)
    changed: Any = root.value
    for key in path[:-1]:
        member = node.member(key)
        if member is None:
            raise StartError(f"there is no {key!r}")
        node, changed = member.node, changed[key]
    if node.member(path[-1]) is None:
        raise StartError(f"there is no {path[-1]!r}")
    del changed[path[-1]]
    return _checked(_remove(text, node, path[-1]), root.value)


def _insert(text: str, root: JsonNode, node: JsonNode, key: str, value: object) -> str:
    """Add a member behind all others, and behind the comments that follow them."""
    newline, unit = _newline(text), _unit(text, root)
    outer = _line_indentation(text, node.start)
    inner = outer + unit
    if node.members and (own := _own_line(text, node.members[0].start)) is not None:
        inner = own
    piece = f"{newline}{inner}{json.dumps(key, ensure_ascii=False)}: {_render(value, newline + inner, unit)}"
    close, last = node.end - 1, node.members[-1] if node.members else None
    behind = node.start + 1 if last is None else last.node.end if last.comma is None else last.comma + 1
    end = max([behind, *(comment.end() for comment in COMMENT.finditer(text, behind, close))])
    head = text[:end]
    if last is not None and last.comma is None:
        head = f"{text[:behind]},{text[behind:end]}"
    elif last is not None:
        piece += ","
    tail = text[end:close]
    return head + piece + (tail if "\n" in tail else newline + outer) + text[close:]


def _replace(text: str, root: JsonNode, node: JsonNode, value: object) -> str:
    newline = _newline(text)
    rendered = _render(value, newline + _line_indentation(text, node.start), _unit(text, root))
    return text[: node.start] + rendered + text[node.end :]


def _remove(text: str, node: JsonNode, key: str) -> str:
    """Cut a member with its line; the comma before it goes if nothing else follows."""
    place = next(place for place, member in enumerate(node.members) if member.key == key)
    member = node.members[place]
    start = member.start
    if _own_line(text, start) is not None:
        start = len(text[:start].rstrip(" \t"))
        start -= len(_newline_before(text, start))
    end = member.node.end if member.comma is None else member.comma + 1
    head = text[:start]
    if member.comma is None and place:
        comma = node.members[place - 1].comma
        assert comma is not None  # between two members
        head = text[:comma] + text[comma + 1 : start]
    tail = text[end:]
    if len(node.members) == 1 and not (head[node.start + 1 :] + text[end : node.end - 1]).strip():
        return text[: node.start + 1] + text[node.end - 1 :]
    return head + tail


def _checked(edited: str, expected: object) -> str:
    if read(edited).value != expected:
        raise StartError("the file can't be changed safely: its layout is not understood")
    return edited


def _render(value: object, line: str, unit: str) -> str:
    """JSON whose further lines begin with `line`."""
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", line)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _newline_before(text: str, at: int) -> str:
    return "\r\n" if text.endswith("\r\n", 0, at) else "\n" if text.endswith("\n", 0, at) else ""


def _line_indentation(text: str, at: int) -> str:
    match = _INDENTATION.match(text, text.rfind("\n", 0, at) + 1)
    return match[0] if match else ""


def _own_line(text: str, at: int) -> str | None:
    """The indentation of what begins a line; None if something else stands before it."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before if not before.strip() and "\n" in text[:at] else None


def _unit(text: str, root: JsonNode) -> str:
    """One step of indentation: that of the first member."""
    return (_own_line(text, root.members[0].start) if root.members else "") or "  "
