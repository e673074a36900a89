"""The event streams of a handshake session: what one client request (or the session itself) is told, and who reads it.

A stream outlives the HTTP response that carries it: its reader may leave and another one go on after the last event
(LHTTP-18). Must not know sessions, calls or what the messages mean.
"""

from __future__ import annotations

import asyncio

from hinge.errors import ChannelClosed
from hinge.protocol.calls import Outgoing
from hinge.protocol.http import sse
from hinge.protocol.http.media_types import TAKES_EVENTS, TAKES_JSON
from hinge.transports.http.server.exchange import Exchange
from hinge.transports.http.server.replay import ReplayLog


class Stream:
    """Events in order, each with an id. `retry` (milliseconds) is None where the revision knows no opening event.

    A stream that `keeps` holds what comes while nobody reads it, even before the first reader.
    """

    __slots__ = ("_given", "_keeps", "_log", "ended", "number", "reader", "retry")

    def __init__(self, number: int, log: ReplayLog, retry: int | None, *, keeps: bool = False) -> None:
        self.number = number
        self._log = log
        self.retry = retry
        #: From the first id on that a client was given, it can come back.
        self._keeps = keeps
        #: The position of the last event that a reader was given.
        self._given = 0
        self.reader: Reader | None = None
        self.ended = False

    async def put(self, message: Outgoing) -> None:
        """Send a message on this stream. Waits while its reader is slow; nobody else does.

        Raises ChannelClosed when it can reach nobody any more: the stream has ended, or its reader left without an id.
        """
        reader = self.reader
        if self.ended:
            raise ChannelClosed("the call is answered already")
        if reader is None:
            if not self._keeps:
                raise ChannelClosed("the client has left and can't come back to this stream")
            self._log.append(self.number, message.data)
        elif reader.takes & TAKES_EVENTS:
            self._give(reader, message.data)
            await reader.room()
        elif message.pending is not None:
            raise ChannelClosed("the client takes no event stream on this request, so it can't be asked anything")
        # Nothing above need have waited, and a handler that only sends would starve all others.
        await asyncio.sleep(0)

    def _give(self, reader: Reader, data: bytes) -> None:
        opening = self.opening()
        reader.feed(opening + self._log.append(self.number, data))
        self._given = self._log.position
        self._keeps = True

    def opening(self) -> bytes:
        """The event that a stream begins with; empty when it has begun, and where the revision has none (LHTTP-08)."""
        return b"" if self._keeps or self.ended else self._hint(self.retry)

    def _hint(self, retry: int | None) -> bytes:
        if self.retry is None:
            return b""
        self._keeps = True
        return self._log.mark(self.number, retry)

    def finish(self, reply: Outgoing | None) -> None:
        """The call is over: the reply, if there is one, is the last event, or a JSON body if no event came before."""
        reader = self.reader
        if reply is not None:
            if reader is not None and reader.takes & TAKES_JSON and not reader.streaming:
                reader.reply = reply
            elif reader is not None:
                self._give(reader, reply.data)
            elif self._keeps:
                self._log.append(self.number, reply.data)
        self.end()

    def end(self) -> None:
        """No more events; what is kept of them can still be read."""
        self.ended = True
        self._log.end(self.number)
        if self.reader is not None:
            self.reader.finish()

    def attach(self, reader: Reader, after: int | None) -> None:
        """Go on with this reader after a position; without one, after what was given to readers before it.

        Raises InvalidRequest when events after the position are no longer kept.
        """
        events = self._log.after(self.number, self._given if after is None else after)
        if self.reader is not None:
            self.reader.leave()
        self.reader = reader
        reader.stream = self
        # Events first: an opening event before them has a later id, and a client that got only that would miss them.
        reader.feed(b"".join(events) or self._hint(self.retry))
        self._given = self._log.position

    def release(self, retry: int) -> bool:
        """End the response that carries this stream; the client comes back after `retry` milliseconds (LHTTP-09).

        False where the revision doesn't let a server do so, or nobody reads.
        """
        reader = self.reader
        if self.retry is None or reader is None or not reader.takes & TAKES_EVENTS:
            return False
        reader.feed(self._hint(retry))
        self.reader = None
        reader.finish()
        return True


class Reader:
    """One HTTP response that carries a stream: what waits for a slow client is counted, and its sender waits."""

    __slots__ = ("_exchange", "_limit", "_pending", "_room", "_size", "_wake", "done", "reply", "stream", "takes")

    def __init__(self, exchange: Exchange, limit: int, *, takes: int) -> None:
        self._exchange = exchange
        self._limit = limit
        self._pending: list[bytes] = []
        self._size = 0
        self._wake: asyncio.Future[None] | None = None
        self._room: asyncio.Event | None = None
        self.takes = takes
        self.stream: Stream | None = None
        self.done = False
        #: The answer, when it is a body of its own.
        self.reply: Outgoing | None = None
        exchange.owner = self
        exchange.may_stream = takes & TAKES_EVENTS != 0

    def feed(self, event: bytes) -> None:
        """Hand over the bytes of events."""
        self._pending.append(event)
        self._size += len(event)
        self._notice()

    @property
    def streaming(self) -> bool:
        """The answer can no longer be a JSON body."""
        return self._exchange.streaming or bool(self._pending)

    def finish(self) -> None:
        """Nothing more will come."""
        self.done = True
        self._notice()

    def leave(self) -> None:
        """Another reader goes on: what wasn't written yet is its to write (LHTTP-16)."""
        self._pending.clear()
        self.finish()

    def _notice(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        if self.done and self._room is not None:
            self._room.set()

    async def room(self) -> None:
        """Wait until the client has taken enough of what was sent; bounded, since every write is."""
        while self._size > self._limit and not self.done:
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()

    async def run(self) -> None:
        """Carry the stream until it ends or its client leaves."""
        exchange = self._exchange
        try:
            while not exchange.over:
                if self._pending:
                    await self._flush()
                elif self.done:
                    await self._end()
                else:
                    self._wake = asyncio.get_running_loop().create_future()
                    await self._wake
        except ChannelClosed:
            return
        finally:
            self.gone("")

    async def _flush(self) -> None:
        chunk = b"".join(self._pending)
        self._pending.clear()
        await self._exchange.write(chunk)
        self._size -= len(chunk)
        if self._room is not None:
            self._room.set()

    async def _end(self) -> None:
        reply, exchange = self.reply, self._exchange
        if reply is None:
            await exchange.end()
        elif exchange.streaming:
            # A keep-alive came first and made it a stream.
            await exchange.end(sse.encode(reply.data))
        else:
            await exchange.reply(reply.status, reply.data)

    # ---------------------------------------------------------------- the exchange

    def gone(self, reason: str) -> None:
        """The client left: the stream goes on without a reader (T-13)."""
        self.done = True
        if self.stream is not None and self.stream.reader is self:
            self.stream.reader = None
        self._notice()

    def stop(self, reason: str) -> None:
        """Nothing runs for this response alone."""

    def opening(self) -> bytes:
        """Asked when a keep-alive begins the stream."""
        return self.stream.opening() if self.stream is not None else b""
