"""Subscriptions: telling clients what changed.

Stateless era: streams of `subscriptions/listen`
(https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions).
Handshake era: list changes to every client, and `resources/subscribe`
(https://modelcontextprotocol.io/specification/2025-11-25/server/resources#subscriptions).

All readers share one bounded buffer with one entry per changed thing, which is encoded once, so that repetition fills nothing,
a slow reader delays nobody else, and memory does not grow with the readers. For a reader that falls behind further than the
buffer reaches, everything that it subscribed to counts as changed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeAlias, cast
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import msgspec
from msgspec import Raw, Struct

from gemel import jsonrpc
from gemel.backends.base import Backend, Event
from gemel.channel import DetachableChannel, Detached, ImmediateChannel
from gemel.errors import ChannelClosed, ConnectionLost, InsufficientScope, InvalidParams, Overloaded
from gemel.protocol.changes import (
    ChangeBuffer,
    Changed,
    ChangedFor,
    ChangeMessage,
    ChangesLost,
    covers,
    filter_of_lists,
    lists_of_filter,
    resource_of,
    subscription_end,
)
from gemel.protocol.limits import FIXED_LIMITS, Limits
from gemel.protocol.records import Call, Outgoing
from gemel.protocol.states import CallState
from gemel.schema.base import SUBSCRIPTION_ID
from gemel.schema.lifecycle import ServerCapabilities
from gemel.schema.methods import LIST_CHANGED
from gemel.schema.resources import SubscribeParams
from gemel.schema.subscriptions import ListenParams, ListenResult, SubscriptionFilter
from gemel.server.context import Context, caller_key, served_call
from gemel.server.extensions import Topic, accept_topics
from gemel.session import Session
from gemel.shares import Shares
from gemel.telemetry import count

logger = logging.getLogger("gemel")

#: Readers that are told of a change before the event loop does anything else.
WOKEN_AT_ONCE = 100

#: Stands for the lists among the URIs that a caller watches.
LISTS_URI = ""

#: Bytes that a subscription takes besides its request.
SUBSCRIPTION_OVERHEAD = 2048

#: Whether this caller may subscribe to this resource.
Authorize: TypeAlias = Callable[[Context[Any], str], bool | Awaitable[bool]]


class _AnyFilter(Struct):
    notifications: dict[str, Raw]


_whole_filter = msgspec.json.Decoder(_AnyFilter)


def _size_of(call: Call) -> int:
    """Bytes that are kept of a request that subscribes."""
    head = call.origin.head
    fields = 0 if head is None else sum(len(name) + len(value) for name, value in head.raw.items())
    return len(call.params) + fields + SUBSCRIPTION_OVERHEAD


class Offered(Protocol):
    """What subscriptions need to know about a server."""

    #: Members that extensions add to the filter.
    topics: dict[str, tuple[str, Topic]]

    def capabilities(self) -> ServerCapabilities:
        """The capabilities; only lists that they name can be subscribed to."""
        ...

    async def may_watch(self, ctx: Context[Any], uri: str) -> bool:
        """Whether this caller may watch a resource. Raises InsufficientScope if its authorization lacks a scope."""
        ...

    async def may_see_change(self, ctx: Context[Any], uri: str) -> bool:
        """Whether this caller may learn that a resource changed."""
        ...

    async def watch_lists(self, ctx: Context[Any]) -> None:
        """Called when a caller subscribes to lists by a stream."""

    def unwatched(self, caller: Hashable, uri: str) -> None:
        """Called when the last subscription of a caller to a resource has ended, or to lists: `LISTS_URI`."""


class Subscriptions:
    """The subscriptions of one server in one event loop.

    Args:
        backend: Tells what changes.
        offered: The server.
        limits: How many there may be, and their sizes.
        can_detach: Whether nothing surrounds the handlers, such as middleware, which would notice that a call is served twice.
    """

    def __init__(
        self,
        backend: Backend,
        offered: Offered,
        limits: Limits,
        can_detach: Callable[[], bool],
    ) -> None:
        self._backend = backend
        self._offered = offered
        self._buffer = SharedBuffer()
        self._max_streams = limits.streams
        self._max_uris = limits.watched
        self._max_bytes = limits.subscription_bytes
        #: The bytes of the requests that subscribed, all of which are kept, by holder.
        self._bytes: Shares[Call] = Shares()
        #: The calls of streams that are not about to end, by holder.
        self._shares: Shares[Call] = Shares()
        self._holders: dict[Call, Hashable] = {}
        #: By the call of `subscriptions/listen`.
        self._streams: dict[Call, _ListenStream] = {}
        #: The same by filter; each with topics of extensions has an audience of its own.
        self._audiences: dict[object, _Audience] = {}
        self._can_detach = can_detach
        self._loop = asyncio.get_running_loop()
        #: By session and URI: the context of the request that subscribed to the resource.
        self._watched: dict[Session, dict[str, Context[Any]]] = {}
        self._sessions: WeakSet[Session] = WeakSet()
        #: Made when there is something to tell.
        self._listeners: WeakKeyDictionary[Session, _SessionListener] = WeakKeyDictionary()
        self._stop: Callable[[], None] | None = None
        #: How many subscriptions to each URI a caller has or is about to have.
        self._watchers: Counter[tuple[Hashable, str]] = Counter()

    def _watch(self, caller: Hashable, uris: Iterable[str]) -> None:
        self._watchers.update((caller, uri) for uri in uris)

    def _unwatch(self, caller: Hashable, uris: Iterable[str]) -> None:
        for uri in uris:
            watched = caller, uri
            self._watchers[watched] -= 1
            if self._watchers[watched] <= 0:
                del self._watchers[watched]
                self._offered.unwatched(caller, uri)

    @property
    def connected(self) -> bool:
        """Whether the backend was asked for changes."""
        return self._stop is not None

    def connect(self) -> None:
        """Be told of changes by the backend from now on."""
        if self._stop is None:
            try:
                self._stop = self._backend.subscribe(self.tell)
            except Exception:
                logger.exception("The backend could not subscribe: changes of other processes are not reported")

    def connect_if_used(self) -> None:
        """Connect if somebody subscribed, since an earlier attempt may have failed."""
        if self._streams or self._sessions:
            self.connect()

    def tell(self, event: Event) -> None:
        """Tell the subscribers in this event loop; from any thread."""
        with self._buffer.lock:
            position = self._buffer.add(event)
            asleep: list[ChangeReader] = []
            for audience in list(self._audiences.values()):
                if audience.matches(event):
                    addressed = list(audience.streams)
                    if isinstance(event, ChangedFor):
                        addressed = [one for one in addressed if one.caller == event.caller]
                    asleep += [one for one in addressed if one.notice(position)]
            for session in self._addressed(event):
                if session.connection.handshake.open and self.tells(ref(session), event):
                    listener = self._listener(session)
                    if listener.notice(position):
                        asleep.append(listener)
            if asleep:
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(_wake_all, self._loop, asleep, position)

    def _addressed(self, event: Event) -> list[Session]:
        """The sessions that an event may be for."""
        if not isinstance(event, ChangedFor):
            return list(self._sessions)
        session: Session | None = event.caller() if isinstance(event.caller, ReferenceType) else None
        return [] if session is None or session not in self._sessions else [session]

    # ---------------------------------------------------------------- handshake era

    def join(self, session: Session) -> None:
        """Tell a session of the handshake era about changed lists from now on."""
        self.connect()
        listener = self._listeners.get(session)
        if listener is not None:
            listener.begin()
        self._sessions.add(session)

    # ---------------------------------------------------------------- sessions that several processes serve

    @property
    def position(self) -> int:
        """The position of the newest change that this process was told of."""
        return self._buffer.position

    def leave(self, session: Session) -> None:
        """Tell a session nothing more until it joins again."""
        with self._buffer.lock:
            self._sessions.discard(session)
            listener = self._listeners.get(session)
            if listener is not None:
                listener.skip()

    def told(self, session: Session, *, sending: bool) -> int:
        """The position up to which a session that has joined was told; with `sending`, when the change in hand is sent."""
        listener = self._listeners.get(session)
        return self._buffer.position if listener is None else listener.told(sending)

    def changes_after(self, position: int) -> list[Changed] | None:
        """The changes after a position, each thing once; None if some of them are no longer kept.

        Those for one caller are left out: what they are about belongs to this process.
        """
        changes: list[Changed] = []
        if self._stop is None:
            return None
        with self._buffer.lock:
            while (entry := self._buffer.after(position)) is not None:
                position, message = entry
                if isinstance(message, ChangesLost):
                    return None
                if not isinstance(message.change, ChangedFor):
                    changes.append(message.change)
        return changes

    def tell_again(self, session: Session, changes: Iterable[Changed] | None) -> None:
        """Tell a session what it missed elsewhere; None stands for everything that it subscribed to."""
        known = ref(session)
        matching = (
            self.everything_of(known)
            if changes is None
            else [change for change in changes if self.tells(known, change)]
        )
        if matching:
            self._listener(session).repeat(matching)

    def watched(self, session: Session) -> list[str]:
        """The resources that a session subscribed to."""
        return list(self._watched.get(session, ()))

    async def watch_again(self, ctx: Context[Any], uri: str) -> None:
        """Subscribe to a resource what subscribed in another process, unless it has ended or its caller may not any more."""
        if served_call(ctx).session.connection.closed is not None:
            return
        with suppress(InvalidParams, InsufficientScope, Overloaded):
            await self.subscribe(ctx, SubscribeParams(uri=uri))

    def unwatch(self, session: Session, uri: str) -> None:
        """End the subscription of a session to a resource."""
        ctx = self._watched.get(session, {}).pop(uri, None)
        if ctx is not None:
            self._forget(served_call(ctx).call)
            self._unwatch(caller_key(ctx), (uri,))

    def _listener(self, session: Session) -> _SessionListener:
        listener = self._listeners.get(session)
        if listener is None:
            listener = self._listeners[session] = _SessionListener(session, self._buffer, self)
        return listener

    def tells(self, session: ReferenceType[Session], event: Event) -> bool:
        """Whether a session is told of an event."""
        if isinstance(event, ChangedFor) and event.caller != session:
            return False
        if isinstance(event, ChangesLost) or event.kind in LIST_CHANGED:
            return True
        return _is_watched(event, self._uris_of(session))

    def everything_of(self, session: ReferenceType[Session]) -> list[Changed]:
        """All that a session is told about."""
        lists = [Changed(kind) for kind in self._offered_lists()]
        return lists + [Changed("resource", uri) for uri in self._uris_of(session)]

    def _uris_of(self, session: ReferenceType[Session]) -> tuple[str, ...]:
        alive = session()
        return () if alive is None else tuple(self._watched.get(alive, ()))

    async def session_may_see(self, session: Session, uri: str) -> bool:
        """Whether a session that watches a resource, or one above it, may learn that it changed."""
        contexts = self._watched.get(session, {})
        ctx = next((ctx for watched, ctx in contexts.items() if covers(watched, uri)), None)
        if ctx is None:
            return False
        if session.authority is not None:
            served_call(ctx).call.origin = session.authority
        return await self.may_see(ctx, uri)

    async def may_see(self, ctx: Context[Any], uri: str) -> bool:
        """Whether a caller may learn that a resource changed."""
        try:
            return await self._offered.may_see_change(ctx, uri)
        except Exception:
            logger.exception("A change of %s is not reported: it could not be decided who may see it", uri)
            return False

    async def subscribe(self, ctx: Context[Any], params: SubscribeParams) -> None:
        """`resources/subscribe` of the handshake era. Raises Overloaded, InvalidParams and InsufficientScope."""
        call, session = served_call(ctx).call, served_call(ctx).session
        watched = self._watched.get(session)
        if watched is None:
            watched = self._watched[session] = {}
            session.on_close(self._unsubscriber(session))
        if len(watched) >= self._max_uris and params.uri not in watched:
            raise Overloaded(f"Too many subscriptions: {self._max_uris} at once is the limit here")
        before = watched.get(params.uri)
        more = _size_of(call) - (0 if before is None else _size_of(served_call(before).call))
        # Nothing of this gives way to others, so a caller takes at most as much as it leaves to them.
        if self._bytes.held(call.origin.holder) + more > self._max_bytes - self._bytes.size:
            raise self._too_large()
        caller = caller_key(ctx)
        self._watch(caller, (params.uri,))
        try:
            if not await self._offered.may_watch(ctx, params.uri):
                raise InvalidParams("This resource can't be subscribed to", {"uri": params.uri})
            if self._watched.get(session) is watched:
                if params.uri not in watched:
                    self._watch(caller, (params.uri,))
                else:
                    self._forget(served_call(watched[params.uri]).call)
                watched[params.uri] = ctx
                self._keep(call)
        finally:
            self._unwatch(caller, (params.uri,))

    def _unsubscriber(self, session: Session) -> Callable[[], Awaitable[None]]:
        async def unsubscribe() -> None:
            for uri, ctx in self._watched.pop(session, {}).items():
                self._forget(served_call(ctx).call)
                self._unwatch(caller_key(ctx), (uri,))

        return unsubscribe

    def _too_large(self) -> Overloaded:
        return Overloaded(f"Too large subscriptions: {self._max_bytes} bytes of all requests is the limit here")

    def _make_room(self, newcomer: Hashable, size: int) -> None:
        """Have room for one more stream: the oldest one of whoever has most ends, if that leaves no fewer than the newcomer has.

        Raises:
            Overloaded: There is no room for this caller.
        """
        while len(self._shares) >= self._max_streams:
            if not self._gives_way(self._shares, newcomer, 1):
                raise Overloaded(f"Too many subscriptions: {self._max_streams} at once is the limit here")
        while self._bytes.size + size > self._max_bytes:
            if not self._gives_way(self._bytes, newcomer, size):
                raise self._too_large()

    def _gives_way(self, shares: Shares[Call], newcomer: Hashable, size: int) -> bool:
        """End the oldest stream of whoever has most. What sessions subscribed to stays: their clients count on it."""
        call = next((one for one in shares.giving_way(newcomer) if one in self._streams), None)
        if call is None or shares.held(self._holders[call]) <= shares.held(newcomer) + size:
            return False
        stream = self._streams[call]
        self._forget(call)
        stream.end()
        return True

    def _keep(self, call: Call) -> None:
        """Count a request that has subscribed."""
        self._holders[call] = holder = call.origin.holder
        self._bytes.add(holder, call, _size_of(call))
        if call in self._streams:
            self._shares.add(holder, call)

    def _forget(self, call: Call) -> None:
        """The subscription has ended, or is about to."""
        if call in self._holders:
            holder = self._holders.pop(call)
            self._bytes.discard(holder, call)
            self._shares.discard(holder, call)

    async def unsubscribe(self, ctx: Context[Any], params: SubscribeParams) -> None:
        """`resources/unsubscribe`."""
        self.unwatch(served_call(ctx).session, params.uri)

    # ---------------------------------------------------------------- stateless era

    async def listen(self, ctx: Context[Any], params: ListenParams) -> ListenResult:
        """`subscriptions/listen`: acknowledge, then send changes until the client or the server ends the stream.

        Where nothing surrounds the handler and the channel allows it, the call is detached while there is nothing to send,
        and this is called again when there is something that has to wait.
        """
        call = served_call(ctx).call
        stream = self._streams.get(call)
        try:
            if stream is None:
                stream = await self._open(ctx, params.notifications)
            await stream.run(ctx, can_detach=self._can_detach())
        except Detached:
            raise
        except BaseException:
            self.close(call)
            raise
        self.close(call)
        return ListenResult(meta={SUBSCRIPTION_ID: ctx.request_id})

    async def _open(self, ctx: Context[Any], notifications: SubscriptionFilter) -> _ListenStream:
        """Begin a subscription, and acknowledge it."""
        self.connect()
        requested = list(dict.fromkeys(notifications.resource_subscriptions or ()))
        if len(requested) > self._max_uris:
            raise InvalidParams(f"Too many resources in one subscription: {self._max_uris} is the limit here")
        call = served_call(ctx).call
        self._make_room(call.origin.holder, _size_of(call))
        caller = caller_key(ctx)
        begun = {LISTS_URI, *requested}
        self._watch(caller, begun)
        kept: set[str] = set()
        try:
            agreed = await self._agreed(ctx, notifications, requested)
            topics = await self._agreed_topics(ctx)
            if lists_of_filter(agreed):
                await self._offered.watch_lists(ctx)
            kept = {LISTS_URI, *(agreed.resource_subscriptions or ())}
        finally:
            self._unwatch(caller, begun - kept)
        with self._buffer.lock:
            audience = self._audience(call, agreed, topics)
            stream = _ListenStream(ctx, audience, self._buffer, self)
            self._streams[call] = stream
            audience.streams.add(stream)
            self._keep(call)
        count("gemel.server.active_subscriptions", 1)
        served_call(ctx).session.on_end_of_input(stream.end)
        accepted = {member: keys for member, (_, keys) in topics.items()}
        await ctx.notify(
            "notifications/subscriptions/acknowledged",
            {"notifications": {**msgspec.to_builtins(agreed), **accepted}, "_meta": {SUBSCRIPTION_ID: ctx.request_id}},
        )
        return stream

    def _audience(self, call: Call, agreed: SubscriptionFilter, topics: Mapping[str, tuple[Topic, Any]]) -> _Audience:
        """The streams with the same filter; only extensions know whether their keys are the same."""
        lists = lists_of_filter(agreed)
        uris = tuple(agreed.resource_subscriptions or ())
        key = call if topics else (lists, uris)
        audience = self._audiences.get(key)
        if audience is None:
            audience = self._audiences[key] = _Audience(key, self._loop, lists, uris, topics)
        return audience

    def close(self, call: Call) -> None:
        """End a subscription, if there is one."""
        stream = self._streams.pop(call, None)
        if stream is not None:
            audience = stream.audience
            with self._buffer.lock:
                audience.streams.remove(stream)
                if not audience.streams:
                    del self._audiences[audience.key]
            stream.session.forget_end_of_input(stream.end)
            self._forget(call)
            self._unwatch(stream.caller, (LISTS_URI, *audience.uris))
            count("gemel.server.active_subscriptions", -1)

    async def _agreed(
        self, ctx: Context[Any], requested: SubscriptionFilter, uris: Iterable[str]
    ) -> SubscriptionFilter:
        """The part of the filter that the server offers and the caller may subscribe to."""
        offered = self._offered_lists()
        agreed = filter_of_lists(feature for feature in lists_of_filter(requested) if feature in offered)
        if requested.resource_subscriptions is not None and "resources" in offered:
            agreed.resource_subscriptions = [uri for uri in uris if await self._may_watch(ctx, uri)]
        return agreed

    async def _may_watch(self, ctx: Context[Any], uri: str) -> bool:
        try:
            return await self._offered.may_watch(ctx, uri)
        except InsufficientScope:
            return False

    async def _agreed_topics(self, ctx: Context[Any]) -> dict[str, tuple[Topic, Any]]:
        """The part of the filter that extensions define and accept."""
        if not self._offered.topics:
            return {}
        return await accept_topics(ctx, _whole_filter.decode(ctx.params).notifications, self._offered.topics)

    def _offered_lists(self) -> list[str]:
        capabilities = self._offered.capabilities()
        return [kind for kind in LIST_CHANGED if getattr(capabilities, kind) is not None]

    def end(self) -> None:
        """End every stream with its result; the server stops.

        Changes are still received: another process that goes on for a session asks this one what has changed.
        """
        for stream in list(self._streams.values()):
            stream.end()

    def disconnect(self) -> None:
        """Be told of changes no more; the server has stopped."""
        if self._stop is not None:
            self._stop()
            self._stop = None
            self._buffer.add(ChangesLost("the server was not connected to its backend"))

    def leave_to_parent(self) -> None:
        """Tell nobody in this process, which was forked: its subscribers are those of the parent."""
        self._buffer.lock = threading.RLock()
        self._audiences, self._sessions = {}, WeakSet()


def _is_watched(change: Changed, watched: Iterable[str]) -> bool:
    changed = resource_of(change)
    return changed is not None and any(covers(uri, changed) for uri in watched)


class SharedBuffer(ChangeBuffer):
    """The buffer of one server in one event loop, for all threads.

    `lock` is held while changes are added and readers are told of them, and while a reader looks for the next one.
    """

    def __init__(self) -> None:
        super().__init__(FIXED_LIMITS.queued_changes, FIXED_LIMITS.queued_change_bytes)
        self.lock = threading.RLock()


class ChangeReader:
    """One reader of the buffer: its position, and what it is told again after it has lost changes.

    Args:
        buffer: The changes.
        loop: The event loop of the reader.
    """

    __slots__ = ("_buffer", "_idle", "_position", "_repeating", "_skipped", "_told", "loop")

    def __init__(self, buffer: SharedBuffer, loop: asyncio.AbstractEventLoop) -> None:
        self._buffer = buffer
        self.loop = loop
        self._position = 0
        #: Whether it has read all that it subscribed to. Its position counts only while it has not.
        self._idle = True
        #: The position up to which all was sent; -1 while what came before this reader is repeated.
        self._told = 0
        self._repeating: Iterator[Changed] | None = None
        #: The position up to which it was told when something could not be sent; None while all was sent.
        self._skipped: int | None = None

    def matches(self, event: Event) -> bool:
        """Whether it subscribed to an event."""
        raise NotImplementedError

    def everything(self) -> Iterable[Changed]:
        """All that it subscribed to."""
        raise NotImplementedError

    def wake(self, noticed: int = 0) -> None:
        """Called in its event loop when there is something to take; with the position of what was noticed, if it was idle."""
        raise NotImplementedError

    def told(self, sending: bool) -> int:
        """The position up to which the reader was told; with `sending`, when the change that it took is sent."""
        with self._buffer.lock:
            if self._skipped is not None:
                return self._skipped
            if self._idle:
                return self._buffer.position
            return self._position if sending and self._repeating is None else self._told

    def begin(self) -> None:
        """What was skipped is told otherwise."""
        self._skipped = None

    def repeat(self, changes: Iterable[Changed]) -> None:
        """Let the reader take these changes, too, before what it was not told yet. Called in its event loop."""
        with self._buffer.lock:
            if self._idle:
                self._idle = False
                self._position = self._buffer.position
            self._told = -1
            self._repeating = iter([*changes, *(self._repeating or ())])
        self.wake()

    def notice(self, position: int) -> bool:
        """There is something new at this position. Returns whether the reader has to be woken, in its event loop.

        Called from any thread that holds the lock of the buffer.
        """
        if self._idle:
            self._idle = False
            self._position = self._told = position - 1
            return True
        return False

    def take_noticed(self, position: int) -> ChangeMessage | None:
        """Return the change that was noticed at this position if it is all there is to take; then the reader is idle again."""
        buffer = self._buffer
        with buffer.lock:
            if (
                self._idle
                or position != buffer.position
                or position != self._position + 1
                or self._repeating is not None
            ):
                return None
            message = buffer.newest
            self._idle = message is not None
            return message

    def give_back(self) -> None:
        """What `take_noticed` returned is not sent yet."""
        with self._buffer.lock:
            self._idle = False

    def skip(self) -> None:
        """Forget what is not read: it can't be sent."""
        with self._buffer.lock:
            self._skipped = self.told(False)
            self._idle = True
            self._repeating = None

    def take(self) -> ChangeMessage | None:
        """Return the next change for this reader; None if there is none."""
        while True:
            # All of it before the next loss is looked at, so that a slow reader gets to its end.
            if self._repeating is not None:
                if (change := next(self._repeating, None)) is not None:
                    return self._buffer.message(change)
                self._repeating = None
            self._told = self._position
            with self._buffer.lock:
                found = None if self._idle else self._buffer.after(self._position)
                if found is None:
                    self._idle = True
                    return None
                behind = found[0] - self._position
                self._position, message = found
            if isinstance(message, ChangesLost):
                count("gemel.server.dropped_changes", behind)
                self._repeating = iter(list(self.everything()))
            elif self.matches(message.change):
                return message


