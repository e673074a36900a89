"""One request on a connection of our own HTTP server, and its response as bytes.

Knows the framing of HTTP/1.1 responses (RFC 9112 §6) and, for apps beside ours, ASGI. Must not know sockets, MCP, or what
other requests there are.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Generator
from http import HTTPStatus
from typing import Any, Protocol, cast

import msgspec

from hinge.http1.asgi import CLOSE, TEXT_TYPE, HeaderPairs, Message, Scope

logger = logging.getLogger("hinge")

#: So much of a body is taken before anybody asks for it.
BODY_AHEAD = 64 * 1024

_NOT_IN_A_NAME = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
_NOT_IN_A_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


class Heads:
    """The beginnings of responses, which change once a second: status line, date, content type."""

    __slots__ = ("_date", "_known")

    def __init__(self) -> None:
        self._date = b""
        self._known: dict[tuple[int, bytes], bytes] = {}

    def at(self, date: str) -> None:
        """What time it is, in HTTP's words (RFC 9110 §6.6.1)."""
        self._date = b"date: %b\r\n" % date.encode()
        self._known.clear()

    def of(self, status: int, kind: bytes) -> bytes:
        """All lines that don't depend on the request; no empty one at the end."""
        head = self._known.get((status, kind))
        if head is None:
            head = _status_line(status) + self._date
            if kind:
                head += b"content-type: %b\r\n" % kind
            self._known[status, kind] = head
        return head


def header_lines(headers: HeaderPairs) -> bytes:
    """Raises ValueError for what would make another header, or another response, of one."""
    for name, value in headers:
        if not name or _NOT_IN_A_NAME.search(name) or _NOT_IN_A_VALUE.search(value):
            raise ValueError(f"{name!r}: {value!r} can't be an HTTP header")
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


class _Done:
    """What need not be waited for."""

    def __await__(self) -> Generator[None, None, None]:
        return _NOTHING


_NOTHING = cast("Generator[None, None, None]", iter(()))
_DONE = _Done()


class Shared(Protocol):
    """What the requests of all connections of one server share."""

    heads: Heads
    #: The server ends: each response is the last one of its connection.
    ending: bool


class Way(Protocol):
    """The connection as its requests see it."""

    @property
    def house(self) -> Shared:
        """The server."""
        ...

    #: The client doesn't read what is written.
    full: bool

    def write(self, data: bytes, /) -> None:
        """Bytes for the client."""

    async def room(self) -> None:
        """Wait until the client has read, or is gone."""

    def hold(self) -> None:
        """Take no more from the client for now."""

    def go_on(self) -> None:
        """Take more."""

    def answered(self, last: bool, /) -> None:
        """The response is written. The `last` one closes the connection."""

    def abort(self) -> None:
        """Cut it."""

    def forget(self, task: asyncio.Task[Any], /) -> None:
        """The task of a request is over."""


