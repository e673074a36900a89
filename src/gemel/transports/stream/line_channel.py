"""The channel over a byte stream (stdio, sockets): one message per line, with back-pressure in both directions.

`LineSplitter` turns bytes into lines; `LineChannel` is an asyncio protocol and runs on any transport. A line ends at
`\\n` and nowhere else; one `\\r` before it is dropped, empty lines are ignored.

Specification: Transports, section "stdio".
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import cast

from gemel import jsonrpc
from gemel.channel import ChannelKind, SessionLike
from gemel.errors import ChannelClosed, ParseError, ProtocolError
from gemel.loops import Abandoned, end_connection
from gemel.protocol.limits import Limits, over_limit
from gemel.protocol.peer_log import warn_about_peer
from gemel.protocol.records import UNKNOWN_ORIGIN, LostAnswer, Origin, Outgoing
from gemel.transports.duplex import ByteBudget, DuplexChannel
from gemel.transports.stream.descriptors import FlowControl

logger = logging.getLogger("gemel")

#: A slow peer must read this fraction (1/n) of `limits.stream_bytes` in each `limits.stream_wait`, or the channel ends.
LEAST_SHARE = 16
#: Seconds for the last answers to be written after the time to stop is over.
FLUSH_SECONDS = 0.1
#: Bytes that are written at once instead of at the end of the event loop's iteration.
ONE_WRITE = 65536


#: Lines that are handled at once, or one batch. Between further ones, the event loop does other work.
LINES_AT_ONCE = 100

#: How many bytes are kept of the beginning of a line over the limit, to read its id.
HEAD = 4096


class Overlong:
    """A discarded line: its id, if it could be found, and whether it was a response or may have been one."""

    __slots__ = ("id", "is_response", "may_be_response")

    def __init__(self, head: bytes, tail: bytes) -> None:
        start = 0 if jsonrpc.is_batch(head) else max(head.find(b"{"), 0)  # a text may stand before the message
        outline = jsonrpc.Outline(head[start:], tail)
        self.is_response = "method" not in outline.names and not outline.names.isdisjoint(("result", "error"))
        self.may_be_response = "method" not in outline.names and b"{" in head
        self.id = outline.request_id


class LineSplitter:
    """Splits a byte stream into lines.

    Args:
        limit: Maximum bytes of a line. A longer one is discarded while it arrives.
    """

    __slots__ = ("_held", "_limit", "_tail", "discarded")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        #: The last bytes of a line that is being discarded; None if none is.
        self._tail: bytes | None = None
        #: Lines that were too long. The user of the splitter clears it.
        self.discarded: list[Overlong] = []

    @property
    def held(self) -> int:
        """Bytes of the line that is not complete."""
        return len(self._held)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without line ends and empty lines."""
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
                self._tail = bytes(self._held[-jsonrpc.TAIL :])
                del self._held[HEAD:]
        return [line[:-1] if line.endswith(b"\r") else line for line in lines if line not in (b"", b"\r")]

    def end(self) -> bytes | None:
        """Return the last line of the stream if it has no line end."""
        if self._tail is not None:
            self._discard(self._tail)
        line, self._held = bytes(self._held), bytearray()
        return line if line.strip() and self._fits(line) else None

    def _fits(self, line: bytes) -> bool:
        if len(line) <= self._limit or (len(line) == self._limit + 1 and line.endswith(b"\r")):
            return True
        self.discarded.append(Overlong(line[:HEAD], line[max(HEAD, len(line) - jsonrpc.TAIL) :]))
        return False

    def _skip(self, chunk: bytes, tail: bytes) -> bytes:
        """Discard up to the end of the line. Returns what follows."""
        end = chunk.find(b"\n")
        if end < 0:
            self._tail = (tail + chunk[-jsonrpc.TAIL :])[-jsonrpc.TAIL :]
            return b""
        self._discard((tail + chunk[max(0, end - jsonrpc.TAIL) : end])[-jsonrpc.TAIL :])
        return chunk[end + 1 :]

    def _discard(self, tail: bytes) -> None:
        self.discarded.append(Overlong(bytes(self._held), tail))
        self._held.clear()
        self._tail = None


