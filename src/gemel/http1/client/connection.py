"""One client connection that speaks HTTP/1.1: writes a request, parses the response, tells its pool when it is free.

Knows sockets through asyncio's transports and nothing of URLs, pools or MCP. httptools does the parsing.
"""

from __future__ import annotations

import asyncio
import select
import ssl
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from gemel.errors import ConnectionLost, GemelError, InvalidResponse, NotSent
from gemel.http1.client.network import OTHER_CLIENT, explain_tls, wants_certificate
from gemel.http1.client.wire import BODY_PROGRESS
from gemel.loops import end_connection

#: The head of a response may be this long, and so may anything else that isn't content (chunk sizes, trailers).
HEAD_BYTES = 64 * 1024
#: Header lines of one response.
HEAD_LINES = 256
#: A longer body is sent in pieces of this size, as the server takes them.
PIECE_BYTES = 256 * 1024
#: Content that is buffered until it is read; more is left in the socket.
BUFFER_BYTES = 256 * 1024
#: A response that was closed before its end may go on for so long and so many bytes before its connection is closed.
DRAIN_SECONDS = 1.0
DRAIN_BYTES = 64 * 1024
#: Names of encodings of characters, which some servers give as the coding of the content: it has none.
_CHARSETS = ("utf-8", "utf8")
#: Type, flags and stream of the frame with which a server of HTTP/2 begins (RFC 9113, section 3.4), after its length.
_HTTP2_SETTINGS = b"\x04\x00\x00\x00\x00\x00"


@cache
def _parser_class() -> Callable[[Any], Any]:
    from httptools import HttpResponseParser

    return HttpResponseParser


class _ProtocolViolation(Exception):
    """The bytes of the server break a rule that the parser does not check."""


class _ResponseHead(NamedTuple):
    """What the header lines of a response say. Responses with the same lines share it."""

    #: By lower-case name.
    headers: Mapping[str, str]
    #: Whether the content says where it ends, by its length or by chunks.
    has_end: bool
    keep_alive: str
    #: Whether the content is gzip.
    is_packed: bool


class Unpacker:
    """Decompresses gzip, at most `BUFFER_BYTES` at a time."""

    __slots__ = ("_inflater", "_unread", "complete", "waiting")

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(wbits=31)
        self._unread = b""
        #: Whether `unpack` has more output without further input.
        self.waiting = False
        #: Whether the data may end here.
        self.complete = True

    def unpack(self, data: bytes) -> bytes:
        """Return the next piece; b"" if more input is needed. Raises InvalidResponse if it is not gzip."""
        data = self._unread + data
        try:
            if self._inflater.eof and data:  # several members may follow one another
                self._inflater = zlib.decompressobj(wbits=31)
            piece = self._inflater.decompress(data, BUFFER_BYTES)
        except zlib.error as exc:
            raise InvalidResponse(f"The server says that its answer is gzip, but it isn't: {exc}") from exc
        self._unread = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
        # zlib may have output left although all of its input is consumed.
        self.waiting = bool(self._unread) or len(piece) == BUFFER_BYTES
        self.complete = self._inflater.eof and not self._unread
        return piece


