"""One client connection to the HTTP/1.1 server: parses requests with httptools and serves them one after the other."""

from __future__ import annotations

import asyncio
import logging
import re
import select
import sys
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote

import httptools

from gemel.http1.asgi import TEXT_TYPE, Scope
from gemel.http1.server.head_form import HEAD_BYTES, HeadForm
from gemel.http1.server.request import CONTINUE, KEEP_ALIVE, PIECE, Serve, ServedRequest, ServedRequests
from gemel.shares import Shares, address_share

logger = logging.getLogger("gemel")

#: Pipelined requests, and their bytes, that may wait on one connection; more are left in the socket.
PIPELINED = 32
READ_AHEAD = 256 * 1024
#: Bytes that are parsed at once. The limits above are checked between two slices; a body of known length is one slice.
SLICE = 4096
#: Bytes of framing that are free for each piece of a body. Beyond, framing counts towards the limit of the head.
FREE_FRAMING = 16
#: Seconds that a connection may be idle between two requests: what the Keep-Alive header says, and a margin.
IDLE = KEEP_ALIVE + 5
#: Seconds after which a half-closed connection is first checked where no event tells of a reset.
RESET_WAIT = 0.05
#: Seconds without use after which a connection frees what the next request would be parsed with.
UNUSED = 2
#: Seconds for the head of a request to arrive.
HEAD_WAIT = 10
#: Seconds to read what a client still sends after its last response; closing at once could discard the response.
LINGER = 2

#: Connections that are looked at for one that serves no request.
_LOOKED_AT = 100

_UPGRADE = frozenset({b"upgrade", b"http2-settings"})
#: The value of a Host header (RFC 9110 §7.2): a name or address, empty for a target without one, and a port.
_HOST = re.compile(rb"(?:\[[0-9A-Fa-fVv.:%\w~-]+\]|[\w.~!$&'()*+,;=%-]*)(?::[0-9]*)?[ \t]*")


class Connections(ServedRequests):
    """The connections of one server, within their shares.

    Args:
        serve: Serves a request.
        head_bytes: Maximum bytes of the head of a request.
        head_lines: Maximum number of header lines in a head that is not complete yet.
        stall: Seconds after which a client that reads nothing loses its connection.
        farewell: The content of the answer that ends an idle connection when the server stops, and its type.
        most: Maximum number of connections.
    """

    def __init__(
        self, serve: Serve, head_bytes: int, head_lines: int, stall: float, farewell: tuple[str, bytes], most: int
    ) -> None:
        super().__init__()
        self.serve = serve
        self.head_bytes = head_bytes
        self.head_lines = head_lines
        self.stall = stall
        self.farewell = farewell
        #: Seconds since the server started.
        self.tick = 0
        self.connections: set[HttpConnection] = set()
        #: Those that are not about to end, by their addresses, and how many there may be.
        self._shares: Shares[HttpConnection] = Shares()
        self._most = most

    def sweep(self) -> None:
        """Called once a second: close connections that make no progress."""
        self.tick += 1
        for connection in list(self.connections):
            connection.sweep(self.tick)

    def admit(self, connection: HttpConnection) -> None:
        """Take a new connection. Where there is no room, the address with most of them loses one, an idle one if possible.

        One that serves a request is lost to another address only, which then has no more than that one.
        """
        self.connections.add(connection)
        holder = connection.holder
        if len(self._shares) >= self._most:
            theirs = self._shares.giving_way(holder)[:_LOOKED_AT]
            gone = next((one for one in theirs if one.is_idle), None)
            if gone is None and theirs and self._shares.held(theirs[0].holder) > self._shares.held(holder) + 1:
                gone = theirs[0]
            if gone is None:
                connection.transport.abort()
                return
            self._shares.discard(gone.holder, gone)
            gone.transport.abort()
        self._shares.add(holder, connection)

    def forget(self, connection: HttpConnection) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        self._shares.discard(connection.holder, connection)


