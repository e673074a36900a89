"""One client connection that speaks HTTP/1.1: writes a request, parses the response, tells its pool when it is free.

Knows sockets through asyncio's transports and nothing of URLs, pools or MCP. httptools does the parsing.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from hinge.errors import ConnectionLost, HingeError, InvalidResponse

if TYPE_CHECKING:
    from hinge.http1.client.wire import WireResponse

#: The head of a response may be this long, and so may anything else that isn't content (chunk sizes, trailers).
HEAD_BYTES = 64 * 1024
#: Header lines of one response.
HEAD_LINES = 256
#: Content that waits for its reader; more is left in the socket.
BUFFER_BYTES = 256 * 1024
#: A response that nobody reads to its end may go on for so long and so many bytes before its connection is closed.
FINISH_SECONDS = 1.0
FINISH_BYTES = 64 * 1024


@cache
def _parser_class() -> Callable[[Any], Any]:
    from httptools import HttpResponseParser

    return HttpResponseParser


class _Junk(Exception):
    """The peer's bytes break a rule that the parser leaves to us."""


class Unpacker:
    """Undoes gzip, at most `BUFFER_BYTES` at a time."""

    __slots__ = ("_flate", "_rest", "waiting", "whole")

    def __init__(self) -> None:
        self._flate = zlib.decompressobj(wbits=31)
        self._rest = b""
        #: `unpack` may have more to give without being given more.
        self.waiting = False
        #: The data may end here.
        self.whole = True

    def unpack(self, data: bytes) -> bytes:
        """The next piece; b"" if it needs more. Raises InvalidResponse for what is not gzip."""
        data = self._rest + data
        try:
            if self._flate.eof and data:  # several members may follow one another
                self._flate = zlib.decompressobj(wbits=31)
            piece = self._flate.decompress(data, BUFFER_BYTES)
        except zlib.error as exc:
            raise InvalidResponse(f"The server says that its answer is gzip, but it isn't: {exc}") from exc
        self._rest = self._flate.unused_data if self._flate.eof else self._flate.unconsumed_tail
        # zlib may hold back output that its input is used up for.
        self.waiting = bool(self._rest) or len(piece) == BUFFER_BYTES
        self.whole = self._flate.eof and not self._rest
        return piece


