"""Subscriptions: telling clients what changed.

Stateless era: streams of `subscriptions/listen`
(https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions).
Handshake era: list changes to every client, and `resources/subscribe`
(https://modelcontextprotocol.io/specification/2025-11-25/server/resources#subscriptions).

Each reader has a bounded queue with one entry per changed thing, so that repetition fills no queue and a slow reader delays
nobody else. Beyond the bound, everything that the reader subscribed to counts as changed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Protocol, TypeAlias
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import msgspec
from msgspec import Raw, Struct

from hinge import jsonrpc
from hinge.backends.base import Backend, Event
from hinge.errors import InvalidParams, Overloaded
from hinge.protocol.changes import Changed, ChangesLost, covers
from hinge.protocol.limits import Limits
from hinge.protocol.records import Outgoing
from hinge.protocol.states import CallState
from hinge.schema.base import SUBSCRIPTION_ID, EmptyResult
from hinge.schema.lifecycle import ServerCapabilities
from hinge.schema.resources import ResourceUpdatedParams, SubscribeParams
from hinge.schema.subscriptions import ListenParams, ListenResult, SubscriptionFilter
from hinge.server.context import Context
from hinge.server.extensions import Topic, accept_topics
from hinge.session import Session
from hinge.telemetry import count

logger = logging.getLogger("hinge")

#: Whether this caller may subscribe to this resource.
Authorize: TypeAlias = Callable[[Context[Any], str], bool | Awaitable[bool]]

_LISTS = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}


class _AnyFilter(Struct):
    notifications: dict[str, Raw]


_whole_filter = msgspec.json.Decoder(_AnyFilter)


class Offered(Protocol):
    """What subscriptions need to know about a server."""

    #: Members that extensions add to the filter.
    topics: dict[str, tuple[str, Topic]]

    def capabilities(self) -> ServerCapabilities:
        """The capabilities; only lists that they name can be subscribed to."""
        ...

    async def may_watch(self, ctx: Context[Any], uri: str) -> bool:
        """Whether this caller may watch a resource."""
        ...

    async def may_see_change(self, ctx: Context[Any], uri: str) -> bool:
        """Whether this caller may learn that a resource changed."""
        ...

    def unwatched(self, uri: str) -> None:
        """Called when the last subscription to a resource has ended."""


class Subscriptions:
    """The subscriptions of one server."""

    def __init__(
        self,
        backend: Backend,
        offered: Offered,
        limits: Limits,
    ) -> None:
        self._backend = backend
        self._offered = offered
        self._limits = limits
        self._max_streams = limits.streams
        self._max_uris = limits.watched
        self._streams: set[_ListenStream] = set()
        #: By session and URI: the context of the request that subscribed to the resource.
        self._watched: dict[Session, dict[str, Context[Any]]] = {}
        self._sessions: WeakSet[Session] = WeakSet()
        #: Made when there is something to tell.
        self._listeners: WeakKeyDictionary[Session, _SessionListener] = WeakKeyDictionary()
        self._stop: Callable[[], None] | None = None
        #: How many subscriptions each URI has or is about to have.
        self._watchers: Counter[str] = Counter()

    def _watch(self, uris: Iterable[str]) -> None:
        self._watchers.update(uris)

    def _unwatch(self, uris: Iterable[str]) -> None:
        for uri in uris:
            self._watchers[uri] -= 1
            if self._watchers[uri] <= 0:
                del self._watchers[uri]
                self._offered.unwatched(uri)

    def publish(self, event: Changed) -> None:
        """Tell the subscribers in all processes that something changed; from any thread.

        If the backend fails, the subscribers in this process are told all the same.
        """
        self._connect()
        try:
            self._backend.publish(event)
        except Exception:
            logger.exception("The backend could not publish a change: other processes are not told")
        else:
            if self._stop is not None:
                return
        self._on_event(event)

    def _connect(self) -> None:
        if self._stop is None:
            try:
                self._stop = self._backend.subscribe(self._on_event)
            except Exception:
                logger.exception("The backend could not subscribe: changes of other processes are not reported")

    def _on_event(self, event: Event) -> None:
        for stream in list(self._streams):
            stream.add(event)
        self._notify_sessions(event)

    # ---------------------------------------------------------------- handshake era

    def join(self, session: Session) -> None:
        """Tell a session of the handshake era about changed lists from now on."""
        self._connect()
        self._sessions.add(session)

    def _notify_sessions(self, event: Event) -> None:
        for session in list(self._sessions):
            if not session.connection.handshake.open:
                continue
            watched = tuple(self._watched.get(session, ()))
            changes = [event] if isinstance(event, Changed) else self._everything(watched)
            changes = [change for change in changes if change.kind in _LISTS or _is_watched(change, watched)]
            if changes:
                listener = self._listeners.get(session)
                if listener is None:
                    everything = partial(self._everything_of, ref(session))
                    listener = _SessionListener(session, self._limits, everything, self._session_may_see)
                    self._listeners[session] = listener
                listener.changes.add(changes)

    def _everything_of(self, session: ReferenceType[Session]) -> list[Changed]:
        alive = session()
        return self._everything(() if alive is None else tuple(self._watched.get(alive, ())))

    async def _session_may_see(self, session: Session, uri: str) -> bool:
        """Whether a session that watches a resource, or one above it, may learn that it changed."""
        contexts = self._watched.get(session, {})
        ctx = next((ctx for watched, ctx in contexts.items() if covers(watched, uri)), None)
        return ctx is not None and await _may_see_change(self._offered, ctx, uri)

    def _everything(self, watched: Iterable[str]) -> list[Changed]:
        """All that a session is told about."""
        lists = [Changed(kind) for kind in self._offered_lists()]
        return lists + [Changed("resource", uri) for uri in watched]

    async def subscribe(self, ctx: Context[Any], params: SubscribeParams) -> EmptyResult:
        """`resources/subscribe` of the handshake era. Raises Overloaded and InvalidParams."""
        session = ctx._session
        watched = self._watched.get(session)
        if watched is None:
            watched = self._watched[session] = {}
            session.on_close(self._unsubscriber(session))
        if len(watched) >= self._max_uris and params.uri not in watched:
            raise Overloaded(f"Too many subscriptions: {self._max_uris} at once is the limit here")
        self._watch((params.uri,))
        try:
            if not await self._offered.may_watch(ctx, params.uri):
                raise InvalidParams("This resource can't be subscribed to", {"uri": params.uri})
            if self._watched.get(session) is watched:
                if params.uri not in watched:
                    self._watch((params.uri,))
                watched[params.uri] = ctx
        finally:
            self._unwatch((params.uri,))
        return EmptyResult()

    def _unsubscriber(self, session: Session) -> Callable[[], Awaitable[None]]:
        async def unsubscribe() -> None:
            self._unwatch(self._watched.pop(session, ()))

        return unsubscribe

    async def unsubscribe(self, ctx: Context[Any], params: SubscribeParams) -> EmptyResult:
        """`resources/unsubscribe`."""
        if self._watched.get(ctx._session, {}).pop(params.uri, None) is not None:
            self._unwatch((params.uri,))
        return EmptyResult()

    # ---------------------------------------------------------------- stateless era

    async def listen(self, ctx: Context[Any], params: ListenParams) -> ListenResult:
        """`subscriptions/listen`: acknowledge, then send changes until the client or the server ends the stream."""
        self._connect()
        if len(self._streams) >= self._max_streams:
            raise Overloaded(f"Too many subscriptions: {self._max_streams} at once is the limit here")
        requested = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(requested) > self._max_uris:
            raise InvalidParams(f"Too many resources in one subscription: {self._max_uris} is the limit here")
        self._watch(requested)
        try:
            agreed = await self._agreed(ctx, params.notifications, requested)
            rejected = set(requested).difference(agreed.resource_subscriptions or ())
            self._unwatch(rejected)
            requested = [uri for uri in requested if uri not in rejected]
            await self._run(ctx, agreed)
        finally:
            self._unwatch(requested)
        return ListenResult(meta={SUBSCRIPTION_ID: ctx.request_id})

    async def _run(self, ctx: Context[Any], agreed: SubscriptionFilter) -> None:
        stream = _ListenStream(ctx, agreed, await self._agreed_topics(ctx), self._limits, self._offered)
        self._streams.add(stream)
        count("hinge.server.active_subscriptions", 1)
        unregister = ctx._session.on_end_of_input(stream.end)
        try:
            await stream.run()
        finally:
            unregister()
            self._streams.discard(stream)
            count("hinge.server.active_subscriptions", -1)

    async def _agreed(
        self, ctx: Context[Any], requested: SubscriptionFilter, uris: Iterable[str]
    ) -> SubscriptionFilter:
        """The part of the filter that the server offers and the caller may subscribe to."""
        offered = self._offered_lists()
        agreed = SubscriptionFilter(
            tools_list_changed=(requested.tools_list_changed and "tools" in offered) or None,
            prompts_list_changed=(requested.prompts_list_changed and "prompts" in offered) or None,
            resources_list_changed=(requested.resources_list_changed and "resources" in offered) or None,
        )
        if requested.resource_subscriptions is not None and "resources" in offered:
            agreed.resource_subscriptions = [uri for uri in uris if await self._offered.may_watch(ctx, uri)]
        return agreed

    async def _agreed_topics(self, ctx: Context[Any]) -> dict[str, tuple[Topic, Any]]:
        """The part of the filter that extensions define and accept."""
        if not self._offered.topics:
            return {}
        return await accept_topics(ctx, _whole_filter.decode(ctx.params).notifications, self._offered.topics)

    def _offered_lists(self) -> list[str]:
        capabilities = self._offered.capabilities()
        return [kind for kind in _LISTS if getattr(capabilities, kind) is not None]

    def end(self) -> None:
        """End every stream with its result; the server stops."""
        for stream in list(self._streams):
            stream.end()
        if self._stop is not None:
            self._stop()
            self._stop = None


def _is_watched(change: Changed, watched: Iterable[str]) -> bool:
    return change.kind == "resource" and any(covers(uri, change.uri or "") for uri in watched)


class PendingChanges:
    """Changes that one reader was not told yet; repeats are merged.

    Beyond `limits.queued_changes` or `limits.queued_change_bytes` they are replaced by `everything` that the reader subscribed
    to. `wake` is called in the event loop when there is something to take.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        everything: Callable[[], Iterable[Changed]],
        wake: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._max_count = limits.queued_changes
        self._max_bytes = limits.queued_change_bytes
        self._everything = everything
        self._wake = wake
        self._lock = threading.Lock()
        self._changes: dict[Changed, None] = {}
        self._count = 0
        self._bytes = 0
        self._waking = False

    def add(self, changes: Iterable[Changed]) -> None:
        """Add changes; from any thread."""
        with self._lock:
            for change in changes:
                if change not in self._changes:
                    self._changes[change] = None
                    self._count += 1
                    self._bytes += _size(change)
            if self._count > self._max_count or self._bytes > self._max_bytes:
                self._replace_by_everything()
            if self._waking or not self._changes:
                return
            self._waking = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._woken)

    def _replace_by_everything(self) -> None:
        everything = dict.fromkeys(self._everything())
        # What waits already keeps its place, so that a reader gets to the end of it.
        remaining = {change: None for change in self._changes if change in everything}
        count("hinge.server.dropped_changes", len(self._changes) - len(remaining))
        self._changes = {**remaining, **everything}
        self._count = self._bytes = 0

    def _woken(self) -> None:
        self._waking = False
        self._wake()

    def take(self) -> Changed | None:
        """Remove and return the oldest change; None if there is none."""
        with self._lock:
            if not self._changes:
                return None
            change = next(iter(self._changes))
            del self._changes[change]
            self._count = max(self._count - 1, 0)
            self._bytes = max(self._bytes - _size(change), 0)
            return change