class HttpRequest(msgspec.Struct, eq=False):
    """What has come of a request's body, and what has left of its response. A `Carrier`."""

    scope: Scope
    _way: Way
    #: Another request may follow.
    _keep_alive: bool
    #: All of the body has come.
    complete: bool = False
    #: The client is gone.
    lost: bool = False
    #: The response has begun; it is complete.
    begun: bool = False
    _over: bool = False
    task: asyncio.Task[Any] = None  # type: ignore[assignment]  # there as soon as it is served
    _body: bytes | bytearray = b""
    #: More than this of the body is left in the socket.
    _wanted: int = BODY_AHEAD
    #: Something happened.
    _event: asyncio.Event | None = None
    _left: Callable[[], None] | None = None
    #: `receive` has told of the body's end; the client was told to send it.
    _told: bool = False
    _promised: bool = False
    #: The head of a response in pieces, until it leaves; its framing: chunks, so many bytes, or all until the end.
    _head: bytes = b""
    _chunked: bool = False
    _missing: int | None = None

    # ---------------------------------------------------------------- what the connection tells

    def feed(self, data: bytes) -> None:
        """A piece of the body."""
        if not self._body:
            self._body = data
        elif type(self._body) is bytearray:
            self._body += data
        else:
            self._body = bytearray(self._body) + data
        if len(self._body) > self._wanted:
            self._way.hold()
        if self._event is not None:
            self._event.set()

    def end(self) -> None:
        """The body is complete."""
        self.complete = True
        if self._event is not None:
            self._event.set()

    def lose(self) -> None:
        """The client is gone."""
        self.lost = True
        if self._event is not None:
            self._event.set()
        if self._left is not None:
            self._left()

    def served(self, task: asyncio.Task[Any]) -> None:
        """Its task is over. A request without a response gets one; half a response is cut off, so that this is seen."""
        self._way.forget(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a request failed", exc_info=error)
        if self._over or self.lost:
            return
        if self.begun and not self._head:
            self._way.abort()
        else:
            self._keep_alive = False
            self._whole(500, TEXT_TYPE, b"Internal Server Error", ())

    # ---------------------------------------------------------------- the body

    def whole(self) -> bytes | None:
        """The body, if it is all there."""
        return self._take() if self.complete else None

    def _take(self) -> bytes:
        body, self._body = bytes(self._body), b""
        return body

    async def read(self, limit: int) -> bytes | None:
        """The body, or more than `limit` bytes of it; None if the client left before its end."""
        self._wanted = limit
        while not self.complete and not self.lost and len(self._body) <= limit:
            await self._something()
        return self._take() if self.complete or not self.lost else None

    async def _something(self) -> None:
        """Wait until something happens."""
        if not self.complete:
            self._promise()
            self._way.go_on()
        if self._event is None:
            self._event = asyncio.Event()
        self._event.clear()
        await self._event.wait()

    def _promise(self) -> None:
        """Tell a client that asks first to send its body, once, and only if it is wanted (RFC 9110 §10.1.1)."""
        if not self._promised and not self._body and not self.begun:
            self._promised = True
            if any(
                name == b"expect" and value.strip().lower() == b"100-continue" for name, value in self.scope["headers"]
            ):
                self._way.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # ---------------------------------------------------------------- the response

    def respond(self, status: int, kind: bytes, data: bytes, headers: HeaderPairs, /) -> Awaitable[None]:
        """The whole response, at once. `kind` is its content type."""
        if not self.lost and not self.begun:
            self._whole(status, kind, data, headers)
        return _DONE

    def _whole(self, status: int, kind: bytes, data: bytes, headers: HeaderPairs) -> None:
        way = self._way
        # The rest of a body that hasn't come isn't wanted any more.
        last = self._is_last() or not self.complete
        head = way.house.heads.of(status, kind)
        if headers or last:
            closes = _closes(headers)
            head += header_lines(headers if closes or not last else (*headers, *CLOSE))
            last = last or closes
        self.begun = True
        if status == 204:
            way.write(head + b"\r\n")
        elif self.scope["method"] == "HEAD":
            way.write(b"%bcontent-length: %d\r\n\r\n" % (head, len(data)))
        else:
            way.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(data), data))
        self._finish(last)

    def _is_last(self) -> bool:
        return self._way.house.ending or not self._keep_alive

    def _finish(self, last: bool) -> None:
        self._over = True
        if self._event is not None:
            self._event.set()
        self._way.answered(last)

    def start(self, status: int, headers: HeaderPairs, /) -> None:
        """The head of a response in pieces. Raises RuntimeError for a second one, ValueError for what no header can be."""
        if self.begun:
            raise RuntimeError("This request has its response already")
        last, length = self._is_last() or _closes(headers), _value(headers, b"content-length")
        kept = [pair for pair in headers if pair[0].lower() not in (b"connection", b"transfer-encoding")]
        if self.scope["method"] == "HEAD" or status in (204, 304):
            self._missing = 0
        elif length is not None:
            self._missing = int(length)
        elif self.scope["http_version"] == "1.1":
            self._chunked = True
            kept.append((b"transfer-encoding", b"chunked"))
        else:
            last = True
        self._keep_alive = not last
        head = self._way.house.heads.of(status, b"") + header_lines((*kept, *(CLOSE if last else ())))
        self.begun = True
        self._head = head + b"\r\n"

    @property
    def ready(self) -> bool:
        """The next piece doesn't wait."""
        return not self._way.full

    async def piece(self, data: bytes, more: bool, /) -> None:
        """A piece of the body. Raises OSError when the client left, RuntimeError if the head said otherwise."""
        if self._way.full:
            await self._way.room()
        if self.lost:
            raise ConnectionResetError("the client closed the connection")
        if self._over or not self.begun:
            raise RuntimeError("The response is complete already" if self._over else "A response begins with its head")
        head, self._head = self._head, b""
        self._way.write(head + self._framed(data, more))
        if not more:
            self._finish(self._is_last() or not self.complete)

    def _framed(self, data: bytes, more: bool) -> bytes:
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            return chunk if more else chunk + b"0\r\n\r\n"
        if self._missing is None:
            return data
        if self.scope["method"] == "HEAD":
            return b""
        self._missing -= len(data)
        if self._missing < 0 or (self._missing and not more):
            raise RuntimeError(f"The body is {'longer' if self._missing < 0 else 'shorter'} than its Content-Length")
        return data

    # ---------------------------------------------------------------- the client

    def watch(self, left: Callable[[], None], /) -> None:
        """From now on, say when the client leaves."""
        self._left = left
        if self.lost:
            left()

    def release(self) -> None:
        """Nobody wants to hear of it any more."""
        self._left = None

    def cut(self) -> None:
        """Cut the connection."""
        self._way.abort()

    # ---------------------------------------------------------------- ASGI

    async def receive(self) -> Message:
        """The next of the body, or that the client left or has its response."""
        self._wanted = BODY_AHEAD
        while not self.lost and not self._over:
            if self._body or (self.complete and not self._told):
                self._told = self.complete
                return {"type": "http.request", "body": self._take(), "more_body": not self.complete}
            await self._something()
        return {"type": "http.disconnect"}

    async def send(self, message: Message, /) -> None:
        """The head of a response, or a piece of it. Raises as `start` and `piece` do."""
        if message["type"] == "http.response.start":
            self.start(message["status"], tuple(message.get("headers", ())))
        elif message["type"] == "http.response.body":
            await self.piece(message.get("body", b""), message.get("more_body", False))
        else:
            raise RuntimeError(f"HTTP has no message {message['type']!r}")


def _value(headers: HeaderPairs, wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name.lower() == wanted), None)


def _closes(headers: HeaderPairs) -> bool:
    said = _value(headers, b"connection")
    return said is not None and b"close" in [token.strip().lower() for token in said.split(b",")]
