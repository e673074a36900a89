"""An HTTP session of the handshake era: a channel that lives across requests, and the event streams that carry it.

The answer to a call is the JSON body of the response to its POST. If something is sent about the call before, the response
carries a stream for the call; what belongs to no call goes on the standing stream, which GET opens. A stream outlives its
response: the client may reconnect after the last event.
The handshake era is closed: this code is maintained, but gets no new features.

Specification (2025-11-25): Transports, sections "Session Management" and "Resumability and Redelivery".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence

from gemel.channel import ChannelKind, Serve, SessionLike
from gemel.errors import ChannelClosed, shorten
from gemel.jsonrpc import RequestId
from gemel.protocol.http.media_types import TAKES_EVENTS, TAKES_JSON
from gemel.protocol.http.request import Owner
from gemel.protocol.records import Batch, Call, Inbound, Origin, Outgoing
from gemel.protocol.states import CallState
from gemel.schema.revisions import knows
from gemel.session import INITIALIZED_SECONDS, Session
from gemel.transports.http.server.exchange import Exchange
from gemel.transports.http.server.options import HttpSettings
from gemel.transports.http.server.replay import ReplayLog, ReplayStore

logger = logging.getLogger("gemel")

#: The number of the stream that GET opens.
STANDING = 0


class HttpSession:
    """The channel of one HTTP session. `on_end(session)` is called once when it ends."""

    __slots__ = (
        "_greeting",
        "_interrupted",
        "_log",
        "_loop",
        "_next_stream",
        "_on_end",
        "_open_responses",
        "_options",
        "_posts",
        "_reader_came",
        "_retry",
        "_stopping",
        "_streams",
        "_tasks",
        "closed",
        "conversation",
        "failure",
        "holder",
        "id",
        "idle_since",
        "ordered_at",
        "owner",
        "revision",
    )

    kind: ChannelKind = "session"

    def __init__(
        self,
        session_id: str,
        owner: Owner,
        holder: Hashable,
        options: HttpSettings,
        serve: Serve,
        replay: ReplayStore,
        on_end: Callable[[HttpSession], None],
    ) -> None:
        self.id = session_id
        self.owner = owner
        #: Whose share of all sessions it takes.
        self.holder = holder
        self._options = options
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._log: ReplayLog = replay.open(session_id, holder)
        self._next_stream = STANDING
        #: Streams that have not ended, by number.
        self._streams: dict[int, SessionStream] = {}
        #: The response for each running call. The key is the call itself: ids are chosen by clients.
        self._posts: dict[Call, PostResponse] = {}
        self._tasks: dict[Call | Batch, asyncio.Task[None]] = {}
        #: Notifications that precede the result of `initialize`; None while that is not served.
        self._greeting: list[Outgoing] | None = None
        #: Set when the client opens the standing stream; None while nothing waits for that.
        self._reader_came: asyncio.Event | None = None
        self._stopping = False
        #: The calls that the server has cancelled because it stops.
        self._interrupted: list[Call | Batch] = []
        #: Open HTTP responses that carry a stream.
        self._open_responses = 0
        #: When it was last used; meaningful while it is not busy.
        self.idle_since = self._loop.time()
        #: What `idle_since` was when the sessions of its holder were ordered.
        self.ordered_at = self.idle_since
        #: Why it ended; empty while it lives.
        self.closed = ""
        #: What made it end; None while it lives, and if the client or the server ended it regularly.
        self.failure: BaseException | None = None
        #: The negotiated revision, once a call after the handshake has named it.
        self.revision = ""
        #: Milliseconds in the opening event of a stream; None if the revision has no such event.
        self._retry: int | None = None
        self.conversation: SessionLike = serve(self)

    @property
    def busy(self) -> bool:
        """Whether a call runs or a stream is open; a busy session is never idle."""
        return bool(self._tasks) or self._open_responses > 0

    @property
    def session(self) -> SessionLike:
        """The session of the server, whatever else `conversation` does."""
        return self.conversation

    def authorize(self, origin: Origin) -> None:
        """Judge what the session is told by the token of this request, its latest."""
        if isinstance(self.session, Session):
            self.session.authorize(origin)

    # ---------------------------------------------------------------- calls

    async def post(self, inbound: Inbound | bytes, origin: Origin, exchange: Exchange, accepts: int) -> None:
        """Take the message of one POST and carry its answer."""
        if origin.caller is not None:
            self.authorize(origin)
        got = self.conversation.receive(inbound, origin)
        self.idle_since = self._loop.time()
        if got is None or type(got) is Outgoing:
            await (exchange.empty(202) if got is None else exchange.answer(got))
            return
        calls: Sequence[Call]
        if type(got) is Batch:
            calls, is_answered = got.calls, bool(got.replies) or any(call.id is not None for call in got.calls)
        else:
            calls, is_answered = (got,), got.id is not None
        if not is_answered:
            for call in calls:
                self._learn(call.revision)
                self._start_notification(call, exchange)
            await exchange.empty(202)
        else:
            await self._serve(got, calls, exchange, accepts)

    async def _serve(self, got: Call | Batch, calls: Sequence[Call], exchange: Exchange, accepts: int) -> None:
        """Serve a request and carry its answer. The call goes on if the client leaves."""
        response = PostResponse(exchange, accepts, self._open_stream, self._loop.create_future())
        for call in calls:
            self._learn(call.revision)
            self._posts[call] = response
        self._start(self._answer(got, calls, response), got, exchange)
        try:
            await self._carry(response)
        except asyncio.CancelledError:  # the HTTP server gives up the exchange: answer first, it ends here either way
            reply = Outgoing.interrupted(got)
            if reply is None or response.ended:
                raise
            self.conversation.cancel(got, "its HTTP exchange was cancelled")
            response.answer(reply)
            await exchange.answer(reply)

    def _open_stream(self, exchange: Exchange) -> SessionStream:
        """Make a stream for the calls of one POST."""
        self._next_stream += 1
        stream = SessionStream(self._next_stream, self._log, self._retry)
        stream.response = response = StreamResponse(exchange, self._options.limits.stream_bytes)
        response.stream = self._streams[stream.number] = stream
        return stream

    def _learn(self, revision: str) -> None:
        if revision != self.revision:
            self.revision = revision
            self._retry = self._options.retry if knows(revision, "priming event") else None

    async def _answer(self, got: Call | Batch, calls: Sequence[Call], response: PostResponse) -> None:
        reply: Outgoing | None = None
        try:
            reply = await self.conversation.answer(got)
        except asyncio.CancelledError:
            reply = Outgoing.interrupted(got)
            raise
        finally:
            if reply is None and self._stopping:
                reply = Outgoing.unfinished(got, "the server is stopping")
            for call in calls:
                self._posts.pop(call, None)
            response.answer(reply)
            if response.stream is not None:
                self._streams.pop(response.stream.number, None)
            self._done(got)

    def _start_notification(self, call: Call, exchange: Exchange | None = None) -> None:
        if len(self._tasks) >= 2 * self._options.limits.calls:
            logger.warning("%s is dropped: too many calls and notifications are being handled", shorten(call.method))
        else:
            self._start(self._answer_notification(call), call, exchange)

    async def _answer_notification(self, call: Call) -> None:
        try:
            await self.conversation.answer(call)
        finally:
            self._done(call)

    async def initialize(
        self, inbound: Inbound | bytes, origin: Origin, accepts: int
    ) -> tuple[Outgoing | None, list[Outgoing]]:
        """Serve the handshake in the caller's task. Returns the answer, and the notifications that precede it.

        A client that takes no event stream gets those on the standing stream.
        """
        call = self.conversation.receive(inbound, origin)
        if not isinstance(call, Call):
            return call if isinstance(call, Outgoing) else None, []
        self._greeting = [] if accepts & TAKES_EVENTS else None
        try:
            reply = await self.conversation.answer(call)
            return reply, self._greeting or []
        finally:
            self._greeting = None

    def _start(self, work: asyncio._CoroutineLike[None], call: Call | Batch, exchange: Exchange | None) -> None:
        """Serve what `exchange` has brought, which may end before."""
        task = self._loop.create_task(work)
        if exchange is not None and exchange.large_body is not None:
            exchange.large_body.hold(task, call)
        if not task.done():  # a task factory may run it at once
            self._tasks[call] = task

    def _done(self, call: Call | Batch) -> None:
        self._tasks.pop(call, None)
        self.idle_since = self._loop.time()

    async def _carry(self, response: PostResponse | StreamResponse) -> None:
        self._open_responses += 1
        try:
            await response.run()
        finally:
            self._open_responses -= 1
            self.idle_since = self._loop.time()

    # ---------------------------------------------------------------- streams

    @property
    def standing(self) -> SessionStream:
        """The stream for what belongs to no call. Before a client opens it, messages wait in the replay log."""
        stream = self._streams.get(STANDING)
        if stream is None:
            stream = self._streams[STANDING] = SessionStream(STANDING, self._log, None, keeps=True)
        # The stream may be older than the negotiated revision.
        stream.retry = self._retry
        return stream

    async def fail_request(self, body: bytes, origin: Origin, request_id: RequestId | None) -> bool:
        """Fail the request of the server that a malformed response is for. Returns False if there is none."""
        return self.conversation.receive(body, origin) is None

    async def listen(self, exchange: Exchange, last_event_id: str | None) -> None:
        """Carry the standing stream, in place of an earlier response, or resume the stream that an event id names.

        Raises:
            InvalidRequest: The id is unknown in this session, or its successors are no longer kept.
        """
        position = None
        stream = self.standing
        if last_event_id is not None:
            number, position = await self._log.find(last_event_id)
            # A stream that has ended lives on in the replay log alone.
            stream = self._streams.get(number) or SessionStream(number, self._log, None)
        response = StreamResponse(exchange, self._options.limits.stream_bytes)
        await stream.attach(response, position)
        if stream.number == STANDING:
            self._reader_comes()
        if stream.ended or self._streams.get(stream.number) is not stream or self._stopping:
            response.end()
        await self._carry(response)

    async def send(self, message: Outgoing, /) -> None:
        """Send a message on the stream of the request that it belongs to, else on the standing stream; never on two."""
        about = message.about
        if self.closed:
            raise ChannelClosed(self.closed)
        if about is not None and about.inline and self._greeting is not None:
            self._greeting.append(message)
        elif about is None or about.inline or about.id is None:
            if message.pending is not None:
                await self._require_reader(about)
            await self.standing.put(message)
        elif (response := self._posts.get(about)) is not None:
            await response.put(message)
        else:
            raise ChannelClosed("the call is answered already")

    async def _require_reader(self, about: Call | None) -> None:
        """Raise ChannelClosed unless the client reads the standing stream, which it opens after `notifications/initialized`."""
        if await self.is_read():
            return
        if about is not None and about.method == "notifications/initialized":
            self._reader_came = came = self._reader_came or asyncio.Event()
            try:
                async with asyncio.timeout(INITIALIZED_SECONDS):
                    await came.wait()
            except TimeoutError:
                pass
            if await self.is_read():
                return
        raise ChannelClosed("the client has no stream open (GET) on which it could be asked")

    async def is_read(self) -> bool:
        """Whether the client reads the standing stream."""
        response = self.standing.response
        return response is not None and not response.done

    def _reader_comes(self) -> None:
        """The client has opened the standing stream."""
        if self._reader_came is not None:
            self._reader_came.set()
            self._reader_came = None

    def send_now(self, data: bytes, method: str, /) -> bool:
        """Send a notification on the standing stream, if its client reads or it is kept."""
        response = self.standing.response
        if response is not None and response.full:
            return False
        try:
            self.standing.add(Outgoing(data, None, method))
        except ChannelClosed:
            return False
        return True

    def set_revision(self, revision: str, /) -> None:
        """See Channel: a server sends no revision."""

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        """End the response of a running call; the client polls for the rest after `retry_ms` milliseconds.

        Returns:
            False if nothing happened: the revision has no polling, or nobody reads the stream.
        """
        response = self._posts.get(call)
        return response is not None and self._retry is not None and response.end_early(retry_ms)

    # ---------------------------------------------------------------- the end

    def drain(self) -> None:
        """The server stops: end the standing stream; calls may still finish."""
        self._stopping = True
        response = self.standing.response
        if response is not None:
            response.end()

    def stop(self, reason: str) -> None:
        """Cancel the calls that still run."""
        self._interrupted = self._running()
        for call in list(self._tasks):
            self.conversation.cancel(call, reason)

    def _running(self) -> list[Call | Batch]:
        """The calls that were neither answered nor cancelled."""
        return [
            got
            for got in self._tasks
            if any(call.state is CallState.RUNNING for call in (got.calls if isinstance(got, Batch) else (got,)))
        ]

    def end(self, reason: str, failure: BaseException | None = None) -> None:
        """End the session: running calls are answered with an error and cancelled, streams end. May be called twice."""
        if self.closed:
            return
        self.closed = reason
        self.failure = failure
        self._on_end(self)
        for got in self._interrupted or self._running():
            response = self._posts.get(got.calls[0] if isinstance(got, Batch) else got)
            if response is not None:
                response.answer(Outgoing.unfinished(got, reason))
        self.conversation.close(reason)
        for response in list(self._posts.values()):
            response.answer(None)
        for stream in list(self._streams.values()):
            stream.end()
        self._log.close()

    def trim(self) -> None:
        """Free the room of tables that are empty: it may stay idle for long."""
        for table in (self._streams, self._posts, self._tasks):
            if not table:
                table.clear()
        if isinstance(self.session, Session):
            self.session.trim()

    async def wait_closed(self) -> None:
        """After `end`: wait, bounded, for handlers and clean-up."""
        await self.conversation.wait_closed()

    async def close(self) -> None:
        """End the session from the inside."""
        self.end("the session was closed")
        await self.wait_closed()


class PostResponse:
    """The response to a POST with calls: a JSON body with their answer. If an event comes first, a stream is opened for it."""

    __slots__ = ("_carrier", "_exchange", "_left", "_open_stream", "_wake", "accepts", "ended", "stream")

    def __init__(
        self,
        exchange: Exchange,
        accepts: int,
        open_stream: Callable[[Exchange], SessionStream],
        wake: asyncio.Future[Outgoing | None],
    ) -> None:
        self._exchange = exchange
        self._open_stream = open_stream
        #: Done when there is an answer as JSON, with that; None if there is a stream, or the client has left.
        self._wake = wake
        #: Whether the client has left before there was a stream.
        self._left = exchange.over
        #: The kinds of answer that the client accepts.
        self.accepts = accepts
        #: The stream of the calls, once it is open, and what carries it in this response.
        self.stream: SessionStream | None = None
        self._carrier: StreamResponse | None = None
        #: Whether the calls are answered.
        self.ended = False
        exchange.owner = self

    async def run(self) -> None:
        """Carry the answer, or the stream, until it ends or its client leaves."""
        if self._left:
            return
        reply = await self._wake
        if self._carrier is not None:
            await self._carrier.run()
        elif reply is not None and not self._exchange.over:
            await self._exchange.answer(reply)

    def _opened(self) -> SessionStream:
        """The stream of the calls, which is opened when it is first needed."""
        if self.stream is None:
            self.stream = self._open_stream(self._exchange)
            self._carrier = self.stream.response
            self._go_on(None)
        return self.stream

    def _go_on(self, reply: Outgoing | None) -> None:
        if not self._wake.done():
            self._wake.set_result(reply)

    async def put(self, message: Outgoing) -> None:
        """Send a message about the calls; waits while the client doesn't read.

        Raises:
            ChannelClosed: The calls are answered, or the client left, or takes no events and the message needs an answer.
        """
        if self.ended:
            raise ChannelClosed("the call is answered already")
        if self._left:
            raise ChannelClosed("the client has left and can't come back to this stream")
        if self.accepts & TAKES_EVENTS:
            await self._opened().put(message)
        elif message.pending is not None:
            raise ChannelClosed("the client takes no event stream on this request, so it can't be asked anything")
        else:
            await asyncio.sleep(0)  # a handler that only sends must not starve other tasks

    def answer(self, reply: Outgoing | None) -> None:
        """End with the reply: a JSON body, or the last event of the stream. Ignored after the end."""
        if self.ended:
            return
        self.ended = True
        # A challenge needs a status, whatever the client accepts.
        if self.stream is None and reply is not None and (self.accepts & TAKES_JSON or reply.status == 403):
            self._go_on(reply)
        elif not self._left:
            self._opened().answer(reply)

    def end_early(self, retry: int) -> bool:
        """End the response before the answer; the client comes back for the rest after `retry` milliseconds.

        Returns:
            False if nobody reads a stream here.
        """
        if self.ended or self._left or not self.accepts & TAKES_EVENTS:
            return False
        return self._opened().end_response(retry)

    # ---------------------------------------------------------------- ExchangeOwner, until there is a stream

    def disconnected(self, reason: str) -> None:
        """The calls go on, but nothing is kept for the client, which has no event id to come back with."""
        self._left = True
        self._go_on(None)

    def stop(self, reason: str) -> None:
        """The session stops its calls."""

    def expired(self) -> None:
        """The call was authorized when it came, and may finish."""

    def unfinished(self, reason: str) -> Outgoing | None:
        """The session answers its calls."""
        return None

    def opening(self) -> bytes:
        """The opening event, if a keep-alive begins the stream."""
        return b"" if self.ended else self._opened().opening()


class SessionStream:
    """Events in order, each with an id; `response` is the HTTP response that carries it now, if any.

    `retry` (milliseconds) is None if the revision has no opening event. A stream that `keeps` stores events while nobody
    reads it.
    """

    __slots__ = ("_given", "_keeps", "_log", "ended", "number", "response", "retry")

    def __init__(self, number: int, log: ReplayLog, retry: int | None, *, keeps: bool = False) -> None:
        self.number = number
        self._log = log
        self.retry = retry
        #: Set with the first event id that the client gets, since it can then resume the stream.
        self._keeps = keeps
        #: The position of the last event that was given to a response.
        self._given = 0
        self.response: StreamResponse | None = None
        self.ended = False

    async def put(self, message: Outgoing) -> None:
        """Send a message; waits while the client doesn't read.

        Raises:
            ChannelClosed: The stream has ended, or its client left without an event id to come back with.
        """
        self.add(message)
        if self.response is not None:
            await self.response.room()
        # Nothing above need have waited; a handler that only sends must not starve other tasks.
        await asyncio.sleep(0)

    def add(self, message: Outgoing) -> None:
        """Send a message without waiting. Raises ChannelClosed like `put`."""
        response = self.response
        if self.ended:
            raise ChannelClosed("the call is answered already")
        if response is None:
            if not self._keeps:
                raise ChannelClosed("the client has left and can't come back to this stream")
            self._log.append(self.number, message.data)
        else:
            self._give(response, message.data)

    def _give(self, response: StreamResponse, data: bytes) -> None:
        opening = self.opening()
        response.feed(opening + self._log.append(self.number, data))
        self._given = self._log.position
        self._keeps = True

    def opening(self) -> bytes:
        """The event that a stream begins with; empty after the beginning, and if the revision has none."""
        return b"" if self._keeps or self.ended else self._opening_event(self.retry)

    def _opening_event(self, retry: int | None) -> bytes:
        if self.retry is None:
            return b""
        self._keeps = True
        return self._log.mark(self.number, retry)

    def answer(self, reply: Outgoing | None) -> None:
        """End with the reply as the last event. Ignored after the end."""
        if self.ended:
            return
        if reply is not None and self.response is not None:
            self._give(self.response, reply.data)
        elif reply is not None and self._keeps:
            self._log.append(self.number, reply.data)
        self.end()

    def end(self) -> None:
        """No more events follow; those that are kept can still be read."""
        self.ended = True
        if self._keeps:
            self._log.end(self.number)
        if self.response is not None:
            self.response.end()

    async def attach(self, response: StreamResponse, position: int | None) -> None:
        """Go on with this response after a position; without one, after what earlier responses were given.

        Raises:
            InvalidRequest: Events after the position are no longer kept.
        """
        events: list[bytes] = []
        if position is None and self.response is not None:  # a newer response takes the place of this one
            self.response.end()
            self.response = None
        start, newest = self._given if position is None else position, -1
        while newest != self._log.position:  # again for what came while the log was read
            newest = self._log.position
            events += await self._log.after(self.number, start)
            start = newest
        if self.response is not None:
            self.response.hand_over()
        self.response = response
        response.stream = self
        # Events first: an opening event would have a later id, and a client that got only that would miss them.
        response.feed(b"".join(events) or self._opening_event(self.retry))
        self._given = self._log.position

    def end_response(self, retry: int) -> bool:
        """End the response that carries this stream; the client comes back after `retry` milliseconds.

        Returns:
            False if the revision has no polling or nobody reads.
        """
        response = self.response
        if self.retry is None or response is None:
            return False
        response.feed(self._opening_event(retry))
        self.response = None
        response.end()
        return True


class StreamResponse:
    """One HTTP response that carries a stream. Bytes that wait for a slow client are counted, and senders wait."""

    __slots__ = (
        "_exchange",
        "_limit",
        "_pending",
        "_room",
        "_size",
        "_wake",
        "done",
        "on_expiry",
        "stream",
    )

    accepts = TAKES_EVENTS

    def __init__(self, exchange: Exchange, limit: int) -> None:
        self._exchange = exchange
        self._limit = limit
        self._pending: list[bytes] = []
        self._size = 0
        self._wake: asyncio.Future[None] | None = None
        self._room: asyncio.Event | None = None
        self.stream: SessionStream | None = None
        self.done = False
        #: Called in place of `end` when the authorization of its request has ended.
        self.on_expiry: Callable[[], None] | None = None
        exchange.owner = self

    def feed(self, event: bytes) -> None:
        """Write encoded events at once, if nothing waits before them and the client reads; else queue them."""
        if not self._pending and not self._size and self._exchange.write_now(event):
            return
        self._pending.append(event)
        self._size += len(event)
        self._notify()

    def end(self) -> None:
        """Nothing more will come."""
        self.done = True
        self._notify()

    def hand_over(self) -> None:
        """End: another response goes on, and writes what was not written yet."""
        self._pending.clear()
        self.end()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        if self.done and self._room is not None:
            self._room.set()

    @property
    def full(self) -> bool:
        """Whether the client has to read before more is queued."""
        return self._size > self._limit and not self.done

    async def room(self) -> None:
        """Wait until the client has read enough; bounded, since every write is."""
        while self.full:
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()

    async def run(self) -> None:
        """Carry the stream until it ends or its client leaves."""
        exchange = self._exchange
        try:
            while not exchange.over:
                if self.done:
                    await exchange.end(b"".join(self._pending))
                elif self._pending:
                    await self._flush()
                else:
                    self._wake = asyncio.get_running_loop().create_future()
                    await self._wake
        except ChannelClosed:
            return
        finally:
            self.disconnected("")

    async def _flush(self) -> None:
        chunk = b"".join(self._pending)
        self._pending.clear()
        await self._exchange.write(chunk)
        self._size -= len(chunk)
        if self._room is not None:
            self._room.set()

    # ---------------------------------------------------------------- ExchangeOwner

    def disconnected(self, reason: str) -> None:
        """The stream goes on without a response."""
        self.done = True
        if self.stream is not None and self.stream.response is self:
            self.stream.response = None
        self._notify()

    def stop(self, reason: str) -> None:
        """Nothing runs for this response alone."""

    def expired(self) -> None:
        """End the response; the stream goes on without, and its client resumes it with another token."""
        (self.on_expiry or self.end)()

    def unfinished(self, reason: str) -> Outgoing | None:
        """The session answers its calls."""
        return None

    def opening(self) -> bytes:
        """The opening event, if a keep-alive begins the stream."""
        return self.stream.opening() if self.stream is not None else b""