def one_line(data: bytes) -> bytes:
    """Remove line breaks from JSON text. They can only be between tokens: inside a string they are escaped."""
    if data.find(b"\n") >= 0 or data.find(b"\r") >= 0:  # `in` is much slower for short texts
        return data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


class LineChannel(DuplexChannel, asyncio.Protocol):
    """A Channel over a byte stream.

    Messages of one iteration of the event loop leave in one write. While more than `limits.stream_bytes` wait for the
    peer, `send` waits; when as many bytes of answers are waiting besides, nothing more is read. A peer that doesn't read
    ends the channel after `limits.stream_wait` seconds.

    Args:
        kind: The kind of channel.
        limits: Limits of messages and waiting bytes.
        server: Whether this is the server's end, see `DuplexChannel`.
        origin: What is known about the peer.
        on_closed: Called once after the end.
        screen: Called with the first bytes that arrive. If it returns a reason, the channel ends with it.
        budget: What the incomplete lines of this channel and others may take, and messages that are held back.
    """

    def __init__(
        self,
        kind: ChannelKind,
        limits: Limits,
        *,
        server: bool,
        origin: Origin = UNKNOWN_ORIGIN,
        on_closed: Callable[[LineChannel], None] | None = None,
        screen: Callable[[bytes], str | None] | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        super().__init__(limits, server=server, origin=origin)
        self._kind: ChannelKind = kind
        self._on_closed = on_closed
        self._screen = screen
        self._lines = LineSplitter(limits.line)
        self._budget = budget
        #: Bytes that are counted there.
        self._counted = 0
        self.has_received = False
        #: Lines that arrived at once with many others, and what handles them next.
        self._waiting_lines: deque[bytes] = deque()
        self._more_lines: asyncio.Handle | None = None
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._queued = 0
        self._flush_pending = False
        self._pause_reasons: set[str] = set()
        self._writable = asyncio.Event()
        self._writable.set()
        #: Bytes of answers written since the peer fell behind, all bytes written, and those that it had read at the last check.
        self._unread_answers = 0
        self._written = 0
        self._read_by_peer = 0
        self._stall: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._closed = asyncio.Event()

    @property
    def kind(self) -> ChannelKind:
        """The kind of channel."""
        return self._kind

    # ---------------------------------------------------------------- beginning and end

    def begin(self, session: SessionLike) -> None:
        """Start the session. Nothing is read before."""
        super().begin(session)
        self._allow("start")

    async def send(self, message: Outgoing, /) -> None:
        """Write the message; wait while the peer is behind. Raises ChannelClosed if it was not written.

        The first message of an iteration of the event loop is written at once, further ones together at its end.
        """
        while self.reason is None and not self._writable.is_set():
            await self._writable.wait()
        if self.reason is not None:
            raise ChannelClosed(self.reason)
        data = one_line(message.data)
        self._out.append(data)
        self._queued += len(data)
        if not self._flush_pending:
            self._flush_pending = True
            self._loop.call_soon(self._end_iteration)
            self._flush()
        elif self._queued > ONE_WRITE:
            self._flush()

    async def close(self) -> None:
        """End the channel. What was sent is written first, for at most `limits.teardown` seconds."""
        self._shut("the channel was closed on this side")
        try:
            async with asyncio.timeout(self.limits.teardown):
                await self._closed.wait()
        except TimeoutError:
            self.abort("the channel was closed on this side")
            await self._closed.wait()

    def stop(self, why: str, within: float) -> None:
        """Read nothing more, let running calls finish for at most `within` seconds, fail the others, close."""
        self._prevent("stop")
        self.end_input(why)
        if not self._closed.is_set():
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = self._loop.call_later(within, self._stop_now, why)

    def _stop_now(self, why: str) -> None:
        self._deadline = self._loop.call_later(FLUSH_SECONDS, self.abort, why)
        self._stop_calls(why)

    def abort(self, reason: str) -> None:
        """End the channel at once. What was not written yet is lost."""
        self.end_session(reason)
        if self._transport is not None:
            self._transport.abort()
        else:
            self.connection_lost(None)

    def abandon(self, why: Abandoned, /) -> None:
        """See `AbandonableChannel`."""
        transport = self._transport
        if isinstance(transport, FlowControl):
            transport.abandon()
        elif transport is not None and why == "closed":
            end_connection(transport)

    async def wait_closed(self) -> None:
        """Wait until the channel has ended."""
        await self._closed.wait()

    # ---------------------------------------------------------------- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The byte stream is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._transport.set_write_buffer_limits(high=self.limits.stream_bytes)
        if self._session is None:
            self._prevent("start")
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Bytes arrived. After the end of the session they are dropped: a peer that goes on writing would fill the memory."""
        self.has_received = True
        if self.reason is not None:
            return
        if self._screen is not None:
            screen, self._screen = self._screen, None
            if (reason := screen(data)) is not None:
                self.abort(reason)
                return
        lines, held = self._lines.feed(data), self._lines.held
        if self._waiting_lines or (
            len(lines) > 1 and (len(lines) > LINES_AT_ONCE or any(line[:1] != b"{" for line in lines))
        ):
            self._waiting_lines += lines
            self._prevent("lines")
            self._feed_waiting_lines()
        else:
            for line in lines:
                self.feed(line)
        if self._lines.discarded:
            self._refuse_discarded()
        if held + self._backlog_bytes != self._counted:
            self._count_waiting()

    def _count_waiting(self) -> None:
        """Count an incomplete line and messages that are held back; abort if they are too many bytes."""
        if not self._count(self._lines.held + self._backlog_bytes) and self.reason is None:
            self._count(0)  # at once: others are not to be closed for it
            self.abort("too many bytes of incomplete lines, or of messages before the end of initialize, are waiting")

    def _count(self, waiting: int) -> bool:
        """Count bytes that wait. Returns False if they are too many."""
        before, self._counted = self._counted, waiting
        return self._budget is None or self._budget.change(before, waiting)

    def _count_backlog(self, change: int) -> None:
        super()._count_backlog(change)
        if change < 0 and self.reason is None:
            self._count(self._lines.held + self._backlog_bytes)

    def _feed_waiting_lines(self) -> None:
        """Handle some lines now, and the others in later iterations of the event loop. Nothing is read meanwhile."""
        if self._more_lines is not None:
            self._more_lines.cancel()
            self._more_lines = None
        for _ in range(min(LINES_AT_ONCE, len(self._waiting_lines))):
            line = self._waiting_lines.popleft()
            self.feed(line)
            if jsonrpc.is_batch(line):
                break
        if self._waiting_lines:
            self._more_lines = self._loop.call_soon(self._feed_waiting_lines)
        else:
            self._allow("lines")

    def eof_received(self) -> bool:
        """The peer sends no more. The other direction stays open until all calls are answered."""
        self._last_line()
        self.end_input("the peer closed its end", still_reads=self._kind == "socket")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The byte stream is closed in both directions."""
        why = f" ({exc})" if exc else ""
        if self.reason is None:
            self.failure = exc
        self._count(0)
        self.end_session(f"the peer closed the connection{why}")
        self._transport = None
        self._waiting_lines.clear()
        self._out.clear()
        for timer in (self._stall, self._deadline):
            if timer is not None:
                timer.cancel()
        self._stall = self._deadline = None
        self._writable.set()
        if not self._closed.is_set():
            self._closed.set()
            if self._on_closed is not None:
                self._on_closed(self)

    def pause_writing(self) -> None:
        """The peer is behind: `send` waits, and the peer must make progress."""
        self._writable.clear()
        self._unread_answers = 0
        self._watch()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        if self._stall is not None and self.reason is None:
            self._stall.cancel()
            self._stall = None
        self._allow("output")
        self._writable.set()

    # ---------------------------------------------------------------- output

    def reply(self, message: Outgoing, *, last: bool) -> None:
        if self.reason is not None:
            return
        data = one_line(message.data)
        self._out.append(data)
        self._queued += len(data)
        if not self._writable.is_set():
            self._unread_answers += len(data)
            if self._unread_answers > self.limits.stream_bytes:
                self._prevent("output")
        if last or self._queued > ONE_WRITE:
            self._flush()
        elif not self._flush_pending:
            self._flush_pending = True
            self._loop.call_soon(self._end_iteration)

    def _end_iteration(self) -> None:
        self._flush_pending = False
        if self._out:
            self._flush()

    def _flush(self) -> None:
        if self._transport is not None and self._out:
            data = b"\n".join([*self._out, b""])
            self._out.clear()
            self._queued = 0
            self._written += len(data)
            self._transport.write(data)

    def end_output(self) -> None:
        if self._transport is None:
            self.connection_lost(None)
            return
        self._flush()
        self._writable.set()
        self._watch()
        self._transport.close()

    def _watch(self) -> None:
        """Check after `limits.stream_wait` whether the peer has read enough."""
        if self._stall is None and self._transport is not None:
            self._read_by_peer = self._written - self._transport.get_write_buffer_size()
            self._stall = self._loop.call_later(self.limits.stream_wait, self._check_stall)

    def _check_stall(self) -> None:
        self._stall = None
        if self._transport is None:
            return
        waiting = self._transport.get_write_buffer_size()
        taken = self._written - waiting - self._read_by_peer
        if waiting and taken < min(waiting, self.limits.stream_bytes // LEAST_SHARE):
            reason = f"the peer has not read for {self.limits.stream_wait:g} seconds, {waiting} bytes are waiting"
            self.failure = TimeoutError(reason)
            self.abort(reason)
        else:
            self._watch()

    # ---------------------------------------------------------------- input

    def pause_reading(self) -> None:
        self._prevent("backlog")

    def resume_reading(self) -> None:
        self._allow("backlog")

    def _prevent(self, why: str) -> None:
        """Stop reading until `_allow` was called for every reason."""
        if not self._pause_reasons and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pause_reasons.add(why)

    def _allow(self, why: str) -> None:
        if why in self._pause_reasons:
            self._pause_reasons.discard(why)
            if not self._pause_reasons and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def _last_line(self) -> None:
        """Take a last line without line end. A client drops a truncated one: the end itself is its error."""
        while self._waiting_lines:
            self._feed_waiting_lines()
        last = self._lines.end()
        if self._lines.discarded:
            self._refuse_discarded()
        if last is not None and (self._server or _is_whole(last)):
            self.feed(last)

    def _refuse_discarded(self) -> None:
        """Answer lines that were too long. The request that an overlong answer is for fails now."""
        for line in self._lines.discarded:
            text = f"a line has more than {self.limits.line} bytes, the limit `limits.line`"
            self._warnings = warn_about_peer(self._warnings, "%s; it is ignored", text)
            if line.is_response or (line.may_be_response and not self._server):
                self.feed(LostAnswer(line.id, over_limit("its line", "line", self.limits.line)))
            elif self._server or line.id is not None:
                error = ParseError(f"Parse error: {text}")
                data = jsonrpc.encode_failure(line.id, error.error)
                self.reply(Outgoing.failure(data, line.id, error, 400), last=False)
        self._lines.discarded.clear()


def _is_whole(line: bytes) -> bool:
    try:
        jsonrpc.decode(line)
    except ProtocolError as exc:
        return not isinstance(exc, ParseError)
    return True
