"""Telling clients what changed: `subscriptions/listen` streams, and the unasked notifications of the handshake era.

Changes are hints, so each stream keeps one entry per thing that changed: repetition never fills a queue, and a slow
reader waits alone. Knows nothing of channels.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias
from weakref import WeakSet

import msgspec
from msgspec import Raw, Struct

from hinge import jsonrpc
from hinge.backends.base import Backend, Event
from hinge.errors import InvalidParams, Overloaded
from hinge.protocol.calls import Outgoing
from hinge.protocol.changes import Changed, ChangesLost, covers
from hinge.protocol.states import CallState
from hinge.schema.base import SUBSCRIPTION_ID, EmptyResult
from hinge.schema.resources import ResourceUpdatedParams, SubscribeParams
from hinge.schema.subscriptions import ListenParams, ListenResult, SubscriptionFilter
from hinge.server.context import Context
from hinge.server.extensions import Topic, accepted
from hinge.session import Session

logger = logging.getLogger("hinge")

#: Whether this caller may watch this resource.
Authorize: TypeAlias = Callable[[Context[Any], str], bool | Awaitable[bool]]

_LISTS = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}


class _AnyFilter(Struct):
    notifications: dict[str, Raw]


_whole_filter = msgspec.json.Decoder(_AnyFilter)


class Subscriptions:
    """Who listens to what on one server."""

    def __init__(
        self,
        backend: Backend,
        offers: Callable[[], frozenset[str]],
        *,
        streams: int,
        uris: int,
        authorize: Authorize,
        unwatched: Callable[[str], None] = lambda uri: None,
        topics: Mapping[str, tuple[str, Topic]] | None = None,
    ) -> None:
        self._backend = backend
        self._offers = offers
        self._max_streams = streams
        self._max_uris = uris
        self._authorize = authorize
        #: What extensions add to the filter, by its key.
        self._topics = topics if topics is not None else {}
        self._streams: set[_Stream] = set()
        self._watched: dict[Session, set[str]] = {}
        self._sessions: WeakSet[Session] = WeakSet()
        self._stop: Callable[[], None] | None = None
        #: How many watch each URI, or are about to; `unwatched` hears of it when the last one has gone.
        self._watchers: Counter[str] = Counter()
        self._unwatched = unwatched

    def _watch(self, uris: Iterable[str]) -> None:
        self._watchers.update(uris)

    def _unwatch(self, uris: Iterable[str]) -> None:
        for uri in uris:
            self._watchers[uri] -= 1
            if self._watchers[uri] <= 0:
                del self._watchers[uri]
                self._unwatched(uri)

    def publish(self, event: Changed) -> None:
        """Something changed: tell every process's listeners, from any thread."""
        self._listen()
        self._backend.publish(event)

    def _listen(self) -> None:
        if self._stop is None:
            self._stop = self._backend.subscribe(self._heard)

    def _heard(self, event: Event) -> None:
        for stream in list(self._streams):
            stream.offer(event)
        self._tell_sessions(event)

    # ---------------------------------------------------------------- handshake era

    def join(self, session: Session) -> None:
        """A conversation that lives longer than one request: it hears of changed lists unasked (SUB-14)."""
        self._listen()
        self._sessions.add(session)

    def _tell_sessions(self, event: Event) -> None:
        for session in list(self._sessions):
            if not session.connection.handshake.open:
                continue
            if isinstance(event, ChangesLost):
                for kind in self._offers() & _LISTS.keys():
                    session.tell(_LISTS[kind])
                for uri in self._watched.get(session, ()):
                    session.tell("notifications/resources/updated", ResourceUpdatedParams(uri=uri))
            elif event.kind in _LISTS:
                session.tell(_LISTS[event.kind])
            elif event.kind == "resource" and event.uri is not None:
                self._tell_watcher(session, event.uri)

    def _tell_watcher(self, session: Session, uri: str) -> None:
        if any(covers(watched, uri) for watched in self._watched.get(session, ())):
            session.tell("notifications/resources/updated", ResourceUpdatedParams(uri=uri))

    async def subscribe(self, ctx: Context[Any], params: SubscribeParams) -> EmptyResult:
        """`resources/subscribe` of the handshake era (SUB-15)."""
        session = ctx.session
        watched = self._watched.get(session)
        if watched is None:
            watched = self._watched[session] = set()
            session.on_close(self._forgets(session))
        if len(watched) >= self._max_uris and params.uri not in watched:
            raise Overloaded(f"Too many subscriptions: {self._max_uris} at once is the limit here")
        self._watch((params.uri,))
        try:
            if not await self._allowed(ctx, params.uri):
                raise InvalidParams("This resource can't be watched", {"uri": params.uri})
            if self._watched.get(session) is watched and params.uri not in watched:
                watched.add(params.uri)
                self._watch((params.uri,))
        finally:
            self._unwatch((params.uri,))
        return EmptyResult()

    def _forgets(self, session: Session) -> Callable[[], Awaitable[None]]:
        async def forget() -> None:
            self._unwatch(self._watched.pop(session, ()))

        return forget

    async def unsubscribe(self, ctx: Context[Any], params: SubscribeParams) -> EmptyResult:
        """`resources/unsubscribe`."""
        watched = self._watched.get(ctx.session, set())
        if params.uri in watched:
            watched.remove(params.uri)
            self._unwatch((params.uri,))
        return EmptyResult()

    # ---------------------------------------------------------------- stateless era

    async def listen(self, ctx: Context[Any], params: ListenParams) -> ListenResult:
        """`subscriptions/listen`: acknowledge, then tell until the client leaves or the server ends it (SUB-01…SUB-09)."""
        self._listen()
        if len(self._streams) >= self._max_streams:
            raise Overloaded(f"Too many subscriptions: {self._max_streams} at once is the limit here")
        wanted = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(wanted) > self._max_uris:
            raise InvalidParams(f"Too many resources in one subscription: {self._max_uris} is the limit here")
        self._watch(wanted)
        try:
            honoured = await self._honoured(ctx, params.notifications, wanted)
            refused = set(wanted).difference(honoured.resource_subscriptions or ())
            self._unwatch(refused)
            wanted = [uri for uri in wanted if uri not in refused]
            await self._run(ctx, honoured)
        finally:
            self._unwatch(wanted)
        return ListenResult(meta={SUBSCRIPTION_ID: ctx.request_id})

    async def _run(self, ctx: Context[Any], honoured: SubscriptionFilter) -> None:
        stream = _Stream(ctx, honoured, await self._honoured_topics(ctx) if self._topics else {})
        self._streams.add(stream)
        forget = ctx.session.on_ending(stream.end)
        try:
            await stream.run()
        finally:
            forget()
            self._streams.discard(stream)

    async def _honoured(self, ctx: Context[Any], wanted: SubscriptionFilter, uris: Iterable[str]) -> SubscriptionFilter:
        """What was asked for and is on offer; what may not be watched is left out (SUB-04, C-122, C-125)."""
        offers = self._offers()
        found = SubscriptionFilter(
            tools_list_changed=(wanted.tools_list_changed and "tools" in offers) or None,
            prompts_list_changed=(wanted.prompts_list_changed and "prompts" in offers) or None,
            resources_list_changed=(wanted.resources_list_changed and "resources" in offers) or None,
        )
        if wanted.resource_subscriptions is not None and "resources" in offers:
            found.resource_subscriptions = [uri for uri in uris if await self._allowed(ctx, uri)]
        return found

    async def _honoured_topics(self, ctx: Context[Any]) -> dict[str, tuple[Topic, Any]]:
        """What was asked for and belongs to extensions: keys of the filter that the core doesn't know."""
        return await accepted(ctx, _whole_filter.decode(ctx.params).notifications, self._topics)

    async def _allowed(self, ctx: Context[Any], uri: str) -> bool:
        verdict = self._authorize(ctx, uri)
        return verdict if isinstance(verdict, bool) else await verdict

    def end(self) -> None:
        """The server stops: every stream ends with its result."""
        for stream in list(self._streams):
            stream.end()
        if self._stop is not None:
            self._stop()
            self._stop = None