class SocketResponse:
    """A response while it arrives; see WireResponse."""

    __slots__ = ("_chunks", "_connection", "_size", "_unpacker", "_waiter", "ended", "error", "headers", "status")

    def __init__(self, connection: SocketConnection) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        #: Everything has arrived.
        self.ended = False
        #: Why no more will arrive, when it broke off.
        self.error: HingeError | None = None
        self._connection = connection
        self._chunks: list[bytes] = []
        self._size = 0
        self._unpacker: Unpacker | None = None
        self._waiter: asyncio.Future[None] | None = None

    # ---------------------------------------------------------------- the connection's side

    def head_done(self) -> None:
        """Status and headers are complete."""
        coding = self.headers.get("content-encoding", "identity").lower()
        if coding in ("gzip", "x-gzip"):
            self._unpacker = Unpacker()
        elif coding not in ("identity", ""):
            raise _Junk(f"a content coding that was not asked for: {coding[:40]!r}")
        self.wake()

    def push(self, data: bytes) -> bool:
        """More content. True while there is room for still more."""
        self._chunks.append(data)
        self._size += len(data)
        self.wake()
        return self._size < BUFFER_BYTES

    def end(self, error: HingeError | None = None) -> None:
        """Nothing more comes: all is there, or it broke off with an error."""
        if not self.ended and self.error is None:
            self.ended, self.error = error is None, error
            self.wake()

    def wake(self) -> None:
        """Let the reader look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---------------------------------------------------------------- the reader's side

    async def head(self) -> WireResponse:
        """Wait for the head. Closes the connection if the wait is cancelled."""
        try:
            while not self.status:
                if self.error is not None:
                    raise self.error
                await self._wait()
        except BaseException:
            self.release()
            raise
        return self

    async def read(self) -> bytes:
        """The next piece of content; b"" at the end."""
        while True:
            if self._unpacker is not None:
                if self._unpacker.waiting:
                    await asyncio.sleep(0)  # little may hold very much: others have their turn between the pieces
                piece = self._unpacked(self._unpacker)
                if piece:
                    return piece
            elif self._chunks:
                return self._take()
            if self.error is not None:
                raise self.error
            if self.ended:
                return self._last()
            await self._wait()

    def release(self, *, finish: bool = False) -> None:
        """No more is wanted."""
        if not self.ended and self.error is None:
            self.end(ConnectionLost("The stream was closed on this side"))
            self._connection.abandon(self, finish=finish)
        self._chunks.clear()

    def _last(self) -> bytes:
        if self._unpacker is not None and not self._unpacker.whole:
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

    def _unpacked(self, unpacker: Unpacker) -> bytes:
        while unpacker.waiting or self._chunks:
            piece = unpacker.unpack(b"" if unpacker.waiting else self._take())
            if piece:
                return piece
        return b""

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


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
        self._transport: asyncio.Transport | None = None
        self._response: SocketResponse | None = None
        self._parser: Any = None
        #: When it became idle, by the loop's clock, and how long it may stay so; set by the pool.
        self.idle_since = 0.0
        self.idle_limit = 0.0
        self._busy = False
        self._whole = False
        self._interim = False
        self._until_eof = False
        self._keep = False
        self._keep_alive = ""
        self._paused = False
        self._overhead = 0
        self._lines = 0
        self._finish_left = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def usable(self) -> bool:
        """Whether a request can be sent now."""
        return self._transport is not None and not self._transport.is_closing() and not self._busy

    def send(self, head: bytes, body: bytes | None) -> SocketResponse:
        """Write a request; the connection must be usable. From here on it counts as sent."""
        assert self._transport is not None
        response = self._response = SocketResponse(self)
        self._busy, self._whole, self._until_eof = True, False, False
        self._overhead = self._lines = 0
        if not body:
            self._transport.write(head)
        elif len(body) <= HEAD_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines([head, body])
        return response

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def abandon(self, response: SocketResponse, *, finish: bool) -> None:
        """Nobody reads this response any more."""
        if response is not self._response:
            return
        self._response = None
        if not finish or not response.status:
            self.abort()
            return
        self._finish_left = FINISH_BYTES
        self._timer = asyncio.get_running_loop().call_later(FINISH_SECONDS, self.abort)
        self._resume()

    def resume(self, response: SocketResponse) -> None:
        """The reader has caught up."""
        if response is self._response:
            self._resume()

    def _resume(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # ---------------------------------------------------------------- asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._parser = _parser_class()(self)

    def data_received(self, data: bytes) -> None:
        """Bytes from the peer."""
        if not self._busy:
            self.abort()  # nobody asked: an answer now could be taken for the next request's
            return
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except Exception as exc:  # httptools wraps what its callbacks raise
            reason = exc.__context__ if isinstance(exc.__context__, _Junk) else exc
            self._fail(InvalidResponse(f"The server's answer is not valid HTTP: {reason}"))
            return
        if self._whole:
            self._finished()
        elif self._overhead > HEAD_BYTES:
            self._fail(InvalidResponse(f"The server sent more than {HEAD_BYTES} bytes of headers or framing"))

    def eof_received(self) -> None:
        """The peer will send no more; without a length that ends the content."""
        if self._until_eof and self._response is not None:
            self._response.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
        if self._response is not None:
            why = f": {exc}" if exc else ""
            when = "in the middle of its answer" if self._response.status else "without an answer"
            self._response.end(ConnectionLost(f"The server closed the connection {when}{why}"))
            self._response = None
        self._busy = True
        self._on_gone(self)

    def _fail(self, error: HingeError) -> None:
        if self._response is not None:
            self._response.end(error)
            self._response = None
        self.abort()

    def _finished(self) -> None:
        response, self._response = self._response, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if response is not None:
            response.end()
        assert self._transport is not None
        if not self._keep or self._transport.is_closing() or self._transport.get_write_buffer_size():
            self._transport.close()
            return
        self._busy = False
        self._resume()
        self._on_free(self, self._keep_alive)

    # ---------------------------------------------------------------- httptools calls these

    def on_message_begin(self) -> None:
        """The first byte of a response."""
        if self._whole:
            raise _Junk("more bytes than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one trailer, which is dropped."""
        response = self._response
        if response is None or response.status:
            return
        headers = response.headers
        self._lines += 1
        if self._lines > HEAD_LINES:
            raise _Junk(f"more than {HEAD_LINES} headers")
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1").strip(" \t")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """The head is there."""
        status = self._parser.get_status_code()
        response = self._response
        self._interim = status < 200
        if response is None:
            return
        if self._interim:
            if status == 101:
                raise _Junk("an upgrade that was not asked for")
            response.headers.clear()
            return
        coding = response.headers.get("transfer-encoding", "").lower()
        if coding not in ("", "chunked"):
            raise _Junk(f"a transfer coding that was not asked for: {coding[:40]!r}")
        self._until_eof = not coding and "content-length" not in response.headers and status not in (204, 304)
        self._overhead = 0
        response.status = status
        self._keep_alive = response.headers.get("keep-alive", "")
        response.head_done()

    def on_body(self, data: bytes) -> None:
        """A piece of content."""
        self._overhead = 0
        if self._response is None:
            self._finish_left -= len(data)
            if self._finish_left < 0:
                self.abort()
        elif not self._response.push(data) and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The response is whole."""
        if not self._interim:
            self._whole = True
            self._keep = self._parser.should_keep_alive()
