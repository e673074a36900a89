"""One client's connection to our own HTTP server: requests out of bytes, served one after the other, and its end.

Knows HTTP/1.1 through httptools, and asyncio's transports. Must not know MCP, paths, or what a request wants.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools

from hinge.http1.asgi import TEXT_TYPE, Scope
from hinge.http1.server.request import HttpRequest, Shared

logger = logging.getLogger("hinge")

#: Requests that may wait on one connection for those before them; more are left in the socket.
PIPELINED = 32
#: A connection may stay open so long between two requests, in seconds.
IDLE = 75
#: A request's head may take so long; so may a connection that never sent one.
HEAD_WAIT = 10
#: What a client still sends after its last response is read for so long: closing at once could take the response away.
LINGER = 2
#: A client that reads nothing of what is written loses its connection after this long.
STALL = 60

_UPGRADE = frozenset({b"upgrade", b"http2-settings"})


class House(Shared, Protocol):
    """What the connections of one server share."""

    #: Seconds since the server began.
    tick: int
    #: A request's head may have so many bytes.
    head_bytes: int
    loop: asyncio.AbstractEventLoop
    connections: set[HttpConnection]
    tasks: set[asyncio.Task[Any]]
    serve: Callable[[HttpRequest], Coroutine[Any, Any, None]]


class HttpConnection(asyncio.Protocol):
    """One connection. `sweep` is called once a second; the clock is the server's."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.full = False
        #: What waited for a client that doesn't read, when it was last looked at.
        self._unsent = 0
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # there before anything else is called
        self._parser: Any = httptools.HttpRequestParser(self)
        self._about: Scope = {}
        #: When its present state began.
        self._since = house.tick
        self._used = False
        #: Nothing that comes is looked at any more.
        self._deaf = False
        self._held = False
        self._room: asyncio.Event | None = None
        # The request whose head is being read: whether its first bytes have just come; how many came since that are
        # no body; whether it was the last, and whether it asks for another protocol.
        self._in_head = False
        self._fresh = False
        self._plain_bytes = 0
        self._final = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        #: The last target and what it means: clients use one.
        self._target = b""
        self._path: tuple[str, bytes, bytes] = ("", b"", b"")
        #: The request whose body is coming; the one that is served; those that wait; what is said after all of them.
        self._incoming: HttpRequest | None = None
        self._serving: HttpRequest | None = None
        self._waiting: deque[HttpRequest] = deque()
        self._last_words = b""

    # ---------------------------------------------------------------- asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        get = transport.get_extra_info
        self._about = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "http" if get("sslcontext") is None else "https",
            "server": _address(get("sockname")),
            "client": _address(get("peername")),
            "root_path": "",
        }
        self.house.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        stopped = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            stopped = stop.args[0]
        except httptools.HttpParserError as error:
            self._stumble(error)
        if stopped is not None:
            self._stay(data[stopped:])
        elif (self._in_head or self._incoming is not None) and not self._deaf:
            self._count(len(data))

    def eof_received(self) -> None:
        """The client left: what it asked for nobody waits for."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.house.connections.discard(self)
        self._deaf = True
        self._waiting.clear()
        self._incoming = None
        # The parser holds our methods: a cycle.
        self._parser = None
        self.resume_writing()
        if self._serving is not None:
            serving, self._serving = self._serving, None
            serving.lose()

    def pause_writing(self) -> None:
        self.full = True
        self._since = self.house.tick

    def resume_writing(self) -> None:
        self.full = False
        self._since = self.house.tick
        if self._room is not None:
            self._room.set()
        if self._serving is None and self._waiting:
            self._next()

    # ---------------------------------------------------------------- httptools calls these

    def on_message_begin(self) -> None:
        self._in_head = self._fresh = True
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """After the head, these are trailers, which nobody gets to see (RFC 9110 §6.5.1)."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        self._in_head = False
        if parser.should_upgrade():
            return  # the parser stops here, and `_stay` goes on
        if self._url != self._target:
            self._look_up(self._url)
        path, raw_path, query = self._path
        scope = {
            **self._about,
            "method": parser.get_method().decode(),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
        }
        keep_alive = parser.should_keep_alive()
        version = parser.get_http_version()
        if version != "1.1":
            scope["http_version"] = version
            keep_alive = False
        self._headers = []
        self._final = not keep_alive
        self._incoming = request = HttpRequest(scope, self, keep_alive)
        if self._serving is None and not self._waiting:
            self._serve(request)
        else:
            self._waiting.append(request)
            if len(self._waiting) >= PIPELINED:
                self.hold()

    def on_body(self, body: bytes) -> None:
        self._plain_bytes -= len(body)
        if self._incoming is not None:
            self._incoming.feed(body)

    def on_message_complete(self) -> None:
        if self._incoming is not None:
            self._incoming.end()
            self._incoming = None

    # ---------------------------------------------------------------- what came

    def _look_up(self, target: bytes) -> None:
        """Raises httptools' error for a target that is none: the parser passes it on."""
        parsed = httptools.parse_url(target)
        raw_path = parsed.path or b"/"
        path = raw_path.decode("ascii")
        self._path = (unquote(path) if "%" in path else path, raw_path, parsed.query or b"")
        self._target = target

    def _count(self, size: int) -> None:
        """A request is half there: bound what isn't body, which are its head, chunk sizes and trailers."""
        if self._fresh:
            self._fresh = False
            self._plain_bytes = 0
            self._since = self.house.tick
            return
        self._plain_bytes += size
        if self._plain_bytes > self.house.head_bytes:
            self._refuse(431, "The headers of this request are too large")

    def _stumble(self, error: httptools.HttpParserError) -> None:
        """These bytes are no request."""
        ours = isinstance(error, httptools.HttpParserCallbackError)
        if ours and not isinstance(error.__context__, httptools.HttpParserInvalidURLError):
            logger.error("a connection failed", exc_info=error.__context__)
            self._transport.abort()
        elif self._final and not self._in_head and self._incoming is None:
            self._deaf = True  # what follows a request that was to be the last one is nobody's business
        else:
            reason = "its target is none" if ours else error
            self._refuse(400, f"This is not a request of HTTP/1.1: {reason}")

    def _stay(self, rest: bytes) -> None:
        """A request to change the protocol is served as if it hadn't asked (RFC 9110 §7.8): read its head again, without.

        Some clients ask with each first request of a connection, and send a body along.
        """
        method, headers = self._parser.get_method(), self._headers
        if method == b"CONNECT":
            self._refuse(405, "There is no way through here")
            return
        kept = [(name, value) for name, value in headers if name not in _UPGRADE and name != b"connection"]
        tokens = [value.strip() for name, values in headers if name == b"connection" for value in values.split(b",")]
        wishes = [token for token in tokens if token.lower() not in _UPGRADE]
        if wishes:
            kept.append((b"connection", b", ".join(wishes)))
        lines = b"".join([b"%b: %b\r\n" % pair for pair in kept])
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (method, self._url, lines)
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    def _refuse(self, status: int, text: str) -> None:
        """Nothing more is understood: say so when all that came before is answered, and close."""
        data = text.encode()
        head = self.house.heads.of(status, TEXT_TYPE)
        self._last_words = b"%bcontent-length: %d\r\nconnection: close\r\n\r\n%b" % (head, len(data), data)
        self._deaf = True
        half, self._incoming = self._incoming, None
        if half is not None and half is not self._serving:
            self._waiting.remove(half)
        elif half is not None and half.begun:
            self._transport.abort()
        elif half is not None:
            self._serving = None
            half.lose()
        if self._serving is None and not self._waiting:
            self._linger()

    # ---------------------------------------------------------------- one after the other

    def _serve(self, request: HttpRequest) -> None:
        self._serving = request
        self._used = True
        house = self.house
        request.task = task = house.loop.create_task(house.serve(request))
        house.tasks.add(task)
        task.add_done_callback(request.served)

    def _next(self) -> None:
        if not self.full:
            self._serve(self._waiting.popleft())
            self.go_on()

    def forget(self, task: asyncio.Task[Any], /) -> None:
        self.house.tasks.discard(task)

    def answered(self, last: bool, /) -> None:
        self._serving = None
        self._since = self.house.tick
        if last:
            self._waiting.clear()
            self._last_words = b""
            self._linger()
        elif self._waiting:
            self._next()
        elif self._deaf:
            self._linger()
        elif self._held:
            self.go_on()

    def _linger(self) -> None:
        """Say what is left to say, and close; if the client may still be sending, it closes first, or has a moment."""
        sending = self._incoming is not None or bool(self._last_words) or self._held
        self._transport.write(self._last_words)
        self._last_words = b""
        self._incoming = None
        self._deaf = True
        self._since = self.house.tick
        if not sending:
            self._close()
            return
        self.go_on()
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    # ---------------------------------------------------------------- what requests do with it

    def write(self, data: bytes, /) -> None:
        self._transport.write(data)

    async def room(self) -> None:
        while self.full:
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()

    def hold(self) -> None:
        if not self._held:
            self._held = True
            self._transport.pause_reading()

    def go_on(self) -> None:
        if self._held:
            self._held = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def abort(self) -> None:
        self._transport.abort()

    # ---------------------------------------------------------------- the server

    def close_if_idle(self) -> None:
        """Close it unless a request is being served."""
        if self._serving is None:
            self._close()

    def _close(self) -> None:
        """In good order: what was written still leaves."""
        self._since = self.house.tick
        self._transport.close()

    def sweep(self, tick: int) -> None:
        """Close what doesn't get on."""
        waited, closing = tick - self._since, self._transport.is_closing()
        if self.full or closing:
            size = self._transport.get_write_buffer_size()
            if size < self._unsent:
                self._since = tick
            elif waited >= STALL:
                self._transport.abort()
            self._unsent = size
        elif self._serving is not None:
            return
        elif self._deaf:
            if waited >= LINGER:
                self._transport.abort()
        elif waited >= (IDLE if self._used and not self._in_head and self._incoming is None else HEAD_WAIT):
            self._close()


def _address(found: Any) -> tuple[str, int | None] | None:
    """As ASGI wants it: host and port, or the path of a Unix socket and None."""
    if isinstance(found, tuple):
        return (str(found[0]), int(found[1]))
    return (str(found), None) if found else None