class HttpConnection(asyncio.Protocol):
    """One connection."""

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_client",
        "_final",
        "_final_response",
        "_first_chunk",
        "_form",
        "_half_closed",
        "_head_began",
        "_headers",
        "_ignoring",
        "_in_head",
        "_incoming",
        "_overhead",
        "_parsed",
        "_parser",
        "_paused",
        "_resets",
        "_room",
        "_scope",
        "_serving",
        "_since",
        "_unparsed",
        "_unsent",
        "_url",
        "_used",
        "_waiting",
        "full",
        "holder",
        "server",
        "transport",
    )

    def __init__(self, server: Connections) -> None:
        self.server = server
        self.full = False
        #: Unsent bytes at the last sweep.
        self._unsent = 0
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set before anything else is called
        #: None while there is nothing to parse.
        self._parser: Any = None
        #: What connections share of the scopes of their requests, and the address of the client.
        self._scope: Scope = {}
        self._client: tuple[str, int | None] | None = None
        #: Whose share of all connections it takes.
        self.holder = ""
        #: The tick at which its present state began.
        self._since = server.tick
        self._used = False
        #: Whether all further input is ignored.
        self._ignoring = False
        #: Whether the client has sent its last byte and may still read.
        self._half_closed = False
        #: What tells of a reset of a half-closed connection, which is not read.
        self._resets: Any = None
        self._paused = False
        #: What was received while too much was waiting.
        self._unparsed = b""
        #: Bytes that were parsed while requests were waiting.
        self._ahead = 0
        self._room: asyncio.Event | None = None
        # The request whose head is being read: whether it has just begun, its bytes that are not body, and whether it
        # is the last one on the connection.
        self._in_head = False
        self._head_began = False
        self._overhead = 0
        self._first_chunk = False
        self._final = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        #: The form of the heads of its requests, as far as it is known.
        self._form: HeadForm | None = None
        #: The last request that was parsed, while the form of its head may be learned, with a scope that nobody changes.
        self._parsed: tuple[ServedRequest, Scope] | None = None
        #: The request whose body is arriving; the one that is served; those that wait; the response that ends them.
        self._incoming: ServedRequest | None = None
        self._serving: ServedRequest | None = None
        self._waiting: list[ServedRequest] = []
        self._final_response = b""

    # ---------------------------------------------------------------- asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        get = transport.get_extra_info
        if get("sslcontext") is not None:
            self.transport.set_write_buffer_limits(PIECE)
        scheme = "http" if get("sslcontext") is None else "https"
        self._scope = _shared_scope(scheme, get("sockname") or get("addr"))
        self._client = _address(get("peername"))
        self.holder = address_share(None if self._client is None else self._client[0])
        self.server.admit(self)

    def data_received(self, data: bytes) -> None:
        if self._waiting or len(data) > SLICE:
            self._parse(self._unparsed + data)
            return
        between = self._serving is None and self._incoming is None and not self._in_head and not self._ignoring
        if between and (form := self._form) is not None and (known := form.read(data)) is not None:
            scope, body = known
            self._serving = request = ServedRequest(scope, self, True, form, True, len(body), body)
            self._used = True
            # Nothing else is waiting here, so that its handler holds up nobody for longer than it would later.
            request.run(self.server.serve, self.server.start_task)
            return
        again = between and self._used  # nothing is kept for a connection of one request, such as that of a stream
        if (parsed := self._feed(data)) < len(data):
            self._parse(data[parsed:])
        elif again:
            self._learn(data)
        self._parsed = None

    def _learn(self, data: bytes) -> None:
        """Learn the form of the head of the one request that was received as a whole."""
        if self._parsed is None or self._incoming is not None or self._in_head or self._final or self._ignoring:
            return
        (request, scope), end = self._parsed, data.find(b"\r\n\r\n") + 4
        if end <= HEAD_BYTES and _content_length(scope) == request.received == len(data) - end:
            self._form = HeadForm(scope) if self._form is None else self._form.joined(data[:end], scope)

    def eof_received(self) -> bool:
        """The client has sent its last byte. Returns whether it may still wait for a response.

        A client that has closed the connection looks the same until something is sent to it: then it resets the
        connection. So an interim response is sent, which a waiting client ignores (RFC 9110 §15.2).
        """
        serving = self._serving
        secure = self._scope["scheme"] == "https"  # asyncio can't half-close it
        if serving is None or serving.status or self._incoming is not None or secure or not hasattr(select, "poll"):
            return False
        if serving.scope["http_version"] != "1.1":
            return False
        self._half_closed = True
        self.transport.write(CONTINUE)
        if not self._watch_for_reset():
            self.server.loop.call_later(RESET_WAIT, self._abort_if_reset)
        return True

    def _watch_for_reset(self) -> bool:
        """Abort the connection when the client resets it. Returns False if the system has no event or no file for it."""
        if sys.platform != "linux":
            return False
        try:
            self._resets = select.epoll()
        except OSError:  # EMFILE
            return False
        self._resets.register(self.transport.get_extra_info("socket").fileno(), 0)
        self.server.loop.add_reader(self._resets.fileno(), self.transport.abort)
        return True

    def _abort_if_reset(self) -> None:
        """A half-closed connection is not read, so that nothing else tells of a reset."""
        if not self.transport.is_closing():
            poller = select.poll()
            poller.register(self.transport.get_extra_info("socket").fileno(), 0)
            if poller.poll(0):
                self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.forget(self)
        if self._resets is not None:
            self.server.loop.remove_reader(self._resets.fileno())
            self._resets.close()
        self._ignoring = True
        self._waiting.clear()
        self._unparsed = b""
        self._incoming = self._parsed = None
        # Breaks a reference cycle: the parser holds our methods.
        self._parser = None
        self.resume_writing()
        if self._serving is not None:
            serving, self._serving = self._serving, None
            serving.disconnected()

    def pause_writing(self) -> None:
        self.full = True
        self._since = self.server.tick

    def resume_writing(self) -> None:
        self.full = False
        self._since = self.server.tick
        if self._room is not None:
            self._room.set()
        if self._serving is None and self._waiting:
            self._next()

    # ---------------------------------------------------------------- httptools calls these

    def on_message_begin(self) -> None:
        self._in_head = self._head_began = True
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; after the head a trailer, which is ignored (RFC 9110 §6.5.1)."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        self._in_head = False
        if self._ignoring or parser.should_upgrade():
            return  # for an upgrade the parser stops here, and `_ignore_upgrade` goes on
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._refuse(505, "The HTTP version must be 1.1 or 1.0")
            return
        hosts = [value for name, value in self._headers if name == b"host"]
        if len(hosts) > 1 or not all(map(_HOST.fullmatch, hosts)) or (not hosts and version == "1.1"):
            self._refuse(400, "A request of HTTP/1.1 has one valid Host header")  # RFC 9112 §3.2
            return
        path, raw_path, query = _parse_target(self._url)
        scope = {
            **self._scope,
            "client": self._client,
            "method": parser.get_method().decode(),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
        }
        keep_alive = parser.should_keep_alive()
        if version != "1.1":
            scope["http_version"] = version
            keep_alive = False
        self._first_chunk = True
        self._final = not keep_alive
        self._incoming = request = ServedRequest(scope, self, keep_alive)
        self._parsed = request, {**scope, "headers": self._headers.copy()}
        self._headers = []
        if self._serving is None and not self._waiting:
            self._serve(request)
        else:
            self._waiting.append(request)

    def on_chunk_header(self) -> None:
        """A body in chunks: refuse other codings, which would have to be decoded (RFC 9112 §6.1)."""
        if not self._first_chunk or self._incoming is None:
            return
        self._first_chunk = False
        scope = self._incoming.scope
        if [value.strip().lower() for name, value in scope["headers"] if name == b"transfer-encoding"] != [b"chunked"]:
            self._refuse(501, "The only transfer coding that is supported is chunked")
        elif scope["http_version"] != "1.1":
            self._refuse(400, "HTTP/1.0 has no transfer codings")

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body) + FREE_FRAMING
        request = self._incoming
        if request is None:
            return
        request.received += len(body)
        if not request.body:
            request.body = body
        elif type(request.body) is bytearray:
            request.body += body
        else:
            request.body = bytearray(request.body) + body
        if len(request.body) > request.buffer_limit:
            self.pause()
        if request.event is not None:
            request.event.set()

    def on_message_complete(self) -> None:
        request, self._incoming = self._incoming, None
        if request is not None:
            request.complete = True
            if request.event is not None:
                request.event.set()

    # ---------------------------------------------------------------- input

    def _parse(self, data: bytes) -> None:
        """Parse until the data ends or enough requests are waiting."""
        self._unparsed = b""
        start, end = 0, len(data)
        while start < end and not self._ignoring:
            if self._waiting and (len(self._waiting) >= PIPELINED or self._ahead >= READ_AHEAD):
                self._unparsed = data[start:]
                self.pause()
                return
            if end - start <= SLICE:
                parsed = self._feed(data[start:])
            else:
                incoming = self._incoming
                body = 0 if incoming is None else _content_length(incoming.scope) - incoming.received
                parsed = self._feed(data[start : start + max(SLICE, body)])
            if self._waiting:
                self._ahead += parsed
            start += parsed

    def _feed(self, data: bytes) -> int:
        """Parse a slice. Returns how much of it was parsed: not all if a request asks for another protocol."""
        parsed = None
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            parsed = stop.args[0]
        except httptools.HttpParserError as error:
            if not self._ignoring:
                self._reject_malformed(error)
        if parsed is not None:
            self._ignore_upgrade()
            return int(parsed)
        if (self._in_head or self._incoming is not None) and not self._ignoring:
            self._count(len(data))
        return len(data)

    def _count(self, size: int) -> None:
        """Limit what is not body of an incomplete request: its head, chunk sizes and trailers."""
        if self._head_began:
            self._head_began = False
            self._overhead = 0
            self._since = self.server.tick
            return
        self._overhead = max(0, self._overhead + size)
        if self._overhead > self.server.head_bytes or len(self._headers) > self.server.head_lines:
            if self._incoming is None:
                self._refuse(431, "The headers of this request are too many or too large")
            else:
                self._refuse(400, "The chunks of this body have too much framing")

    def _reject_malformed(self, error: httptools.HttpParserError) -> None:
        """The bytes are not a request."""
        ours = isinstance(error, httptools.HttpParserCallbackError)
        if ours and not isinstance(error.__context__, httptools.HttpParserInvalidURLError):
            logger.error("a connection failed", exc_info=error.__context__)
            self._ignoring = True
            self.transport.abort()
        elif self._final and not self._in_head and self._incoming is None:
            self._ignoring = True  # input after the last request is ignored
        else:
            reason = "its target is malformed" if ours else str(error)
            other_version = reason == "Invalid HTTP version" or "PRI" in reason
            self._refuse(505 if other_version else 400, f"This is not a request of HTTP/1.1: {reason}")

    def _ignore_upgrade(self) -> None:
        """Ignore a request for another protocol (RFC 9110 §7.8): parse its head again without the Upgrade headers.

        Some clients send them with the first request of each connection, together with a body.
        """
        method, headers = self._parser.get_method(), self._headers
        if method == b"CONNECT":
            self._refuse(405, "This server is not a proxy")
            return
        remaining = [(name, value) for name, value in headers if name not in _UPGRADE and name != b"connection"]
        tokens = [value.strip() for name, values in headers if name == b"connection" for value in values.split(b",")]
        options = [token for token in tokens if token.lower() not in _UPGRADE]
        if options:
            remaining.append((b"connection", b", ".join(options)))
        lines = b"".join([b"%b: %b\r\n" % pair for pair in remaining])
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (method, self._url, lines)
        self._parser = httptools.HttpRequestParser(self)
        self._feed(head)

    def _refuse(self, status: int, text: str, kind: bytes = TEXT_TYPE) -> None:
        """Send an error after the responses to earlier requests, ignore further input, and close."""
        data = text.encode()
        head = self.server.heads[status, kind, True]
        self._final_response = b"%bcontent-length: %d\r\n\r\n%b" % (head, len(data), data)
        self._ignoring = True
        half, self._incoming = self._incoming, None
        if half is not None and half is not self._serving:
            self._waiting.remove(half)
        elif half is not None and half.status:
            self.transport.abort()
        elif half is not None:
            self._serving = None
            half.disconnected()
        if self._serving is None and not self._waiting:
            self._linger()

    # ---------------------------------------------------------------- one after the other

    def _serve(self, request: ServedRequest) -> None:
        self._serving = request
        self._used = True
        request.run(self.server.serve)

    def _next(self) -> None:
        if not self.full:
            self._serve(self._waiting.pop(0))
            if not self._waiting:
                self._ahead = 0
            if self._unparsed:
                self._parse(self._unparsed)
            self.resume()

    def answered(self, last: bool, /) -> None:
        self._serving = None
        self._since = self.server.tick
        if last:
            self._waiting.clear()
            self._final_response = b""
            self._linger()
        elif self._waiting:
            self._next()
        elif self._ignoring or self._half_closed:
            self._linger()
        elif self._paused:
            self.resume()

    def _linger(self) -> None:
        """Send the final response and close; if the client may still be sending, wait for it to close, within a limit."""
        sending = self._incoming is not None or bool(self._final_response) or self._paused
        self.transport.write(self._final_response)
        self._final_response = b""
        self._incoming = None
        self._unparsed = b""
        self._ignoring = True
        self._since = self.server.tick
        if not sending:
            self._close()
            return
        self.resume()
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()

    # ---------------------------------------------------------------- what requests do with it

    async def room(self) -> None:
        while self.full:
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()

    def pause(self) -> None:
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._paused and not self._unparsed:
            self._paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    # ---------------------------------------------------------------- the server

    @property
    def is_idle(self) -> bool:
        """Whether no request is being served."""
        return self._serving is None

    def close_if_idle(self, *, new: bool = True) -> None:
        """Close it unless a request is being served; without `new`, unless its first request is still to come.

        A request that is on its way finds the answer 408, with which a client may send it again on another connection, since
        nothing of it was read (RFC 9110 §15.5.9). Clients that send nothing see that the connection ends.
        """
        if self.is_idle and not self._ignoring and (new or self._used):
            self._refuse(408, *self.server.farewell)

    def _close(self) -> None:
        """Close regularly: what was written is still sent."""
        self._since = self.server.tick
        self.transport.close()

    def sweep(self, tick: int) -> None:
        """Close the connection if it makes no progress."""
        waited, closing = tick - self._since, self.transport.is_closing()
        if waited >= UNUSED and self._incoming is None and not (self._in_head or self._final or self._ignoring):
            self._parser = self._form = None  # a client with a stream may send nothing more for hours
        if self.full or closing:
            size = self.transport.get_write_buffer_size()
            if size < self._unsent:
                self._since = tick
            elif waited >= self.server.stall:
                self.transport.abort()
            self._unsent = size
        elif self._serving is not None:
            if self._half_closed:
                self._abort_if_reset()
        elif self._ignoring:
            if waited >= LINGER:
                self.transport.abort()
        elif waited >= (IDLE if self._used and not self._in_head and self._incoming is None else HEAD_WAIT):
            self._close()


@lru_cache(maxsize=64)
def _shared_scope(scheme: str, address: Any) -> Scope:
    """What the scopes of all requests to one address have in common."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": scheme,
        "server": _address(address),
        "root_path": "",
    }


def _parse_target(target: bytes) -> tuple[str, bytes, bytes]:
    """Split a target into path, undecoded path, query. Raises an httptools error if it is malformed: the parser passes it on."""
    parsed = httptools.parse_url(target)
    raw_path = parsed.path or b"/"
    path = raw_path.decode("ascii")
    return unquote(path) if "%" in path else path, raw_path, parsed.query or b""


def _address(address: Any) -> tuple[str, int | None] | None:
    """Return an address as ASGI has it: host and port, or the path of a Unix socket (the name of a pipe) and None."""
    if isinstance(address, tuple):
        return (str(address[0]), int(address[1]))
    return (str(address), None) if address else None


def _content_length(scope: Scope) -> int:
    """The length of a body, 0 if it comes in chunks. The parser has checked the header."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)