def _wake_all(loop: asyncio.AbstractEventLoop, readers: list[ChangeReader], noticed: int) -> None:
    """Wake readers in their event loop, some at once, so that it serves others between."""
    for _ in range(min(len(readers), WOKEN_AT_ONCE)):
        try:
            readers.pop().wake(noticed)
        except Exception:
            logger.exception("A subscriber could not be told of a change")
    if readers:
        loop.call_soon(_wake_all, loop, readers, noticed)


class _SessionListener(ChangeReader):
    """The changes that a session of the handshake era was not told yet; one task sends those that may have to wait."""

    __slots__ = ("__weakref__", "_immediate", "_sending", "_session", "_subscriptions")

    def __init__(self, session: Session, buffer: SharedBuffer, subscriptions: Subscriptions) -> None:
        super().__init__(buffer, session.loop)
        self._session = ref(session)
        self._immediate = isinstance(session.channel, ImmediateChannel)
        self._subscriptions = subscriptions
        self._sending = False

    def matches(self, event: Event) -> bool:
        """Whether the session is told of an event."""
        return self._subscriptions.tells(self._session, event)

    def everything(self) -> list[Changed]:
        """All that the session is told about."""
        return self._subscriptions.everything_of(self._session)

    def wake(self, noticed: int = 0) -> None:
        """Send what needs no waiting, and the rest in a task."""
        session = self._session()
        if session is not None and not self._sending and not self._sent_now(session, noticed):
            self._sending = True
            session.start_sending(self._send, session)

    def _sent_now(self, session: Session, noticed: int) -> bool:
        """Whether a change of a list, which is all that there is to tell, could be sent at once."""
        if not self._immediate or session.connection.closed is not None or _has_expired(session):
            return False
        message = self.take_noticed(noticed)
        if message is None:
            return False
        channel = cast("ImmediateChannel", session.channel)
        if resource_of(message.change) is None and channel.send_now(message.data, message.method):
            return True
        self.give_back()
        return False

    async def _send(self, session: Session) -> None:
        try:
            while session.connection.closed is None:
                if _has_expired(session):
                    session.on_authority = self.wake  # it is told with another token
                    return
                if (message := self.take()) is None:
                    return
                uri = resource_of(message.change)
                if uri is None or await self._subscriptions.session_may_see(session, uri):
                    await session.send_notification(message.data, message.method)
        except BaseException:
            self.skip()
            raise
        finally:
            self._sending = False