class _Stream:
    """One listen request: what it wants, and what changed since it was last told."""

    __slots__ = ("_changes", "_ctx", "_ended", "_first", "_loop", "_topics", "_uris", "_wake", "_wants")

    def __init__(
        self, ctx: Context[Any], honoured: SubscriptionFilter, topics: Mapping[str, tuple[Topic, Any]]
    ) -> None:
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()
        self._wants = {
            kind
            for kind, on in (
                ("tools", honoured.tools_list_changed),
                ("prompts", honoured.prompts_list_changed),
                ("resources", honoured.resources_list_changed),
            )
            if on
        }
        self._uris = honoured.resource_subscriptions or ()
        self._changes: dict[Changed, None] = {}
        self._wake: asyncio.Future[None] | None = None
        self._ended = False
        #: What extensions tell, by the kind of the change: the topic, and the keys that are wanted, or True for all.
        self._topics = {topic.kind: (topic, kept) for topic, kept in topics.values()}
        kept = {key: kept for key, (_, kept) in topics.items()}
        self._first = {"notifications": {**msgspec.to_builtins(honoured), **kept}, "_meta": self._meta()}

    def _meta(self) -> dict[str, Any]:
        return {SUBSCRIPTION_ID: self._ctx.request_id}

    def offer(self, event: Event) -> None:
        """An event, from any thread; kept if it is wanted and not known yet."""
        wanted = self._wanted(event)
        if wanted:
            self._loop.call_soon_threadsafe(self._keep, wanted)

    def _wanted(self, event: Event) -> list[Changed]:
        if isinstance(event, ChangesLost):
            known = [Changed(kind) for kind in self._wants] + [Changed("resource", uri) for uri in self._uris]
            return known + [change for kind in self._topics for change in self._all_of(kind)]
        if event.kind in self._topics:
            _, kept = self._topics[event.kind]
            return [event] if kept is True or event.uri in kept else []
        if event.kind == "resource":
            return [event] if any(covers(uri, event.uri or "") for uri in self._uris) else []
        return [event] if event.kind in self._wants else []

    def _all_of(self, kind: str) -> list[Changed]:
        _, kept = self._topics[kind]
        return [Changed(kind)] if kept is True else [Changed(kind, key) for key in kept]

    def _keep(self, changes: list[Changed]) -> None:
        for change in changes:
            self._changes[change] = None
        self._rouse()

    def end(self) -> None:
        """No more changes: say what is left, then end with the result."""
        self._ended = True
        self._loop.call_soon_threadsafe(self._rouse)

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def run(self) -> None:
        """Tell until the end. Changes that come before the acknowledgement is out wait for it (T-12)."""
        ctx = self._ctx
        await ctx.notify("notifications/subscriptions/acknowledged", self._first)
        while True:
            while self._changes:
                change = next(iter(self._changes))
                del self._changes[change]
                await self._tell(change)
            if self._ended or ctx.call.state is not CallState.RUNNING:
                self._take_leave()
                return
            self._wake = self._loop.create_future()
            await self._wake
            self._wake = None

    def _take_leave(self) -> None:
        """On a pipe, which stays open, a cancellation follows the result (CANC-05, T-11).

        Not the other way round: the official SDKs' clients take a cancellation that comes first for a loss.
        """
        method, reason = "notifications/cancelled", "the server ended the subscription"
        said = {"requestId": self._ctx.request_id, "reason": reason, "_meta": self._meta()}
        self._ctx.call.parting = Outgoing(jsonrpc.encode_notification(method, said), None, method)

    async def _tell(self, change: Changed) -> None:
        if change.kind == "resource":
            params: Any = ResourceUpdatedParams(uri=change.uri or "", meta=self._meta())
            await self._ctx.notify("notifications/resources/updated", params)
        elif change.kind in self._topics:
            await self._tell_topic(change)
        else:
            await self._ctx.notify(_LISTS[change.kind], {"_meta": self._meta()})

    async def _tell_topic(self, change: Changed) -> None:
        """What an extension says of it now; when it fails, this one hint is lost and nothing else."""
        topic, _ = self._topics[change.kind]
        try:
            said = await topic.describe(self._ctx, change.uri)
        except Exception:
            logger.exception("%s: what changed can't be told", topic.method)
            return
        if said is not None:
            await self._ctx.notify(topic.method, {**said, "_meta": {**said.get("_meta", {}), **self._meta()}})
