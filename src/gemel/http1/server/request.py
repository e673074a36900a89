"""One HTTP/1.1 request with its response, also as ASGI `receive` and `send` (framing: RFC 9112 §6)."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, ClassVar, Protocol, TypeAlias, cast

import msgspec

from gemel.http1.asgi import TEXT_TYPE, HeaderPairs, Message, Scope
from gemel.http1.server.head_form import HeadForm

logger = logging.getLogger("gemel")

CreateTask: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
#: Serves a request, or the rest of one that was detached.
Serve: TypeAlias = "Callable[[ServedRequest], Awaitable[None]]"

#: Bytes of a body that are buffered before it is read.
BODY_AHEAD = 64 * 1024
#: Bytes of a response that are written at once. More wait until the client reads, so that each piece that it reads counts
#: as progress: transports that encrypt do not tell how much they hold.
PIECE = 64 * 1024
#: Seconds that a client may keep an idle connection, as the Keep-Alive header tells it.
KEEP_ALIVE = 75
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_NOT_IN_A_NAME = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
_NOT_IN_A_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


@lru_cache(4096)
def _end_of_head(length: int) -> bytes:
    """The last line of a head, of a response with so many bytes."""
    return b"content-length: %d\r\n\r\n" % length


class ResponseHeads(dict[tuple[int, bytes, bool], bytes]):
    """The beginnings of response heads, which change once a second: status line, date, content type, keep-alive.

    They are looked up by the HTTP status, the content type (b"" for none), and whether the connection is closed after the
    response. They end before the final empty line.
    """

    _date = b""

    def at(self, date: str) -> None:
        """Set the Date header (RFC 9110 §6.6.1)."""
        self._date = b"date: %b\r\n" % date.encode()
        self.clear()

    def __missing__(self, key: tuple[int, bytes, bool]) -> bytes:
        status, kind, last = key
        head = _status_line(status) + self._date
        head += b"connection: close\r\n" if last else b"keep-alive: timeout=%d\r\n" % KEEP_ALIVE
        if kind:
            head += b"content-type: %b\r\n" % kind
        self[key] = head
        return head


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode headers. Raises ValueError for characters that would inject another header or response."""
    lines = []
    for name, value in headers:
        if not name or _NOT_IN_A_NAME.search(name) or _NOT_IN_A_VALUE.search(value):
            raise ValueError(f"{name!r}: {value!r} can't be an HTTP header")
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


class _Done:
    """An awaitable that is done."""

    __await__ = iter(()).__iter__  # not a function of Python, which would be entered


_DONE = cast("Awaitable[None]", _Done())


class ServedRequests:
    """What the requests of one server have in common."""

    def __init__(self) -> None:
        self.loop = loop = asyncio.get_running_loop()
        # What the loop does itself, but the tasks need no names of their own.
        plain = partial(asyncio.Task, loop=loop, name="HTTP request")
        self.create_task: CreateTask = loop.create_task if loop.get_task_factory() is not None else plain
        #: Makes a task and runs it until it first waits, where Python can do that (3.12 and newer).
        self.start_task: CreateTask | None = None
        if self.create_task is plain and sys.version_info >= (3, 12):
            self.start_task = partial(plain, eager_start=True)
        #: The tasks that serve requests.
        self.tasks: set[asyncio.Task[Any]] = set()
        self.heads = ResponseHeads()
        #: Whether the server is stopping: each response is the last one of its connection.
        self.ending = False


class RequestConnection(Protocol):
    """What a request does with its connection, which is in the layer above: `connection.py` imports this module."""

    @property
    def server(self) -> ServedRequests:
        """The server."""
        ...

    #: Whether the client is not reading, so that a write has to wait.
    full: bool

    transport: asyncio.Transport

    async def room(self) -> None:
        """Wait until the client has read, or is gone."""

    def resume(self) -> None:
        """Read from the client again."""

    def answered(self, last: bool, /) -> None:
        """The response is written. `last` closes the connection."""