def _size(change: Changed) -> int:
    return len(change.uri or "")


@lru_cache(maxsize=256)
def _encode_change(change: Changed) -> tuple[bytes, str]:
    """The notification of a change and its method. All sessions, and what they keep to resume streams, share the bytes."""
    if change.kind == "resource":
        method = "notifications/resources/updated"
        return jsonrpc.encode_notification(method, ResourceUpdatedParams(uri=change.uri or "")), method
    method = _LISTS[change.kind]
    return jsonrpc.encode_notification(method), method


class _SessionListener:
    """The changes that a session of the handshake era was not told yet; one task sends them while there are any."""

    def __init__(
        self,
        session: Session,
        limits: Limits,
        everything: Callable[[], Iterable[Changed]],
        may_see: Callable[[Session, str], Awaitable[bool]],
    ) -> None:
        self._session = ref(session)
        self._may_see = may_see
        self._sending = False
        self.changes = PendingChanges(session.loop, limits, everything, self._start)

    def _start(self) -> None:
        session = self._session()
        if session is not None and not self._sending and session.connection.closed is None:
            self._sending = True
            session.start_sending(self._send(session))

    async def _send(self, session: Session) -> None:
        try:
            while session.connection.closed is None and (change := self.changes.take()) is not None:
                if change.kind != "resource" or await self._may_see(session, change.uri or ""):
                    await session.send_notification(*_encode_change(change))
        finally:
            self._sending = False