def _has_expired(session: Session) -> bool:
    """Whether a session is told nothing until it is used with another token."""
    return session.authority is not None and session.authority.has_expired(time.time())


class _Audience:
    """The streams with one filter.

    Args:
        key: Where it is found.
        loop: The event loop of its streams.
        lists: The kinds of lists whose changes they are told.
        uris: The resources that they watch.
        topics: Topics of extensions by the member of the filter, each with its keys, or True for all keys.
    """

    __slots__ = ("key", "lists", "loop", "streams", "topics", "uris")

    def __init__(
        self,
        key: object,
        loop: asyncio.AbstractEventLoop,
        lists: tuple[str, ...],
        uris: tuple[str, ...],
        topics: Mapping[str, tuple[Topic, Any]],
    ) -> None:
        self.key = key
        self.loop = loop
        self.lists = lists
        self.uris = uris
        #: By the kind of change.
        self.topics = {topic.kind: (topic, keys) for topic, keys in topics.values()}
        self.streams: set[_ListenStream] = set()

    def matches(self, event: Event) -> bool:
        """Whether the filter has an event."""
        if isinstance(event, ChangesLost):
            return True
        if event.kind in self.topics:
            _, keys = self.topics[event.kind]
            return keys is True or event.uri in keys
        return event.kind in self.lists or _is_watched(event, self.uris)

    def everything(self) -> list[Changed]:
        """All that the filter has."""
        lists = [Changed(kind) for kind in self.lists] + [Changed("resource", uri) for uri in self.uris]
        return lists + [change for kind in self.topics for change in self._all_of(kind)]

    def _all_of(self, kind: str) -> list[Changed]:
        _, keys = self.topics[kind]
        return [Changed(kind)] if keys is True else [Changed(kind, key) for key in keys]