class ServedRequest(msgspec.Struct, eq=False):
    """A request whose body arrives and whose response leaves; see `RawExchange` for the methods that serve it."""

    #: The ASGI scope.
    scope: Scope
    _connection: RequestConnection
    #: Whether another request may follow on the connection.
    _keep_alive: bool
    #: The form of its head, if that is known.
    form: HeadForm | None = None
    #: Whether all of the body has arrived.
    complete: bool = False
    #: Bytes of the body that have arrived, and what of it was not read.
    received: int = 0
    body: bytes | bytearray = b""
    #: Whether the client is gone.
    lost: bool = False
    #: Whether it goes on although no task serves it.
    detached: bool = False
    #: Called once when the request is over.
    on_over: Callable[[], None] | None = None
    #: Whether a response in pieces has begun and its last piece is to come.
    _unfinished: bool = False
    task: asyncio.Task[Any] = None  # type: ignore[assignment]  # set while it is served
    #: The status of the response, 0 before it has begun, and the bytes of its body that were written, for `on_over`.
    status: int = 0
    sent: int = 0
    #: Bytes of the body to buffer; more is left in the socket.
    buffer_limit: int = BODY_AHEAD
    #: Set when something happened, once it is waited for.
    event: asyncio.Event | None = None
    _on_disconnect: Callable[[], None] | None = None
    #: Whether `receive` has returned the end of the body; whether 100 Continue was sent.
    _end_received: bool = False
    _continue_sent: bool = False
    #: The head of a response in pieces, until it is sent; its framing: chunks, a number of bytes, or until the end.
    _head: bytes = b""
    _chunked: bool = False
    _missing: int | None = None
    can_detach: ClassVar[bool] = True

    # ---------------------------------------------------------------- called by the connection

    def disconnected(self) -> None:
        """The client is gone."""
        self.lost = True
        if self.event is not None:
            self.event.set()
        if self._on_disconnect is not None:
            self._on_disconnect()

    def run(self, serve: Serve, create_task: CreateTask | None = None, /) -> None:
        """Serve the request in a task of its own."""
        if self.detached:  # setting a member of a Struct costs more than reading it
            self.detached = False
        server = self._connection.server
        self.task = task = (create_task or server.create_task)(self._run(serve))
        if create_task is None or not task.done():
            server.tasks.add(task)

    async def _run(self, serve: Serve) -> None:
        # A callback of the task would be called in another turn of the loop, which costs more than this coroutine.
        try:
            await serve(self)
        except Exception:
            logger.exception("a request failed")
        finally:
            self._connection.server.tasks.discard(self.task)
            if self.detached:
                self.task = None  # type: ignore[assignment]  # set again with the next one
            elif not self.lost and (self._unfinished or not self.status):
                self._end_unanswered()
            if self.on_over is not None and not self.detached:
                self.on_over()

    def _end_unanswered(self) -> None:
        """Without a response it gets a 500; an incomplete response is cut off, so that the client notices."""
        if self.status and not self._head:
            self._connection.transport.abort()
        else:
            self._keep_alive = self._unfinished = False
            self.status = 0
            self.respond(500, TEXT_TYPE, b"Internal Server Error", ())

    def detach(self) -> None:
        """Go on without a task when the current one is over, until `run`."""
        self.detached = True

    # ---------------------------------------------------------------- the body

    async def read(self, limit: int, grow: Callable[[int], None] | None = None, /) -> bytes | None:
        """Read the body, or more than `limit` bytes of it; None if the client left before its end.

        `grow(size)` is called with the number of bytes while more are to come; what it raises is passed on.
        """
        self.buffer_limit = limit
        while not self.complete and not self.lost and len(self.body) <= limit:
            if self.body and grow is not None:
                grow(len(self.body))
            await self._wait_for_event()
        if self.lost and not self.complete:
            return None
        body, self.body = bytes(self.body), b""
        return body

    async def _wait_for_event(self) -> None:
        """Wait until something happens."""
        if not self.complete:
            self._send_continue()
            self._connection.resume()
        if self.event is None:
            self.event = asyncio.Event()
        self.event.clear()
        await self.event.wait()

    def _send_continue(self) -> None:
        """Send 100 Continue to a client that expects it, once, when its body is read (RFC 9110 §10.1.1)."""
        if not self._continue_sent and not self.body and not self.status:
            self._continue_sent = True
            expects = _value(self.scope["headers"], b"expect") or b""
            if expects.strip().lower() == b"100-continue" and self.scope["http_version"] == "1.1":
                self._connection.transport.write(CONTINUE)

    # ---------------------------------------------------------------- the response

    def respond(self, status: int, kind: bytes, data: bytes, headers: HeaderPairs, /) -> Awaitable[None]:
        """Send the whole response. `kind` is its content type."""
        if self.lost or self.status:
            return _DONE
        if len(data) > PIECE and self.scope["method"] != "HEAD":
            return self._respond_in_pieces(status, kind, data, headers)
        connection = self._connection
        server = connection.server
        # The rest of a body that has not arrived is not read any more.
        last = server.ending or not self._keep_alive or not self.complete
        if headers:
            last = last or _closes(headers)
            own = header_lines([pair for pair in headers if pair[0].lower() != b"connection"])
            head = server.heads[status, kind, last] + own
        else:
            head = server.heads[status, kind, last]
        self.status = status
        if self.on_over is not None:
            self.sent = len(data)
        head += b"\r\n" if status == 204 else _end_of_head(len(data))
        connection.transport.write(head if status == 204 or self.scope["method"] == "HEAD" else head + data)
        if self.event is not None:
            self.event.set()
        connection.answered(last)
        return _DONE

    async def _respond_in_pieces(self, status: int, kind: bytes, data: bytes, headers: HeaderPairs) -> None:
        connection = self._connection
        encrypted = connection.transport.get_extra_info("sslcontext") is not None
        size = PIECE if encrypted else len(data)
        self.start(status, ((b"content-type", kind), (b"content-length", b"%d" % len(data)), *headers))
        try:
            for position in range(0, len(data), size):
                await self.piece(data[position : position + size], position + size < len(data))
            if connection.full:
                await connection.room()  # until then the request counts as one that is served
        except OSError:
            return

    def start(self, status: int, headers: HeaderPairs, /) -> None:
        """Begin a response in pieces. Raises RuntimeError for a second one, ValueError for malformed headers."""
        if self.status:
            raise RuntimeError("This request has its response already")
        last, length, lines = _framing_and_lines(headers)
        last = last or self._connection.server.ending or not self._keep_alive
        if self.scope["method"] == "HEAD" or status in (204, 304):
            self._missing = 0
        elif length is not None:
            self._missing = length
        elif self.scope["http_version"] == "1.1":
            self._chunked = True
            lines += b"transfer-encoding: chunked\r\n"
        else:
            last = True
        self._keep_alive = not last
        self._head = self._connection.server.heads[status, b"", last] + lines + b"\r\n"
        self.status = status
        self._unfinished = True

    async def piece(self, data: bytes, more: bool, /) -> None:
        """Send a piece of the body. Raises OSError if the client left, RuntimeError if it contradicts the head."""
        if self._connection.full:
            await self._connection.room()
        if not self.piece_now(data, more):
            raise ConnectionResetError("the client closed the connection")

    def piece_now(self, data: bytes, more: bool, /) -> bool:
        """Send a piece of the body, unless it would have to wait or the client left. Raises RuntimeError like `piece`."""
        if self._connection.full or self.lost:
            return False
        if not self._unfinished:
            raise RuntimeError("The response is complete already" if self.status else "A response begins with its head")
        head, self._head = self._head, b""
        self.sent += len(data)
        framed, transport = self._framed(data, more), self._connection.transport
        if head and len(framed) > PIECE:  # not `writelines`, which since Python 3.12 does not call `pause_writing`
            transport.write(head)
            transport.write(framed)
        else:
            transport.write(head + framed)
        if not more:
            self._unfinished = False
            if self.event is not None:
                self.event.set()
            # As the head said, even if the server is stopping now: the next request may be on its way.
            self._connection.answered(not self._keep_alive or not self.complete)
        return True

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

    def watch(self, on_disconnect: Callable[[], None], /) -> None:
        """Call `on_disconnect` when the client disconnects."""
        self._on_disconnect = on_disconnect
        if self.lost:
            on_disconnect()

    def unwatch(self) -> None:
        """Stop watching the client."""
        self._on_disconnect = None

    def cut(self) -> None:
        """Close the connection at once."""
        self._connection.transport.abort()

    # ---------------------------------------------------------------- ASGI

    async def receive(self) -> Message:
        """ASGI `receive`: the next piece of the body, or the disconnect."""
        self.buffer_limit = BODY_AHEAD
        while not self.lost and (self._unfinished or not self.status):
            if self.body or (self.complete and not self._end_received):
                self._end_received = self.complete
                body, self.body = bytes(self.body), b""
                return {"type": "http.request", "body": body, "more_body": not self.complete}
            await self._wait_for_event()
        return {"type": "http.disconnect"}

    async def send(self, message: Message, /) -> None:
        """ASGI `send`: the head of a response or a piece of it. Raises like `start` and `piece`."""
        if message["type"] == "http.response.start":
            self.start(message["status"], tuple(map(tuple, message.get("headers", ()))))  # some apps give lists
        elif message["type"] == "http.response.body":
            await self.piece(message.get("body", b""), message.get("more_body", False))
        else:
            raise RuntimeError(f"HTTP has no message {message['type']!r}")


def _value(headers: Iterable[tuple[bytes, bytes]], header: bytes) -> bytes | None:
    return next((value for name, value in headers if name.lower() == header), None)


@lru_cache(256)
def _framing_and_lines(headers: HeaderPairs) -> tuple[bool, int | None, bytes]:
    """Whether headers close the connection, their Content-Length, and the lines of those that do not frame the response."""
    length = _value(headers, b"content-length")
    lines = header_lines(pair for pair in headers if pair[0].lower() not in (b"connection", b"transfer-encoding"))
    return _closes(headers), None if length is None else int(length), lines


def _closes(headers: HeaderPairs) -> bool:
    options = _value(headers, b"connection")
    return options is not None and b"close" in [token.strip().lower() for token in options.split(b",")]
