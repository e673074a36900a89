"""The form of a request's head: what stays the same in the requests of one connection, and where values vary.

A client sends the same headers in the same order with request after request, and of most of them the same values. Two heads that
the parser has read give the form; a third one that has it is read without the parser. So the bytes between the values are the same
that the parser took, and a value is only taken from the bytes if it means to HTTP what the values before it meant: nothing.
"""

from __future__ import annotations

from typing import Any

from gemel.http1.asgi import Scope

#: The most bytes of a head that has a form.
HEAD_BYTES = 4096
#: Headers whose values the parser acts on, or the server: they are the same in all heads of a form.
_FRAMING = frozenset(
    {
        *(b"connection", b"expect", b"host", b"http2-settings", b"keep-alive", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
#: Bytes that the parser takes in a value.
_TEXT = bytes([9, *range(0x20, 0x7F), *range(0x80, 0x100)])
#: More digits make no length of a body that is read at once.
_DIGITS = 6


class HeadForm:
    """The form of the heads of one connection. One that was made of one head reads none; see `joined`.

    Attributes:
        scope: The ASGI scope of the requests, without their headers.
        varying: The headers whose values vary.
        most: The most bytes of a head that has a form.
        judgement: What the application decided about the heads. It may set this if that depends on nothing that varies.
    """

    __slots__ = ("_first", "_headers", "_length", "_rest", "judgement", "scope", "varying")

    most = HEAD_BYTES

    def __init__(self, scope: Scope) -> None:
        """Make a form of the head of a request that the parser has read.

        Args:
            scope: The ASGI scope of the request, as the parser gave it.
        """
        self.scope = {**scope, "headers": None}
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.varying: frozenset[bytes] = frozenset()
        self.judgement: Any = None
        #: The bytes before the first value that varies, and those behind each of them, with the number and the name of its
        #: header. Empty until it is known what varies.
        self._first = b""
        self._rest: tuple[tuple[bytes, int, int, bytes], ...] = ()
        #: Which of them is the length of the body.
        self._length = 0

    def joined(self, head: bytes, scope: Scope) -> HeadForm:
        """Return the form of these heads and one more: what differs between them varies.

        Args:
            head: The bytes of a head that the parser has read, too, up to its empty line.
            scope: The ASGI scope of its request, as the parser gave it.
        """
        form = HeadForm(scope)
        before, after = self._headers, form._headers
        names = [name for name, _ in after]
        if len(set(names)) != len(names):
            return form
        if self.scope != form.scope or names != [name for name, _ in before] or b"content-length" not in names:
            return form
        varying = {number for _, number, _, _ in self._rest}
        varying |= {
            number for number, name in enumerate(names) if name == b"content-length" or before[number] != after[number]
        }
        if _FRAMING.isdisjoint(names[number] for number in varying):
            form._take_apart(head, varying)
        return form

    def _take_apart(self, head: bytes, varying: set[int]) -> None:
        """Find the values that vary in the bytes of the head, unless it is written in an unusual way."""
        target, *lines, _, _ = head.split(b"\r\n")
        if len(lines) != len(self._headers):
            return
        pieces, piece, places = [], target, []
        for number, (line, (name, value)) in enumerate(zip(lines, self._headers, strict=True)):
            written, _, text = line.partition(b":")
            if written.lower() != name or text.strip(b" \t") != value or not line.endswith(value):
                return
            piece += b"\r\n" + line
            if number in varying:
                pieces.append(piece[: len(piece) - len(value)])
                places.append((number, name))
                piece = b""
        pieces.append(piece + b"\r\n\r\n")
        self.varying = frozenset(name for _, name in places)
        self._first = pieces[0]
        self._rest = tuple(
            (piece, number, len(piece), name) for piece, (number, name) in zip(pieces[1:], places, strict=True)
        )
        self._length = [name for _, name in places].index(b"content-length")

    def read(self, data: bytes) -> tuple[Scope, bytes] | None:
        """Read a request that was received as a whole.

        Args:
            data: Its bytes.

        Returns:
            Its ASGI scope and its body; None if it has another form, or is not complete.
        """
        end = len(self._first)
        if not end or not data.startswith(self._first):
            return None
        headers, values = self._headers.copy(), []
        for piece, number, size, name in self._rest:
            begin, end = end, data.find(b"\r", end)
            if not data.startswith(piece, end):
                return None
            value = data[begin:end]
            if value != value.strip():  # left to the parser, as all that is unusual
                return None
            values.append(value)
            headers[number] = name, value
            end += size
        length = values[self._length]
        if not length.isdigit() or len(length) > _DIGITS or len(data) != end + int(length):
            return None
        if len(values) > 1 and b"".join(values).translate(None, _TEXT):
            return None
        scope = self.scope.copy()
        scope["headers"] = headers
        return scope, data[end:]
