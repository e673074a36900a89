"""JSON with comments and trailing commas, as VS Code and Zed write it: values with their positions in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from gemel.errors import StartError

COMMENT = re.compile(r"//[^\r\n]*|/\*[\s\S]*?\*/")
_BLANK = re.compile(rf"(?:\s+|{COMMENT.pattern})*")
_DECODER = json.JSONDecoder(strict=False)


class JsonNode(NamedTuple):
    """A value: where it begins and ends, and of an object its members."""

    start: int
    end: int
    value: Any
    members: Sequence[JsonMember] = ()

    def member(self, key: str) -> JsonMember | None:
        """The member of that key. Raises StartError if it is there twice."""
        members = [member for member in self.members if member.key == key]
        if len(members) > 1:
            raise StartError(f"{key!r} is there twice")
        return members[0] if members else None


class JsonMember(NamedTuple):
    """A member of an object: where its key begins, its value, and the comma behind it."""

    key: str
    start: int
    node: JsonNode
    comma: int | None


class MalformedJson(StartError):
    """A text that is not JSON with comments.

    Attributes:
        line: The line of the mistake, from 1.
        column: Its column, from 1.
        what: What is wrong there.
    """

    def __init__(self, text: str, at: int, what: str) -> None:
        self.line, self.column, self.what = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at), what
        super().__init__(f"line {self.line}, column {self.column}: not JSON: {what}")


def read(text: str) -> JsonNode:
    """Read JSON with comments and trailing commas; an empty text is an empty object.

    Raises:
        MalformedJson: It is something else.
    """
    if not text.strip():
        return JsonNode(0, len(text), {})
    try:
        node = _value(text, _skip(text, 0))
    except RecursionError:
        raise MalformedJson(text, 0, "nested too deeply") from None
    end = _skip(text, node.end)
    if end != len(text):
        raise MalformedJson(text, end, "expected the end")
    return node


def _skip(text: str, at: int) -> int:
    """The position of the next token."""
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int) -> JsonNode:
    if text.startswith("{", at):
        return _object(text, at)
    if text.startswith("[", at):
        values, end = [], _skip(text, at + 1)
        while not text.startswith("]", end):
            item = _value(text, end)
            values.append(item.value)
            end, _ = _separator(text, item.end, "]")
        return JsonNode(at, end + 1, values)
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as exc:
        raise MalformedJson(text, exc.pos, "expected a value" if exc.pos >= at else exc.msg) from None
    return JsonNode(at, end, value)


def _object(text: str, at: int) -> JsonNode:
    members: list[JsonMember] = []
    end = _skip(text, at + 1)
    while not text.startswith("}", end):
        if not text.startswith('"', end):
            raise MalformedJson(text, end, "expected a key in quotes")
        key = _value(text, end)
        colon = _skip(text, key.end)
        if not text.startswith(":", colon):
            raise MalformedJson(text, colon, "expected ':'")
        node = _value(text, _skip(text, colon + 1))
        start = end
        end, comma = _separator(text, node.end, "}")
        members.append(JsonMember(key.value, start, node, comma))
    return JsonNode(at, end + 1, {member.key: member.node.value for member in members}, members)


def _separator(text: str, at: int, close: str) -> tuple[int, int | None]:
    """Skip the comma behind an item; there need be none before the end."""
    end = _skip(text, at)
    if text.startswith(",", end):
        return _skip(text, end + 1), end
    if not text.startswith(close, end):
        raise MalformedJson(text, end, f"expected ',' or '{close}'")
    return end, None
