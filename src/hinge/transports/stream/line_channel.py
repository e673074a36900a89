"""The channel of every byte stream (stdio, sockets): lines in, lines out, back-pressure both ways, a clear end.

It is an asyncio protocol, so it runs on whatever transport the loop or `descriptors.py` gives it; it opens nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from hinge import jsonrpc
from hinge.channel import ChannelKind, Conversation
from hinge.errors import ChannelClosed, ParseError, ProtocolError
from hinge.protocol.calls import UNKNOWN_ORIGIN, Origin, Outgoing
from hinge.protocol.limits import Limits
from hinge.transports.duplex import Pump
from hinge.transports.stream.framing import LineSplitter, Overlong, join_lines, one_line

logger = logging.getLogger("hinge")

#: A reader that is behind must take this part of `limits.stream_bytes` in each `limits.stream_wait`, or it is given up.
LEAST_SHARE = 16
#: Seconds that the last answers have to leave when the time to stop is over.
LAST_WORDS = 0.1
#: Bytes that are written without waiting for the end of the loop's turn: a turn may be long.
ONE_WRITE = 65536


class LineChannel(Pump, asyncio.Protocol):
    """A Channel over a byte stream.

    What is written within one turn of the loop leaves in one write. While more than `limits.stream_bytes` wait for the
    peer, `send` waits; when as many bytes of answers have come on top, nothing more is read. A peer that doesn't take
    them ends the channel after `limits.stream_wait` seconds. `on_closed` is called once, when all is over.
    """

    def __init__(
        self,
        kind: ChannelKind,
        limits: Limits,
        *,
        server: bool,
        origin: Origin = UNKNOWN_ORIGIN,
        on_closed: Callable[[LineChannel], None] | None = None,
    ) -> None:
        super().__init__(limits, server=server, origin=origin)
        self._kind: ChannelKind = kind
        self._on_closed = on_closed
        self._lines = LineSplitter(limits.line)
        #: Whether bytes came since somebody set it to False.
        self.heard = False
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._queued = 0
        self._turn_pending = False
        self._held_back: set[str] = set()
        self._writable = asyncio.Event()
        self._writable.set()
        #: Bytes of answers written since the peer fell behind, and the last look at how far it is.
        self._owed = 0
        self._written = 0
        self._taken = 0
        self._stall: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._closed = asyncio.Event()

    @property
    def kind(self) -> ChannelKind:
        """Which sort of channel."""
        return self._kind

    # ---------------------------------------------------------------- the channel's life

    def begin(self, conversation: Conversation) -> None:
        """Feed this conversation; nothing is read before."""
        super().begin(conversation)
        self._allow("start")

    async def send(self, message: Outgoing, /) -> None:
        """Write the message; wait while the peer is behind. Raises ChannelClosed if it never left.

        The first message of a turn leaves at once, the others of that turn together at its end.
        """
        while self.reason is None and not self._writable.is_set():
            await self._writable.wait()
        if self.reason is not None:
            raise ChannelClosed(self.reason)
        data = one_line(message.data)
        self._out.append(data)
        self._queued += len(data)
        if not self._turn_pending:
            self._turn_pending = True
            self._loop.call_soon(self._end_turn)
            self._flush()
        elif self._queued > ONE_WRITE:
            self._flush()

    async def close(self) -> None:
        """End the channel: what was written leaves first, for at most `limits.teardown` seconds."""
        self._shut("the channel was closed on this side")
        try:
            async with asyncio.timeout(self.limits.teardown):
                await self._closed.wait()
        except TimeoutError:
            self.abort("the channel was closed on this side")
            await self._closed.wait()

    def stop(self, why: str, within: float) -> None:
        """Read nothing more, finish the calls that run, close; what runs after `within` seconds fails, and gets no more time."""
        self._prevent("stop")
        self.end_input(why)
        if not self._closed.is_set():
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = self._loop.call_later(within, self._run_out, why)

    def _run_out(self, why: str) -> None:
        self._deadline = self._loop.call_later(LAST_WORDS, self._cut_off, why)
        self._expire(why)

    def abort(self, reason: str) -> None:
        """End the channel now; what is not written yet is lost."""
        self.end_conversation(reason)
        if self._transport is not None:
            self._transport.abort()
        else:
            self.connection_lost(None)

    async def wait_closed(self) -> None:
        """Wait for the end, whoever brings it about."""
        await self._closed.wait()

    # ---------------------------------------------------------------- what the byte stream says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(high=self.limits.stream_bytes)
        if self._conversation is None:
            self._prevent("start")
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        self.heard = True
        for line in self._lines.feed(data):
            self.feed(line)
        if self._lines.discarded:
            self._refuse_discarded()

    def eof_received(self) -> bool:
        """The peer will send no more. The other direction stays open until all is answered."""
        self._last_line()
        self.end_input("the peer closed its end")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream is gone, both ways."""
        why = f" ({exc})" if exc else ""
        self.end_conversation(f"the peer closed the connection{why}")
        self._transport = None
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
        """The peer is behind: senders wait, and its patience is measured."""
        self._writable.clear()
        self._owed = 0
        self._watch()

    def resume_writing(self) -> None:
        """The peer caught up."""
        if self._stall is not None and self.reason is None:
            self._stall.cancel()
            self._stall = None
        self._allow("output")
        self._writable.set()

    # ---------------------------------------------------------------- output

    def _reply(self, message: Outgoing, *, last: bool) -> None:
        if self.reason is not None:
            return
        data = one_line(message.data)
        self._out.append(data)
        self._queued += len(data)
        if not self._writable.is_set():
            self._owed += len(data)
            if self._owed > self.limits.stream_bytes:
                self._prevent("output")
        if last or self._queued > ONE_WRITE:
            self._flush()
        elif not self._turn_pending:
            self._turn_pending = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_pending = False
        if self._out:
            self._flush()

    def _flush(self) -> None:
        if self._transport is not None and self._out:
            data = join_lines(self._out)
            self._out.clear()
            self._queued = 0
            self._written += len(data)
            self._transport.write(data)

    def _end_output(self) -> None:
        if self._transport is None:
            self.connection_lost(None)
            return
        self._flush()
        self._writable.set()
        self._watch()
        self._transport.close()

    def _watch(self) -> None:
        """Look again after `stream_wait` whether the peer has taken what it should."""
        if self._stall is None and self._transport is not None:
            self._taken = self._written - self._transport.get_write_buffer_size()
            self._stall = self._loop.call_later(self.limits.stream_wait, self._check_stall)

    def _check_stall(self) -> None:
        self._stall = None
        if self._transport is None:
            return
        waiting = self._transport.get_write_buffer_size()
        taken = self._written - waiting - self._taken
        if waiting and taken < min(waiting, self.limits.stream_bytes // LEAST_SHARE):
            self._cut_off(f"the peer has not read for {self.limits.stream_wait:g} seconds, {waiting} bytes are waiting")
        else:
            self._watch()

    def _cut_off(self, reason: str) -> None:
        self._deadline = None
        self.abort(reason)

    # ---------------------------------------------------------------- input

    def _hold(self) -> None:
        self._prevent("backlog")

    def _release(self) -> None:
        self._allow("backlog")

    def _prevent(self, why: str) -> None:
        """Read nothing until every reason for it is gone."""
        if not self._held_back and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._held_back.add(why)

    def _allow(self, why: str) -> None:
        if why in self._held_back:
            self._held_back.discard(why)
            if not self._held_back and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def _last_line(self) -> None:
        """What came without a line end before the input ended. A client hears the reason of the end, not of a cut."""
        last = self._lines.end()
        if self._lines.discarded:
            self._refuse_discarded()
        if last is not None and (self._server or _is_whole(last)):
            self.feed(last)

    def _refuse_discarded(self) -> None:
        """Answer lines that were too long. An answer to us is passed on as a broken one, so that its call fails now."""
        for line in self._lines.discarded:
            text = f"a line of more than {self.limits.line} bytes was discarded"
            logger.warning("%s; the limit is the setting `limits.line`", text)
            if line.answers:
                self.feed(_broken_answer(line, text))
            else:
                error = ParseError(f"Parse error: {text}")
                data = jsonrpc.encode_failure(line.id, error.error)
                self._reply(Outgoing.failure(data, line.id, error, 400), last=False)
        self._lines.discarded.clear()


def _broken_answer(line: Overlong, text: str) -> bytes:
    """A response with neither result nor error: the conversation fails the call it belongs to, and shows the text."""
    if line.id is None:
        return jsonrpc.encode_value({"jsonrpc": "2.0", "result": {"discarded": text}})
    return jsonrpc.encode_value({"jsonrpc": "2.0", "id": line.id, "discarded": text})


def _is_whole(line: bytes) -> bool:
    try:
        jsonrpc.decode(line)
    except ProtocolError as exc:
        return not isinstance(exc, ParseError)
    return True
