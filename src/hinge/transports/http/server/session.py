"""A handshake session over HTTP: one channel that lives across requests, each call with a stream of its own.

Knows which stream a message leaves on. Must not know how sessions are found, made or expired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hinge.channel import ChannelKind, Conversation, Serve
from hinge.errors import ChannelClosed
from hinge.protocol.calls import Batch, Call, Outgoing
from hinge.protocol.http.media_types import TAKES_EVENTS
from hinge.schema.revisions import knows
from hinge.transports.http.server.exchange import Exchange
from hinge.transports.http.server.options import HttpSettings
from hinge.transports.http.server.replay import ReplayLog
from hinge.transports.http.server.stateless import refusal_of
from hinge.transports.http.server.streams import Reader, Stream

#: The number of the stream that GET opens: what belongs to no call.
STANDING = 0


class HttpSession:
    """The channel of one session. `touch(session)` is called whenever it becomes busy or idle."""

    __slots__ = (
        "_log",
        "_next_stream",
        "_options",
        "_routes",
        "_stopping",
        "_streams",
        "_tasks",
        "_touch",
        "closed",
        "conversation",
        "id",
        "principal",
        "readers",
        "revision",
    )

    kind: ChannelKind = "session"

    def __init__(
        self,
        session_id: str,
        principal: str | None,
        options: HttpSettings,
        serve: Serve,
        touch: Callable[[HttpSession], None],
    ) -> None:
        self.id = session_id
        self.principal = principal
        self._options = options
        self._touch = touch
        self._log = ReplayLog(options.limits.replay_events, options.limits.replay_bytes)
        self._next_stream = STANDING
        #: Streams that haven't ended, by number; `_routes` leads to them by the call itself, never by its id (B-018).
        self._streams: dict[int, Stream] = {}
        self._routes: dict[Call, Stream] = {}
        self._tasks: dict[asyncio.Task[None], Call | Batch] = {}
        self._stopping = False
        #: Open responses that carry a stream.
        self.readers = 0
        #: Why it is over; empty while it lives.
        self.closed = ""
        #: The negotiated revision, as far as a call has told.
        self.revision = ""
        self.conversation: Conversation = serve(self)

    @property
    def busy(self) -> bool:
        """A call runs or a stream is open: never idle, however long it takes."""
        return bool(self._tasks) or self.readers > 0

    # ---------------------------------------------------------------- calls

    async def serve(self, call: Call | Batch, exchange: Exchange, takes: int) -> None:
        """Serve a call and carry its stream. The call goes on when the client leaves (T-13)."""
        self._next_stream += 1
        reader = Reader(exchange, self._options.limits.stream_bytes, takes=takes)
        stream = Stream(self._next_stream, self._log, self._retry(call))
        stream.reader, reader.stream = reader, stream
        self._streams[stream.number] = stream
        for one in call.calls if isinstance(call, Batch) else (call,):
            self._routes[one] = stream
        self._start(self._answer(call, stream), call)
        await self._carry(reader)

    def _retry(self, call: Call | Batch) -> int | None:
        """What a stream begins with depends on the revision that governs the call."""
        first = call if isinstance(call, Call) else next(iter(call.calls), None)
        if first is not None:
            self.revision = first.revision
        return self._hint()

    def _hint(self) -> int | None:
        return self._options.retry if self.revision and knows(self.revision, "priming event") else None

    async def _answer(self, call: Call | Batch, stream: Stream) -> None:
        reply: Outgoing | None = None
        try:
            reply = await self.conversation.answer(call)
        except asyncio.CancelledError:
            reply = Outgoing.interrupted(call)
            raise
        finally:
            if reply is None and self._stopping:
                reply = refusal_of(call)
            for one in call.calls if isinstance(call, Batch) else (call,):
                self._routes.pop(one, None)
            self._streams.pop(stream.number, None)
            stream.finish(reply)

    async def initialize(self, call: Call) -> Outgoing | None:
        """Serve the handshake in the caller's task; what is said meanwhile waits on the standing stream."""
        self._routes[call] = self.standing
        try:
            return await self.conversation.answer(call)
        finally:
            del self._routes[call]

    def notice(self, call: Call) -> None:
        """Serve a notification; nobody waits for it."""
        self.revision = call.revision
        self._start(self._ignore(call), call)

    async def _ignore(self, call: Call) -> None:
        await self.conversation.answer(call)

    def _start(self, work: asyncio._CoroutineLike[None], call: Call | Batch) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = call
        task.add_done_callback(self._done)
        self._touch(self)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._touch(self)

    async def _carry(self, reader: Reader) -> None:
        self.readers += 1
        self._touch(self)
        try:
            await reader.run()
        finally:
            self.readers -= 1
            self._touch(self)

    # ---------------------------------------------------------------- streams

    @property
    def standing(self) -> Stream:
        """The stream for what belongs to no call. What comes before a client opens it waits in the log."""
        stream = self._streams.get(STANDING)
        if stream is None:
            stream = self._streams[STANDING] = Stream(STANDING, self._log, None, keeps=True)
        # It may be older than the end of the handshake, which decides.
        stream.retry = self._hint()
        return stream

    async def listen(self, exchange: Exchange, last_event_id: str | None) -> None:
        """Carry the standing stream, or go on with the one that an event id names.

        Raises InvalidRequest for an id that this session doesn't know or whose successors are no longer kept.
        """
        after = None
        stream = self.standing
        if last_event_id is not None:
            number, after = self._log.find(last_event_id)
            # A stream that has ended lives on in the log alone.
            stream = self._streams.get(number) or Stream(number, self._log, None)
        reader = Reader(exchange, self._options.limits.stream_bytes, takes=TAKES_EVENTS)
        stream.attach(reader, after)
        if self._streams.get(stream.number) is not stream or self._stopping:
            reader.finish()
        await self._carry(reader)

    async def send(self, message: Outgoing, /) -> None:
        """Carry a message away: on the stream of the call that it is about, else on the standing one; never on two."""
        if self.closed:
            raise ChannelClosed(self.closed)
        if message.about is None:
            await self.standing.put(message)
            return
        stream = self._routes.get(message.about)
        if stream is None:
            raise ChannelClosed("the call is answered already")
        await stream.put(message)

    def close_stream(self, call: Call, retry_ms: int) -> bool:
        """End the response of a running call; the client polls for the rest after `retry_ms` (LHTTP-09).

        False, and nothing happens, where the revision knows no polling or nobody reads the stream.
        """
        stream = self._routes.get(call)
        return stream is not None and stream.release(retry_ms)

    # ---------------------------------------------------------------- the end

    def drain(self) -> None:
        """The server stops: the standing stream ends now, calls may still finish."""
        self._stopping = True
        standing = self._streams.get(STANDING)
        if standing is not None and standing.reader is not None:
            standing.reader.finish()

    def cancel_all(self, reason: str) -> None:
        """Stop what still runs."""
        for call in list(self._tasks.values()):
            self.conversation.cancel(call, reason)

    def end(self, reason: str) -> None:
        """The session is over: handlers stop, streams end. Twice is fine."""
        if not self.closed:
            self.closed = reason
            self.conversation.close(reason)
            for stream in list(self._streams.values()):
                stream.end()

    async def finish(self) -> None:
        """After `end`: wait, bounded, for handlers and clean-up."""
        await self.conversation.finish()

    async def close(self) -> None:
        """End the session from the inside."""
        self.end("the session was closed")
        self._touch(self)
        await self.finish()