class _ListenStream(ChangeReader):
    """One listen request, and the changes that it wasn't told yet.

    A call that is served is told by its task. While it is detached, or its task waits, `wake` sends what needs no waiting.
    """

    __slots__ = (
        "_call",
        "_channel",
        "_detached",
        "_end",
        "_ended",
        "_held",
        "_subscriptions",
        "_wake",
        "audience",
        "caller",
        "session",
    )

    def __init__(
        self,
        ctx: Context[Any],
        audience: _Audience,
        buffer: SharedBuffer,
        subscriptions: Subscriptions,
    ) -> None:
        super().__init__(buffer, audience.loop)
        self.audience = audience
        self.caller = caller_key(ctx)
        self._call, self.session = served_call(ctx).call, served_call(ctx).session
        channel = self.session.channel
        self._channel = channel if isinstance(channel, DetachableChannel) else None
        assert ctx.request_id is not None
        self._end = subscription_end(ctx.request_id)
        self._subscriptions = subscriptions
        #: What the task waits for; whether the call has none.
        self._wake: asyncio.Future[None] | None = None
        self._detached = False
        #: What was taken and could not be sent at once.
        self._held: ChangeMessage | None = None
        self._ended = False

    def matches(self, event: Event) -> bool:
        """Whether the filter has an event, and it is not for another caller."""
        if isinstance(event, ChangedFor) and event.caller != self.caller:
            return False
        return self.audience.matches(event)

    def everything(self) -> list[Changed]:
        """All that the filter has."""
        return self.audience.everything()

    def end(self) -> None:
        """Send the changes that are left, then end with the result."""
        self._ended = True
        self.loop.call_soon_threadsafe(self.wake)

    def wake(self, noticed: int = 0) -> None:
        """Send what needs no waiting. The task does the rest; while it has something in hand, it does everything."""
        if not self._detached and (self._wake is None or self._wake.done()):
            return
        message = self.take_noticed(noticed)
        if message is not None and self._sent_now(message):
            return
        while message is None and (message := self.take()) is not None and self._sent_now(message):
            message = None
        if self._ended or message is not None:
            self._held = message
            self._resume()

    def _resume(self) -> None:
        if self._wake is not None:
            self._wake.set_result(None)
        elif self._detached:
            self._detached = False
            assert self._channel is not None
            self._channel.resume()

    def _sent_now(self, message: ChangeMessage) -> bool:
        """Whether a change of a list, which all subscribers may see, could be sent at once."""
        channel = self._channel
        if channel is None or message.change.kind not in self.audience.lists:
            return False
        return channel.send_now(message.opening + self._end, message.method)

    async def run(self, ctx: Context[Any], *, can_detach: bool) -> None:
        """Send changes until the end. Raises Detached when there are none, if the call can go on without a task."""
        can_detach = can_detach and self._channel is not None and self._channel.can_detach
        while self._call.state is CallState.RUNNING:
            message, self._held = self._held or self.take(), None
            if message is not None:
                await self._send(ctx, message)
            elif self._ended:
                self._announce_end()
                break
            elif can_detach and not served_call(ctx).has_to_finish:
                # What waits at the end of the task would miss a change: log messages, and changes that other processes get.
                raise Detached(self, self._detach)
            else:
                self._wake = self.loop.create_future()
                await self._wake

    def _detach(self) -> None:
        self._detached = True
        assert self._channel is not None
        self._channel.detach()

    def cancel(self) -> None:
        """The detached call was cancelled."""
        self._subscriptions.close(self._call)
        self._call.work = None  # breaks the reference cycle, which would keep the params
        self._resume()

    def _announce_end(self) -> None:
        """On a channel that stays open, a cancellation follows the result.

        https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation
        In the other order, clients of the official SDKs would treat the cancellation as a lost subscription.
        """
        method, reason = "notifications/cancelled", "the server ended the subscription"
        params = {"requestId": self._call.id, "reason": reason, "_meta": {SUBSCRIPTION_ID: self._call.id}}
        self._call.parting = Outgoing(jsonrpc.encode_notification(method, params), None, method)

    async def _send(self, ctx: Context[Any], message: ChangeMessage) -> None:
        change, uri = message.change, resource_of(message.change)
        if change.kind in self.audience.topics:
            await self._send_topic(ctx, change)
        elif (uri is None or await self._subscriptions.may_see(ctx, uri)) and self._call.state is CallState.RUNNING:
            with suppress(ChannelClosed, ConnectionLost):
                await self.session.send_notification(message.opening + self._end, message.method, self._call)

    async def _send_topic(self, ctx: Context[Any], change: Changed) -> None:
        """Send an extension's notification. If the extension fails, only this notification is lost."""
        topic, _ = self.audience.topics[change.kind]
        try:
            params = await topic.describe(ctx, change.uri)
        except Exception:
            logger.exception("%s: the extension failed to describe the change", topic.method)
            return
        if params is not None:
            meta = {**params.get("_meta", {}), SUBSCRIPTION_ID: ctx.request_id}
            await ctx.notify(topic.method, {**params, "_meta": meta})