async def _may_see_change(offered: Offered, ctx: Context[Any], uri: str) -> bool:
    try:
        return await offered.may_see_change(ctx, uri)
    except Exception:
        logger.exception("A change of %s is not reported: it could not be decided who may see it", uri)
        return False


class _ListenStream:
    """One listen request: its filter, and the changes that it wasn't told yet."""

    __slots__ = ("_changes", "_ctx", "_ended", "_first", "_lists", "_loop", "_offered", "_topics", "_uris", "_wake")

    def __init__(
        self,
        ctx: Context[Any],
        agreed: SubscriptionFilter,
        topics: Mapping[str, tuple[Topic, Any]],
        limits: Limits,
        offered: Offered,
    ) -> None:
        self._ctx = ctx
        self._offered = offered
        self._loop = asyncio.get_running_loop()
        self._lists = {
            kind
            for kind, on in (
                ("tools", agreed.tools_list_changed),
                ("prompts", agreed.prompts_list_changed),
                ("resources", agreed.resources_list_changed),
            )
            if on
        }
        self._uris = agreed.resource_subscriptions or ()
        self._changes = PendingChanges(self._loop, limits, self._everything, self._wake_up)
        self._wake: asyncio.Future[None] | None = None
        self._ended = False
        #: Topics of extensions by the kind of change, each with its keys, or True for all keys.
        self._topics = {topic.kind: (topic, keys) for topic, keys in topics.values()}
        accepted_keys = {member: keys for member, (_, keys) in topics.items()}
        self._first = {"notifications": {**msgspec.to_builtins(agreed), **accepted_keys}, "_meta": self._meta()}

    def _meta(self) -> dict[str, Any]:
        return {SUBSCRIPTION_ID: self._ctx.request_id}

    def add(self, event: Event) -> None:
        """Add an event if the filter has it; from any thread."""
        self._changes.add(self._matching(event))

    def _matching(self, event: Event) -> list[Changed]:
        if isinstance(event, ChangesLost):
            return self._everything()
        if event.kind in self._topics:
            _, keys = self._topics[event.kind]
            return [event] if keys is True or event.uri in keys else []
        return [event] if event.kind in self._lists or _is_watched(event, self._uris) else []

    def _everything(self) -> list[Changed]:
        lists = [Changed(kind) for kind in self._lists] + [Changed("resource", uri) for uri in self._uris]
        return lists + [change for kind in self._topics for change in self._all_of(kind)]

    def _all_of(self, kind: str) -> list[Changed]:
        _, keys = self._topics[kind]
        return [Changed(kind)] if keys is True else [Changed(kind, key) for key in keys]

    def end(self) -> None:
        """Send the changes that are left, then end with the result."""
        self._ended = True
        self._loop.call_soon_threadsafe(self._wake_up)

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def run(self) -> None:
        """Send changes until the end. Changes before the acknowledgement is sent wait for it."""
        ctx = self._ctx
        await ctx.notify("notifications/subscriptions/acknowledged", self._first)
        while True:
            while (change := self._changes.take()) is not None:
                await self._send(change)
            if self._ended or ctx._call.state is not CallState.RUNNING:
                self._announce_end()
                return
            self._wake = self._loop.create_future()
            await self._wake
            self._wake = None

    def _announce_end(self) -> None:
        """On a channel that stays open, a cancellation follows the result.

        https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation
        In the other order, clients of the official SDKs would treat the cancellation as a lost subscription.
        """
        method, reason = "notifications/cancelled", "the server ended the subscription"
        params = {"requestId": self._ctx.request_id, "reason": reason, "_meta": self._meta()}
        self._ctx._call.parting = Outgoing(jsonrpc.encode_notification(method, params), None, method)

    async def _send(self, change: Changed) -> None:
        if change.kind == "resource":
            uri = change.uri or ""
            if await _may_see_change(self._offered, self._ctx, uri):
                params: Any = ResourceUpdatedParams(uri=uri, meta=self._meta())
                await self._ctx.notify("notifications/resources/updated", params)
        elif change.kind in self._topics:
            await self._send_topic(change)
        else:
            await self._ctx.notify(_LISTS[change.kind], {"_meta": self._meta()})

    async def _send_topic(self, change: Changed) -> None:
        """Send an extension's notification. If the extension fails, only this notification is lost."""
        topic, _ = self._topics[change.kind]
        try:
            params = await topic.describe(self._ctx, change.uri)
        except Exception:
            logger.exception("%s: the extension failed to describe the change", topic.method)
            return
        if params is not None:
            await self._ctx.notify(topic.method, {**params, "_meta": {**params.get("_meta", {}), **self._meta()}})