class SocketResponse:
    """A response while it arrives; see WireResponse."""

    __slots__ = ("_chunks", "_connection", "_size", "_unpacker", "_waiter", "ended", "error", "headers", "status")

    def __init__(self, connection: SocketConnection) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        #: Everything has arrived.
        self.ended = False
        #: Why no more will arrive, when it broke off.
        self.error: GemelError | None = None
        self._connection = connection
        self._chunks: list[bytes] = []
        self._size = 0
        self._unpacker: Unpacker | None = None
        self._waiter: asyncio.Future[None] | None = None

    # ---------------------------------------------------------------- the connection's side

    def head_done(self, status: int, head: _ResponseHead) -> None:
        """Status and headers are complete."""
        self.status, self.headers = status, head.headers
        if head.is_packed:
            self._unpacker = Unpacker()
        self.wake()

    def push(self, data: bytes) -> bool:
        """Add content. Returns whether there is room for more."""
        self._chunks.append(data)
        self._size += len(data)
        self.wake()
        return self._size < BUFFER_BYTES

    def end(self, error: GemelError | None = None) -> None:
        """End the response: it is complete, or it broke off with an error."""
        if not self.ended and self.error is None:
            self.ended, self.error = error is None, error
            self.wake()

    def wake(self) -> None:
        """Wake the reader."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ---------------------------------------------------------------- the reader's side

    @property
    def finished(self) -> bool:
        """See WireResponse."""
        return self.ended and not self._chunks and self._unpacker is None

    def wait(self) -> asyncio.Future[None]:
        """What is done when the head has arrived, more content, or the end. For one waiter."""
        waiter = self._waiter = self._connection.loop.create_future()
        return waiter

    async def read(self) -> bytes:
        """The next piece of content; b"" at the end."""
        while True:
            if self._unpacker is not None:
                if self._unpacker.waiting:
                    await asyncio.sleep(0)  # a small input may become very long: let other tasks run
                if self._unpacker.waiting or self._chunks:
                    piece = self._unpacker.unpack(b"" if self._unpacker.waiting else self._take())
                    if piece:
                        return piece
                    continue
            elif self._chunks:
                return self._take()
            if self.error is not None:
                raise self.error
            if self.ended:
                return self._last()
            await self.wait()

    def close(self, *, drain: bool = False) -> None:
        """See WireResponse.close."""
        if not self.ended and self.error is None:
            self.end(ConnectionLost("The stream was closed on this side"))
            self._connection.leave(self, drain=drain)
        self._chunks.clear()

    def _last(self) -> bytes:
        if self._unpacker is not None and not self._unpacker.complete:
            raise ConnectionLost("The server's compressed answer broke off")
        return b""

    def _take(self) -> bytes:
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        full = self._size >= BUFFER_BYTES
        self._size = 0
        if full:
            self._connection.resume(self)
        return data


class SocketConnection(asyncio.Protocol):
    """One connection: one request at a time, each with its response.

    `on_free` is called with the server's Keep-Alive header when a response has arrived whole and the connection can
    carry another request, `on_gone` once when it can't any more.
    """

    def __init__(
        self, on_free: Callable[[SocketConnection, str], None], on_gone: Callable[[SocketConnection], None]
    ) -> None:
        self._on_free = on_free
        self._on_gone = on_gone
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._response: SocketResponse | None = None
        self._parser: Any = None
        self._poller: Any = None
        #: When it became idle, by the loop's clock, and how long it may stay so; set by the pool.
        self.idle_since = 0.0
        self.idle_limit = 0.0
        #: Why it can't carry a request any more, if it could never carry one.
        self.reason = "it closed the connection at once"
        #: Nothing has come from the server yet.
        self._is_new = True
        self._busy = False
        self._response_complete = False
        self._interim = False
        self._until_eof = False
        self._keep = False
        self._keep_alive = ""
        self._paused = False
        #: What remains to be written of the body.
        self._unsent: memoryview | None = None
        self._on_body_progress: Callable[[], None] | None = None
        self._writing_paused = False
        self._overhead = 0
        #: The header lines of the response that is arriving; the last ones that could be read, and what they say.
        self._lines: list[tuple[bytes, bytes]] = []
        self._known_lines: list[tuple[bytes, bytes]] = []
        self._known_head = _read_head([])
        self._drain_left = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def usable(self) -> bool:
        """Whether a request can be sent now."""
        return self._transport is not None and not self._transport.is_closing() and not self._busy

    @property
    def has_input(self) -> bool:
        """Whether something waits in the socket: bytes, or the end of the connection; True if it can't be known."""
        return self._poller is None or bool(self._poller.poll(0))

    def send(self, head: bytes, body: bytes | None) -> SocketResponse:
        """Write a request; the connection must be usable. From here on it counts as sent."""
        assert self._transport is not None
        response = self._response = SocketResponse(self)
        self._busy, self._response_complete, self._until_eof = True, False, False
        self._overhead = 0
        self._lines = []
        if not body:
            self._transport.write(head)
        elif len(body) <= HEAD_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._unsent, self._on_body_progress = memoryview(body), BODY_PROGRESS.get()
            self._send_pieces()
        return response

    def _send_pieces(self) -> None:
        while self._unsent and not self._writing_paused and self._transport is not None:
            piece, self._unsent = self._unsent[:PIECE_BYTES], self._unsent[PIECE_BYTES:]
            self._transport.write(piece)

    def end_without_loop(self) -> None:
        """Close it although its event loop is closed."""
        if self._transport is not None:
            end_connection(self._transport)

    def cut(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def leave(self, response: SocketResponse, *, drain: bool) -> None:
        """Close the connection, or read the rest of the response to use it again."""
        if response is not self._response:
            return
        self._response = None
        if not drain or not response.status:
            self.cut()
            return
        self._drain_left = DRAIN_BYTES
        self._timer = self.loop.call_later(DRAIN_SECONDS, self.cut)
        self._resume()

    def resume(self, response: SocketResponse) -> None:
        """Read again: the buffered content was taken."""
        if response is self._response:
            self._resume()

    def _resume(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # ---------------------------------------------------------------- asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        self._parser = _parser_class()(self)
        if hasattr(select, "poll"):  # not on Windows
            self._poller = select.poll()
            self._poller.register(transport.get_extra_info("socket"), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Bytes from the peer."""
        if not self._busy:
            self.reason = _http2_hint(data) or "it sent data before a request"
            self.cut()  # this could be taken for the response to the next request
            return
        self._overhead += len(data)
        self._is_new = False
        try:
            self._parser.feed_data(data)
        except Exception as exc:  # httptools wraps what its callbacks raise
            if (
                self._response_complete
            ):  # what follows belongs to no request (RFC 9112 §6.3), such as the 408 of a server that stops
                self._keep = False
                self._complete()
                return
            reason = exc.__context__ if isinstance(exc.__context__, _ProtocolViolation) else exc
            self._fail(InvalidResponse(f"The server's answer is not valid HTTP: {_http2_hint(data) or reason}"))
            return
        if self._response_complete:
            self._complete()
        elif self._overhead > HEAD_BYTES:
            self._fail(InvalidResponse(f"The server sent more than {HEAD_BYTES} bytes of headers or framing"))

    def pause_writing(self) -> None:
        """The server is slow to take the request."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """The server has taken what was written."""
        self._writing_paused = False
        if self._unsent and self._on_body_progress is not None:
            self._on_body_progress()
        self._send_pieces()

    def eof_received(self) -> None:
        """The server sends no more; this ends content without a length."""
        if self._until_eof and self._response is not None:
            self._response.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
        if self._response is not None:
            self._response.end(self._lost(self._response, exc))
            self._response = None
        self._busy = True
        self._unsent = None
        self._on_gone(self)

    def _lost(self, response: SocketResponse, exc: Exception | None) -> GemelError:
        """The error for a response that broke off, or did not come."""
        if self._is_new and isinstance(exc, ssl.SSLError) and wants_certificate(exc):
            # With TLS 1.3 a client learns only after its first request that the server ended the handshake: nothing ran.
            return NotSent(f"No TLS: {explain_tls(exc)}")
        reason = f": {exc}" if exc else ""
        when = "in the middle of its answer" if response.status else "without an answer"
        return ConnectionLost(f"The server closed the connection {when}{reason}")

    def _fail(self, error: GemelError) -> None:
        if self._response is not None:
            self._response.end(error)
            self._response = None
        self.cut()

    def _complete(self) -> None:
        response, self._response = self._response, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if response is not None:
            response.end()
        assert self._transport is not None
        unsent, self._unsent = self._unsent, None
        if not self._keep or self._transport.is_closing() or unsent or self._transport.get_write_buffer_size():
            self._transport.close()
            return
        self._busy = False
        self._resume()
        self._on_free(self, self._keep_alive)

    # ---------------------------------------------------------------- httptools calls these

    def on_message_begin(self) -> None:
        """The first byte of a response."""
        if self._response_complete:
            raise _ProtocolViolation("more bytes than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one trailer, which is dropped."""
        response = self._response
        if response is None or response.status:
            return
        self._lines.append((name, value))
        if len(self._lines) > HEAD_LINES:
            raise _ProtocolViolation(f"more than {HEAD_LINES} headers")

    def on_headers_complete(self) -> None:
        """The head is there."""
        status = self._parser.get_status_code()
        response = self._response
        self._interim = status < 200
        lines, self._lines = self._lines, []
        if response is None:
            return
        if self._interim:
            if status == 101:
                raise _ProtocolViolation("an upgrade that was not asked for")
            return
        if lines != self._known_lines:  # a server sends the same ones for a second
            self._known_head, self._known_lines = _read_head(lines), lines
        head = self._known_head
        self._until_eof = not head.has_end and status not in (204, 304)
        self._overhead = 0
        self._keep_alive = head.keep_alive
        response.head_done(status, head)

    def on_body(self, data: bytes) -> None:
        """A piece of content."""
        self._overhead = 0
        if self._response is None:
            self._drain_left -= len(data)
            if self._drain_left < 0:
                self.cut()
        elif not self._response.push(data) and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The response is whole."""
        if not self._interim:
            self._response_complete = True
            self._keep = self._parser.should_keep_alive()


def _read_head(lines: Sequence[tuple[bytes, bytes]]) -> _ResponseHead:
    """Read header lines: values of the same name are joined. Raises _ProtocolViolation for a coding that was not asked for."""
    headers: dict[str, str] = {}
    for name, value in lines:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    transfer, content = (headers.get(name, "").lower() for name in ("transfer-encoding", "content-encoding"))
    if transfer not in ("", "chunked"):
        raise _ProtocolViolation(f"a transfer coding that was not asked for: {transfer[:40]!r}")
    if content not in ("", "identity", "gzip", "x-gzip", *_CHARSETS):
        raise _ProtocolViolation(f"a content coding that was not asked for: {content[:40]!r}")
    has_end = bool(transfer) or "content-length" in headers
    return _ResponseHead(
        MappingProxyType(headers), has_end, headers.get("keep-alive", ""), content in ("gzip", "x-gzip")
    )


def _http2_hint(data: bytes) -> str:
    return f"the server speaks HTTP/2 only: {OTHER_CLIENT}" if data[3:9] == _HTTP2_SETTINGS else ""
