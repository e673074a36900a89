"""An HTTP session that several processes serve, as one of them has it in memory."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from gemel import jsonrpc
from gemel.backends.base import Backend
from gemel.channel import Serve
from gemel.errors import BackendError, ChannelClosed, GemelError, NoSession, Overloaded, ProtocolError
from gemel.jsonrpc import Failure, Message, Request, RequestId, Response
from gemel.protocol.changes import Changed
from gemel.protocol.http import sse
from gemel.protocol.http.request import Owner, Refusal
from gemel.protocol.records import UNKNOWN_ORIGIN, Batch, Call, Inbound, LostAnswer, Origin, Outgoing
from gemel.protocol.states import HandshakeState
from gemel.schema.notifications import CancelledParams
from gemel.schema.revisions import knows
from gemel.session import Session
from gemel.transports.http.server.exchange import OPEN, Exchange, overloaded
from gemel.transports.http.server.options import HttpSettings
from gemel.transports.http.server.replay import ReplayLog
from gemel.transports.http.server.session import STANDING, HttpSession, StreamResponse
from gemel.transports.http.server.sharing.events import (
    Budget,
    Follower,
    LogWriter,
    SharedReplayLog,
    parse_event_id,
    unknown_event,
)
from gemel.transports.http.server.sharing.mailbox import BEAT, Mailbox
from gemel.transports.http.server.sharing.standing_stream import Cursor, StandingStream, check_kept, parse_cursor
from gemel.transports.http.server.sharing.stored_sessions import SessionKeys, SessionRecord, others, process_of

logger = logging.getLogger("gemel")

#: Requests that change what all processes must know of a session.
_CHANGING = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
#: What begins the ids of requests that some writer has sent.
_WRITER = re.compile(r"([0-9a-f]{16}-[0-9]+)\.")
STORE_GONE = overloaded("The store of the sessions can't be reached: try again later")


class SessionChanges(Protocol):
    """What a server tells sessions of changes. `gemel.server`, a layer above, implements it."""

    def connect(self) -> None:
        """Be told of changes from now on."""

    @property
    def position(self) -> int:
        """The position of the newest change that this process was told of."""
        ...

    def join(self, session: Session) -> None:
        """Tell a session of changes from now on."""

    def leave(self, session: Session) -> None:
        """Tell a session nothing more until it joins again."""

    def told(self, session: Session, *, sending: bool) -> int:
        """The position up to which a session was told; with `sending`, when the change in hand is sent."""
        ...

    def changes_after(self, position: int) -> list[Changed] | None:
        """The changes after a position; None if some of them are no longer kept."""
        ...

    def tell_again(self, session: Session, changes: Iterable[Changed] | None) -> None:
        """Tell a session what it missed elsewhere; None stands for everything that it subscribed to."""

    def watched(self, session: Session) -> list[str]:
        """The resources that a session subscribed to."""
        ...

    def unwatch(self, session: Session, uri: str) -> None:
        """End the subscription of a session to a resource."""

    async def watch_again(self, session: Session, origin: Origin, uri: str) -> None:
        """Subscribe a session to a resource as it is in another process, if the caller may."""


class SharedState(NamedTuple):
    """What a server gives its HTTP app so that other processes can serve its sessions."""

    backend: Backend
    #: The name of the server: another one does not see its sessions.
    name: str
    changes: SessionChanges


class Sharing(NamedTuple):
    """What the shared sessions of one app have in common."""

    state: SharedState
    mailbox: Mailbox
    budget: Budget
    #: Changes the record of a session: `change(record)` returns whether there is something to store.
    update: Callable[[SharedSession, Callable[[SessionRecord], bool]], Awaitable[SessionRecord]]
    #: The position of changes here some seconds ago, after which another process may not have been told of all of them yet.
    settled: Callable[[], int]
    #: Seconds that what is stored of a session is kept.
    ttl: float


class _Uri(msgspec.Struct):
    uri: str


_uri = msgspec.json.Decoder(_Uri).decode
_changes = msgspec.json.Decoder(list[Changed] | None).decode
_cancelled = msgspec.json.Decoder(CancelledParams).decode
_cursor = msgspec.json.Decoder(Cursor).decode
_token = msgspec.json.Decoder(dict[str, Any]).decode


class SharedSession(HttpSession):
    """The channel of one HTTP session in one of the processes that serve it."""

    __slots__ = (
        "_events",
        "_get_origin",
        "_leaving",
        "_opened",
        "_sharing",
        "_standing_log",
        "_state_lock",
        "deleted",
        "keys",
        "raw",
        "record",
        "stale",
        "touched",
        "writer",
    )

    def __init__(
        self,
        session_id: str,
        owner: Owner,
        holder: Hashable,
        options: HttpSettings,
        serve: Serve,
        on_end: Callable[[HttpSession], None],
        sharing: Sharing,
        keys: SessionKeys,
        writer: str,
    ) -> None:
        self.keys = keys
        self._sharing = sharing
        #: The name under which this process writes for the session.
        self.writer = writer
        self.record = SessionRecord(revision="")
        #: The record as it is stored; b"" before it is.
        self.raw = b""
        #: Whether the record must be read again before the session is used.
        self.stale = False
        #: Whether its client has ended it.
        self.deleted = False
        #: Who opened the GET that is carried here, and its number.
        self._get_origin: Origin | None = None
        self._opened = 0
        limits, backend = options.limits, sharing.state.backend
        self._standing_log = LogWriter(backend, keys.standing, 2 * sharing.ttl, limits, sharing.budget, alone=False)
        self._leaving: asyncio.Task[None] | None = None
        #: So that calls in this process change the state one after the other.
        self._state_lock = asyncio.Lock()
        super().__init__(session_id, owner, holder, options, lambda channel: _Facts(serve(channel), self), self, on_end)
        #: When what is stored of it was renewed.
        self.touched = self._loop.time()
        session = self.session
        session.connection.id_prefix = f"{writer}."
        sharing.state.changes.leave(session)

    def open(self, session_id: str, holder: Hashable) -> ReplayLog:
        """Make the replay log of this session; see ReplayStore."""
        sharing, keys, limits = self._sharing, self.keys, self._options.limits
        backend = sharing.state.backend
        log = LogWriter(backend, keys.events(self.writer), sharing.ttl, limits, sharing.budget, alone=True)
        self._events = SharedReplayLog(keys, self.writer, log, backend, self._ids_of)
        return self._events

    def _ids_of(self, number: int) -> list[RequestId]:
        return [
            call.id
            for call, response in self._posts.items()
            if response.stream is not None and response.stream.number == number and call.id is not None
        ]

    @property
    def session(self) -> Session:
        """The session of the server."""
        facts = self.conversation
        assert isinstance(facts, _Facts)
        return facts.session

    # ---------------------------------------------------------------- facts

    def describe(self) -> None:
        """Fill the record after the handshake."""
        handshake, sharing = self.session.connection.handshake, self._sharing
        self.record = SessionRecord(
            revision=handshake.revision,
            client_info=handshake.client_info,
            capabilities=handshake.capabilities,
            log_level=handshake.log_level,
            writers=[self.writer],
            told=(sharing.mailbox.name, sharing.state.changes.position),
            state=self.record.state,
        )

    def enter(self, record: SessionRecord) -> bool:
        """Name this process in the record, unless it is. Others leave it out when they take it for dead."""
        if self.writer in record.writers:
            return False
        record.writers = [*record.writers, self.writer]
        return True

    def restore(self, record: SessionRecord) -> None:
        """Go on as another process has described the session."""
        handshake = self.session.connection.handshake
        handshake.revision = record.revision
        handshake.client_info = record.client_info
        handshake.declared = record.capabilities
        handshake.state = HandshakeState.READY
        self.revision = record.revision
        self._retry = self._options.retry if knows(record.revision, "priming event") else None
        self.apply(record)

    def apply(self, record: SessionRecord) -> None:
        """Adopt what has changed in another process."""
        changes, session = self._sharing.state.changes, self.session
        session.connection.handshake.log_level = record.log_level
        for uri in changes.watched(session):
            if uri not in record.uris:
                changes.unwatch(session, uri)

    async def refresh(self, record: SessionRecord) -> None:
        """Adopt what has changed, and subscribe to what others have subscribed to, if its client reads here."""
        self.apply(record)
        changes, session = self._sharing.state.changes, self.session
        if self._get_origin is not None:
            present = set(changes.watched(session))
            for uri in record.uris:
                if uri not in present:
                    await changes.watch_again(session, self._get_origin, uri)

    async def store_change(self, call: Call) -> None:
        """Store what a request has changed, and wait until all processes have adopted it.

        Raises:
            Overloaded: The store can't be reached, or a process doesn't answer.
        """
        level, uri = self.session.connection.handshake.log_level, ""
        present = False
        if call.method != "logging/setLevel":
            uri = _uri(call.params).uri
            present = call.method == "resources/subscribe"
        most = self._options.limits.watched

        def change(record: SessionRecord) -> bool:
            if not uri:
                record.log_level = level
            elif present and uri not in record.uris:
                if len(record.uris) >= most:
                    raise Overloaded(f"Too many subscriptions: {most} at once is the limit here")
                record.uris.append(uri)
            elif not present and uri in record.uris:
                record.uris.remove(uri)
            else:
                return False
            return True

        try:
            record = await self._sharing.update(self, change)
            # Until it was stored, whoever adopted the record here has undone the change.
            await self.refresh(record)
            await self.tell_others(record, "changed")
        except BackendError as exc:
            logger.warning("A change of a session could not be stored: %s", exc)
            raise Overloaded(STORE_GONE.text) from exc

    async def tell_others(self, record: SessionRecord, kind: Any) -> None:
        """Tell the other processes that have the session in memory, and wait until they have reacted. Raises BackendError."""
        mailbox = self._sharing.mailbox
        await asyncio.gather(
            *(mailbox.ask(process, kind, self.keys.digest) for process in others(record.writers, mailbox.name))
        )

    # ---------------------------------------------------------------- what functions keep

    async def read_state(self) -> Mapping[str, msgspec.Raw]:
        """Return what functions keep in the session; see `SharedStateChannel` in `gemel.server.session_state`."""
        return (await self._update_state(lambda record: False)).state

    async def change_state(self, change: Callable[[dict[str, msgspec.Raw]], bool]) -> None:
        """Change what functions keep in the session; see `SharedStateChannel` in `gemel.server.session_state`."""

        def change_record(record: SessionRecord) -> bool:
            state = dict(record.state)
            if not change(state):
                return False
            record.state = state
            return True

        async with self._state_lock:
            await self._update_state(change_record)

    async def _update_state(self, change: Callable[[SessionRecord], bool]) -> SessionRecord:
        if not self.raw:  # it is stored after its handshake, with what `initialize` has kept
            change(self.record)
            return self.record
        try:
            return await self._sharing.update(self, change)
        except Refused as exc:
            raise NoSession("ctx.session_state: the session has ended") from exc

    # ---------------------------------------------------------------- messages for other processes

    async def post(self, inbound: Inbound | bytes, origin: Origin, exchange: Exchange, accepts: int) -> None:
        """Take the message of one POST, or pass it on to the process that waits for it."""
        if type(inbound) is Call and inbound.id is not None:
            if inbound.method != "ping":
                # `notifications/initialized`, which came before, may have reached another process.
                self.session.connection.handshake.finish()
            await super().post(inbound, origin, exchange, accepts)
        else:
            await self._post_other(inbound, origin, exchange, accepts)

    async def _post_other(self, inbound: Inbound | bytes, origin: Origin, exchange: Exchange, accepts: int) -> None:
        """Take what may be for another process."""
        self.idle_since = self._loop.time()
        try:
            own = await self._pass_on(inbound)
        except Refused as exc:
            await exchange.refuse(exc.refusal)
        except (BackendError, Overloaded) as exc:
            logger.warning("A message for another process could not be passed on: %s", exc)
            await exchange.refuse(STORE_GONE)
        else:
            if own is None:
                await exchange.empty(202)
            else:
                await super().post(own, origin, exchange, accepts)

    async def _pass_on(self, inbound: Inbound | bytes) -> Inbound | bytes | None:
        """Pass on what is for other processes. Returns what is for this one, None if nothing is left."""
        if isinstance(inbound, bytes):
            return await self._pass_on_batch(inbound)
        writer = self._addressee(inbound)
        if writer is None:
            return inbound
        await self._forward(writer, encode_message(inbound))
        return None

    async def _pass_on_batch(self, data: bytes) -> bytes | None:
        try:
            items = jsonrpc.split_batch(data, self._options.limits.batch)
        except ProtocolError:
            return data
        own: list[bytes] = []
        for item in items:
            try:
                writer = self._addressee(jsonrpc.decode(item))
            except ProtocolError:
                writer = None
            if writer is None:
                own.append(item)
            else:
                await self._forward(writer, item)
        return b"[" + b",".join(own) + b"]" if own else None

    def _addressee(self, message: Inbound | Message) -> str | None:
        """The writer that a message is for, "" for all others; None for this process."""
        if isinstance(message, (Response, Failure, LostAnswer)):
            return self._writer_of(message.id)
        if isinstance(message, Request):
            return None
        try:
            if message.method == "notifications/progress":
                return self._writer_of(_token(message.params).get("progressToken"))
            if message.method == "notifications/cancelled":
                request_id = _cancelled(message.params).request_id
                return None if request_id in self.session.connection.incoming else ""
        except msgspec.MsgspecError:
            pass
        return None

    def _writer_of(self, request_id: Any) -> str | None:
        """The writer that has sent a request with this id; None for this one, and for what is not an id of ours."""
        writer = _WRITER.match(request_id) if isinstance(request_id, str) and len(request_id) <= 64 else None
        return writer[1] if writer is not None and writer[1] != self.writer else None

    async def _forward(self, writer: str, data: bytes) -> None:
        """Pass a message on. One for a writer has arrived then, or its process is dead; BackendError if it can't be told."""
        mailbox, digest = self._sharing.mailbox, self.keys.digest
        box = self.keys.seal(data, digest)
        if not writer:
            record = await self._sharing.update(self, lambda record: False)
            for process in others(record.writers, mailbox.name):
                await mailbox.post(process, "message", digest, box)
            return
        process = process_of(writer)
        if process == mailbox.name or await mailbox.ask(process, "message", digest, box) is not None:
            return
        if not await mailbox.is_gone(process):  # the store may have lost the message: it is to be sent again
            raise BackendError("The process that a message is for has not taken it")

    def receive_forwarded(self, box: bytes) -> None:
        """Take a message that reached another process."""
        data = self.keys.open(box, self.keys.digest)
        got = self.conversation.receive(data, Origin(scopes=frozenset()))
        for call in got.calls if isinstance(got, Batch) else (got,):
            if isinstance(call, Call) and call.id is None:
                self._start_notification(call)

    async def fail_request(self, body: bytes, origin: Origin, request_id: RequestId | None) -> bool:
        """The same, or pass it on if the request is of another process."""
        writer = self._writer_of(request_id)
        if writer is None:
            return await super().fail_request(body, origin, request_id)
        try:
            await self._forward(writer, body)
        except GemelError as exc:
            logger.warning("A message for another process could not be passed on: %s", exc)
        return True

    # ---------------------------------------------------------------- streams

    @property
    def standing(self) -> StandingStream:
        """The stream for what belongs to no call."""
        stream = self._streams.get(STANDING)
        if stream is None:
            state = self._sharing.state
            stream = StandingStream(self.keys, state.backend, self._standing_log, self._told)
            self._streams[STANDING] = stream
        assert isinstance(stream, StandingStream)
        self._learn(
            self.session.connection.handshake.revision
        )  # what followed `initialize` may have reached another process
        stream.retry = self._retry
        return stream

    def _told(self, sending: bool) -> tuple[str, int]:
        sharing = self._sharing
        return sharing.mailbox.name, sharing.state.changes.told(self.session, sending=sending)

    async def listen(self, exchange: Exchange, last_event_id: str | None) -> None:
        """Carry the standing stream, or resume the stream that an event id names, whoever writes it.

        Raises:
            InvalidRequest: The id is unknown in this session, or its successors are no longer kept.
        """
        try:
            await self._listen(exchange, last_event_id)
        except Refused as exc:
            await exchange.refuse(exc.refusal)
        except (BackendError, Overloaded) as exc:
            logger.warning("A stream of a session can't be opened: %s", exc)
            if exchange.state is OPEN:
                await exchange.refuse(STORE_GONE)

    async def _listen(self, exchange: Exchange, last_event_id: str | None) -> None:
        cursor = None if last_event_id is None else parse_cursor(self.keys, last_event_id)
        if last_event_id is None or cursor is not None:
            await self._carry_standing(exchange, cursor)
            return
        place = parse_event_id(self.keys, last_event_id)
        if place is None:
            raise unknown_event(last_event_id)
        writer, number = place.writer, place.stream
        if writer == self.writer and number in self._streams:
            await super().listen(exchange, last_event_id)
            return
        if writer == self.writer:
            await self._events.flush(BEAT)
        sharing = self._sharing

        async def is_alive() -> bool:
            if process_of(writer) == sharing.mailbox.name:
                return writer == self.writer and number in self._streams
            return await sharing.mailbox.is_alive(process_of(writer))

        follower = Follower(sharing.state.backend, self.keys, place, is_alive, sharing.ttl)
        events = await follower.begin()
        response = StreamResponse(exchange, self._options.limits.stream_bytes)
        if events:
            response.feed(b"".join(events))
        elif self._retry is not None:
            response.feed(sse.priming(last_event_id, self._retry))
        if self._stopping or follower.ended:
            response.end()
        await self._carry_while(response, follower.run(response))

    async def _carry_while(self, response: StreamResponse, work: asyncio._CoroutineLike[None]) -> None:
        """Carry a response while a task feeds it."""
        task = self._loop.create_task(work)

        def end(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                response.end()  # its client comes back for the rest

        task.add_done_callback(end)
        try:
            await self._carry(response)
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.warning("A stream of a session has broken off: %s", error)

    async def _carry_standing(self, exchange: Exchange, cursor: Cursor | None) -> None:
        """Carry the standing stream, as the only process that does."""
        standing, state = self.standing, self._sharing.state
        opened, left = await self._take_standing(resumes=cursor is not None)
        try:
            if cursor is None:
                cursor = left
            else:
                await check_kept(state.backend, self.keys, cursor)
        except BaseException:
            await self._leave_standing(opened, None)
            raise
        assert exchange.origin is not None
        response = StreamResponse(exchange, self._options.limits.stream_bytes)
        if self._opened != opened:  # another GET has come since
            response.end()
            await self._carry(response)
            return
        if standing.response is not None:
            standing.response.hand_over()
        self._get_origin, session = exchange.origin, self.session
        standing.begin(response, cursor)
        self._reader_comes()
        state.changes.join(session)
        if self._stopping:
            response.end()
        try:
            await self._carry_while(response, self._feed_standing(response, cursor))
        finally:
            if self._opened == opened:
                end = standing.leave()
                state.changes.leave(session)
                self._get_origin = None
                self._leaving = self._sharing.mailbox.run(self._leave_standing(opened, end))

    async def _feed_standing(self, response: StreamResponse, cursor: Cursor) -> None:
        reading = self._loop.create_task(self.standing.read(response))
        try:
            await self.refresh(self.record)
            await self._catch_up(cursor)
            await reading
        finally:
            reading.cancel()

    async def _catch_up(self, cursor: Cursor) -> None:
        """Tell the client what has changed since it was told of changes."""
        state, mailbox, session = self._sharing.state, self._sharing.mailbox, self.session
        missed: list[Changed] | None = None
        if cursor.told >= 0 and cursor.process == mailbox.name:
            missed = state.changes.changes_after(cursor.told)
        elif cursor.told >= 0:
            try:
                reply = await mailbox.ask(cursor.process, "changes", self.keys.digest, b"%d" % cursor.told)
                theirs = None if reply is None else _changes(reply)
                # What reached this process while it did not tell this client may reach the other one later.
                own = state.changes.changes_after(self._sharing.settled())
                missed = None if theirs is None or own is None else list(dict.fromkeys((*theirs, *own)))
            except (GemelError, msgspec.MsgspecError, ValueError) as exc:
                logger.debug("what has changed can't be learned from another process: %s", exc)
        state.changes.tell_again(session, missed)
        self.standing.caught_up()

    async def _take_standing(self, *, resumes: bool) -> tuple[int, Cursor]:
        """Become the process that carries the standing stream, in place of an earlier response.

        Returns:
            A number that grows, and up to where the client has the stream.
        """
        mailbox, former, opened = self._sharing.mailbox, "", 0
        taken = False

        def take(record: SessionRecord) -> bool:
            nonlocal taken
            taken = (record.reader, record.opened) == (former, opened)
            if taken:
                record.reader = self.writer
                record.opened += 1
                self.enter(record)
            return taken

        while not taken:
            record = await self._sharing.update(self, lambda record: False)
            former, opened = record.reader, record.opened
            await self._sharing.update(self, take)
        opened += 1
        self._opened = max(self._opened, opened)
        left = Cursor(self.record.given, *self.record.told)
        process = process_of(former) if former else ""
        if process == mailbox.name:
            if not resumes and self.standing.response is not None:
                self.standing.response.end()
                left = self.standing.leave()
        elif process and resumes:
            await mailbox.post(process, "read elsewhere", self.keys.digest, b"%d" % opened)
        elif process:
            reply = await mailbox.ask(process, "read elsewhere", self.keys.digest, b"%d" % opened)
            left = _cursor(reply) if reply else left
        return opened, left

    async def _reads(self, writer: str) -> bool:
        """Whether a writer still carries the standing stream."""
        mailbox, process = self._sharing.mailbox, process_of(writer)
        if process == mailbox.name:
            return writer == self.writer and self.reads
        reply = await mailbox.ask(process, "reading", self.keys.digest)
        return await mailbox.is_alive(process) if reply is None else bool(reply)

    async def is_read(self) -> bool:
        """Whether the client reads the standing stream, in whatever process."""
        if self.reads:
            return True
        try:
            record = await self._sharing.update(self, lambda record: False)
            return bool(record.reader) and await self._reads(record.reader)
        except (BackendError, Overloaded, Refused) as exc:
            raise ChannelClosed(f"It can't be told whether the client has a stream open: {exc}") from exc

    @property
    def reads(self) -> bool:
        """Whether the standing stream is carried here."""
        response = self.standing.response
        return response is not None and not response.done

    async def _leave_standing(self, opened: int, end: Cursor | None) -> None:
        """Store up to where the client has the standing stream, so that another process can go on."""

        def leave(record: SessionRecord) -> bool:
            if record.reader != self.writer or record.opened != opened:
                return False
            record.reader = ""
            if end is not None:
                record.given, record.told = end.given, (end.process, end.told)
            return True

        while self._opened == opened:
            try:
                await self._sharing.update(self, leave)
                return
            except BackendError as exc:
                logger.debug("the end of a stream could not be stored yet: %s", exc)
                await asyncio.sleep(1.0)
            except Refused:
                return

    def read_elsewhere(self, opened: int) -> bytes:
        """Another process carries the standing stream. Returns up to where the client has it; empty if it was not carried here."""
        standing = self.standing
        if self._opened >= opened:
            return b""
        self._opened = opened
        self._get_origin = None
        response = standing.response
        left = b"" if response is None else msgspec.json.encode(standing.leave())
        if response is not None:
            response.end()
        self._sharing.state.changes.leave(self.session)
        return left

    # ---------------------------------------------------------------- the end

    async def wait_closed(self) -> None:
        """After `end`: wait, bounded, for handlers and clean-up, and until what happened here is stored."""
        await super().wait_closed()
        limit = self._options.limits.teardown
        try:
            await self._events.flush(limit)
            await self._standing_log.flush(limit)
        except GemelError as exc:
            logger.warning("A session ends in this process before all of it was stored: %s", exc)
        if self._leaving is not None:
            await asyncio.wait([self._leaving], timeout=limit)
        self._events.stop(kept=not self.deleted)
        self._standing_log.stop(kept=not self.deleted)


class Refused(Exception):
    """A session can't be used. `refusal` says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class _Facts:
    """A session whose changes of facts are stored before they are answered; see SessionLike."""

    __slots__ = ("_channel", "session")

    def __init__(self, session: Any, channel: SharedSession) -> None:
        self.session: Session = session
        self._channel = channel

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> Call | Batch | Outgoing | None:
        return self.session.receive(data, origin)

    async def answer(self, call: Call | Batch, /) -> Outgoing | None:
        reply = await self.session.answer(call)
        if reply is None or reply.error is not None:
            return reply
        calls = call.calls if isinstance(call, Batch) else (call,)
        try:
            for each in calls:
                if each.method in _CHANGING and each.id is not None:
                    await self._channel.store_change(each)
        except (Overloaded, Refused, msgspec.MsgspecError) as exc:
            self._channel.apply(self._channel.record)
            error = exc if isinstance(exc, Overloaded) else Overloaded(str(exc))
            data = [jsonrpc.encode_failure(each.id, error.error) for each in calls if each.id is not None]
            if isinstance(call, Batch):
                return Outgoing(b"[" + b",".join(data) + b"]")
            return Outgoing.failure(data[0], call.id, error, error.http_status)
        return reply

    def note(self, deviation: str, detail: str = "", /) -> None:
        """See `SessionLike`: only clients note deviations."""

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        self.session.cancel(call, reason)

    def end_input(self, reason: str, /) -> None:
        self.session.end_input(reason)

    def stop(self, reason: str, /) -> list[Outgoing]:
        return self.session.stop(reason)

    def close(self, reason: str, /) -> bool | None:
        return self.session.close(reason)

    async def wait_closed(self) -> None:
        await self.session.wait_closed()


def encode_message(message: Inbound) -> bytes:
    """The text of a message that was decoded and is not a request."""
    if type(message) is Call:
        return jsonrpc.encode_notification(message.method, message.params)
    if type(message) is Response:
        return jsonrpc.encode_response(message.id, message.result)
    assert isinstance(message, Failure)
    return jsonrpc.encode_failure(message.id, message.error)
