"""JSON with comments and trailing commas, as VS Code and Zed write it: values with their positions in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from hinge.errors import StartError

COMMENT = re.compile(r"//[^\r\n]*|/\*[\s\S]*?\*/")
_BLANK = re.compile(rf"(?:\s+|{COMMENT.pattern})*")
_DECODER = json.JSONDecoder(strict=False)


class Node(NamedTuple):
    """A value: where it begins and ends, and of an object its members."""

    start: int
    end: int
    value: Any
    members: Sequence[Member] = ()

    def member(self, key: str) -> Member | None:
        """The member of that key. Raises StartError if it is there twice."""
        members = [member for member in self.members if member.key == key]
        if len(members) > 1:
            raise StartError(f"{key!r} is there twice")
        return members[0] if members else None


class Member(NamedTuple):
    """A member of an object: where its key begins, its value, and the comma behind it."""

    key: str
    start: int
    node: Node
    comma: int | None


def read(text: str) -> Node:
    """Read JSON with comments and trailing commas; an empty text is an empty object.

    Raises:
        StartError: It is something else; the error has line and column.
    """
    if not text.strip():
        return Node(0, len(text), {})
    try:
        node = _value(text, _skip(text, 0))
        end = _skip(text, node.end)
        if end != len(text):
            raise _Malformed(end, "expected the end")
    except _Malformed as exc:
        line, column = text.count("\n", 0, exc.at) + 1, exc.at - text.rfind("\n", 0, exc.at)
        raise StartError(f"line {line}, column {column}: not JSON: {exc.what}") from None
    except RecursionError:
        raise StartError("nested too deeply") from None
    return node


class _Malformed(Exception):
    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at, self.what = at, what


def _skip(text: str, at: int) -> int:
    """The position of the next token."""
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int) -> Node:
    if text.startswith("{", at):
        return _object(text, at)
    if text.startswith("[", at):
        values, end = [], _skip(text, at + 1)
        while not text.startswith("]", end):
            item = _value(text, end)
            values.append(item.value)
            end, _ = _separator(text, item.end, "]")
        return Node(at, end + 1, values)
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as exc:
        raise _Malformed(exc.pos, "expected a value" if exc.pos >= at else exc.msg) from None
    return Node(at, end, value)


def _object(text: str, at: int) -> Node:
    members: list[Member] = []
    end = _skip(text, at + 1)
    while not text.startswith("}", end):
        if not text.startswith('"', end):
            raise _Malformed(end, "expected a key in quotes")
        key = _value(text, end)
        colon = _skip(text, key.end)
        if not text.startswith(":", colon):
            raise _Malformed(colon, "expected ':'")
        node = _value(text, _skip(text, colon + 1))
        start = end
        end, comma = _separator(text, node.end, "}")
        members.append(Member(key.value, start, node, comma))
    return Node(at, end + 1, {member.key: member.node.value for member in members}, members)


def _separator(text: str, at: int, close: str) -> tuple[int, int | None]:
    """Skip the comma behind an item; there need be none before the end."""
    end = _skip(text, at)
    if text.startswith(",", end):
        return _skip(text, end + 1), end
    if not text.startswith(close, end):
        raise _Malformed(end, f"expected ',' or '{close}'")
    return end, None
