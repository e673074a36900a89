"""One message per line: bytes into lines, messages into bytes (STDIO-01). Pure; it knows nothing of conversations.

A line ends at `\\n` and nowhere else; one `\\r` before it is dropped, empty lines are no messages. A line over the
limit is thrown away while it arrives: what is kept of it is a fixed piece of its head and tail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from hinge.jsonrpc import RequestId

#: How much of a line that is too long is kept, to read its id: the first bytes and the last.
HEAD = 4096
TAIL = 256

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|"|[\[\]{}:,]|[^\s"\[\]{}:,]+', re.DOTALL)
_LAST_ID = re.compile(rb'[,{]\s*"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")\s*\}\s*$', re.DOTALL)


class Overlong:
    """What is known of a discarded line: the id, if it could be found, and whether the line was an answer to us."""

    __slots__ = ("answers", "id")

    def __init__(self, head: bytes, tail: bytes) -> None:
        members = _members(head)
        self.answers = "method" not in members and ("result" in members or "error" in members)
        self.id = _request_id(members.get("id", b""))
        if self.id is None and (found := _LAST_ID.search(tail)):
            self.id = _request_id(found[1])


def _members(head: bytes) -> dict[str, bytes]:
    """The names at the top level of a JSON object that is cut off, each with its value's first token, if whole."""
    found: dict[str, bytes] = {}
    depth, name, named = 0, "", False
    for match in _TOKEN.finditer(head):
        token = match[0]
        if token == b'"':
            break
        if depth == 1 and named and match.end() < len(head):
            found.setdefault(name, token)
        if depth == 1 and not named and token.startswith(b'"'):
            name = token[1:-1].decode(errors="replace")
        named = depth == 1 and token == b":"
        depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
    return found


def _request_id(text: bytes) -> RequestId | None:
    try:
        value = msgspec.json.decode(text, type=int | str)
    except (msgspec.MsgspecError, ValueError):
        return None
    return value


class LineSplitter:
    """Turns chunks of a byte stream into lines; holds at most `limit` bytes of an unfinished one."""

    __slots__ = ("_held", "_limit", "_tail", "discarded")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        #: The last bytes of a line that is being thrown away; None when none is.
        self._tail: bytes | None = None
        #: Lines that were too long, since whoever asked last emptied it.
        self.discarded: list[Overlong] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their ends and without the empty ones."""
        if self._tail is not None:
            chunk = self._skip(chunk, self._tail)
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if self._held and lines:
            self._held += lines[0]
            lines[0] = bytes(self._held)
            self._held.clear()
        if len(chunk) > self._limit or (lines and len(lines[0]) > self._limit):
            lines = [line for line in lines if self._fits(line)]
        if rest:
            self._held += rest
            if len(self._held) > self._limit + 1:
                self._tail = bytes(self._held[-TAIL:])
                del self._held[HEAD:]
        return [line[:-1] if line.endswith(b"\r") else line for line in lines if line not in (b"", b"\r")]

    def end(self) -> bytes | None:
        """At the end of the stream: the last line, if it has no end of its own."""
        if self._tail is not None:
            self._give_up(self._tail)
        line, self._held = bytes(self._held), bytearray()
        return line if line.strip() and self._fits(line) else None

    def _fits(self, line: bytes) -> bool:
        if len(line) <= self._limit or (len(line) == self._limit + 1 and line.endswith(b"\r")):
            return True
        self.discarded.append(Overlong(line[:HEAD], line[-TAIL:]))
        return False

    def _skip(self, chunk: bytes, tail: bytes) -> bytes:
        """Throw away up to the end of the line; what follows it."""
        end = chunk.find(b"\n")
        if end < 0:
            self._tail = (tail + chunk[-TAIL:])[-TAIL:]
            return b""
        self._give_up((tail + chunk[max(0, end - TAIL) : end])[-TAIL:])
        return chunk[end + 1 :]

    def _give_up(self, tail: bytes) -> None:
        self.discarded.append(Overlong(bytes(self._held), tail))
        self._held.clear()
        self._tail = None


def one_line(data: bytes) -> bytes:
    """A JSON text without line breaks. They can only stand between its tokens: inside a string they are escaped."""
    if b"\n" in data or b"\r" in data:
        return data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


def join_lines(messages: Iterable[bytes]) -> bytes:
    """Several one-line messages as they go on the wire."""
    return b"\n".join([*messages, b""])
