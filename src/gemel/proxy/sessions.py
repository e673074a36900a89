"""The sessions of a proxy with the upstream server: who has which, how many there may be, and when they end.

Each caller that has a session has one upstream, which ends with it. Callers without are told apart by their principal; a
request of nobody who is known has an upstream session of its own. One session serves all callers if the proxy is told so, and
if the upstream server has no sessions: a stateless one over HTTP.

The first session is opened before there is a caller, because it tells what the server offers; the first caller gets it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from typing import Any
from weakref import ReferenceType, WeakSet

from gemel.client.client import Client
from gemel.client.group.member import FIRST_WAIT, LONGEST_WAIT
from gemel.client.negotiation import Discovery
from gemel.errors import AuthorizationFailed, CallError, GemelError, InternalError, Overloaded, ProtocolError, shorten
from gemel.protocol.changes import Changed
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.limits import Limits
from gemel.proxy.upstream import Upstream
from gemel.schema.lifecycle import ServerCapabilities
from gemel.schema.methods import LIST_CHANGED
from gemel.server.context import Context, caller_key, served_call
from gemel.server.features.subscriptions import LISTS_URI
from gemel.server.middleware.rate_limit import caller_of
from gemel.session import Session
from gemel.timeouts import give_up_if_cancelled, wait_shared

logger = logging.getLogger("gemel")

#: Seconds that a request waits for a server that could not be reached before.
RETRY_PATIENCE = 2.0
#: Seconds that the start of a proxy waits for its server, unless it is strict.
START_PATIENCE = 5.0


class UpstreamSessions:
    """The sessions with the upstream server in one event loop.

    Args:
        make: Makes one that is not connected yet, with what is known about the server.
        limits: How many there may be, and for how long.
        shared: Whether all callers share one.
        single_user: Whether callers without a session share one.
        on_connected: Called with the client when the server has been reached for the first time, and whether the proxy has
            started without it.
        on_change: Called with each change that the server reports, and the session.
        on_end: Called with each session that ends.

    Attributes:
        capabilities: What the server offers, by the latest session; None as long as it was not reached.
    """

    def __init__(
        self,
        make: Callable[[Discovery | None], Upstream],
        limits: Limits,
        *,
        shared: bool,
        single_user: bool,
        on_connected: Callable[[Client, bool], None],
        on_change: Callable[[Upstream, Changed], None],
        on_end: Callable[[Upstream], None],
    ) -> None:
        self._make = make
        self._limits = limits
        self._shared = shared
        self._single_user = single_user
        self._on_connected = on_connected
        self._on_change = on_change
        self._on_end = on_end
        self.capabilities: ServerCapabilities | None = None
        self._discovery: Discovery | None = None
        #: Why the server can't be reached, as long as it was not.
        self._failure: Exception | None = None
        self._is_running = False
        #: Whether the proxy has started without it.
        self._is_late = False
        #: The first session while it is connected, and then until a caller gets it.
        self._first: Upstream | None = None
        self._unused: Upstream | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._retrying: asyncio.Task[None] | None = None
        #: By `caller_key`; None for the one that callers share.
        self._of: dict[Hashable, Upstream] = {}
        self._ending: set[asyncio.Task[None]] = set()
        #: How many sessions a caller has, even while they are being ended.
        self._counts: Counter[Hashable] = Counter()
        #: The kind of channel that a session has.
        self._channel_kind = ""
        #: The sessions of callers that had one before.
        self._known: WeakSet[Session] = WeakSet()
        #: Where a caller watches a resource or the lists.
        self._watched: dict[tuple[Hashable, str], Upstream] = {}
        #: The callers that follow the lists by a stream, and could not get a session for it.
        self._waiting: dict[Hashable, Context[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # ---------------------------------------------------------------- begin and end

    async def start(self, name: str, *, strict: bool) -> None:
        """Connect. Raises GemelError with `strict`; otherwise the proxy starts without a server that is down or slow."""
        self._is_running = True
        await asyncio.wait([self._connecting()], timeout=None if strict else START_PATIENCE)
        if self._discovery is not None:
            return
        self._is_late = True
        if self._failure is None:
            logger.warning("The server behind the proxy %r is slow: the proxy starts without it", name)
        elif strict or not isinstance(self._failure, GemelError):
            raise self._failure
        else:
            text = shorten(str(self._failure))
            logger.warning("The server behind the proxy %r can't be reached, and is tried again: %s", name, text)
        self._retrying = asyncio.get_running_loop().create_task(self._retry())

    async def stop(self) -> None:
        """End all sessions."""
        self._is_running = False
        tasks = [*self._tasks, *(task for task in (self._retrying, self._attempt) if task is not None)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for upstream in [*self._of.values(), *filter(None, (self._unused,))]:
            self._end(upstream)
        if self._ending:
            await asyncio.wait(self._ending)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _connecting(self) -> asyncio.Task[None]:
        """The attempt to reach the server for the first time, which all who need it wait for."""
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_task(self._connect_first())
        return self._attempt

    async def _connect_first(self) -> None:
        upstream = self._first = self._first or self._make(None)
        client = upstream.client
        try:
            await client.connect()
        except Exception as exc:
            give_up_if_cancelled()
            self._failure = exc
            return
        self._failure = self._first = None
        self._learn(client)
        self._channel_kind = "" if client.session is None else client.session.channel.kind
        if self._is_common(upstream):
            self._of[None] = upstream
        else:
            self._unused = upstream
            self._begin_to_idle(upstream)
        upstream.subscriptions.start()
        self._on_connected(client, self._is_late)
        for caller in self._waiting:
            self._start_task(self._watch_lists_now(caller))

    async def _retry(self) -> None:
        """Connect with growing pauses until it succeeds. Who refused a login is not asked again before the next use."""
        wait = FIRST_WAIT
        while self._discovery is None:
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(wait * 2, LONGEST_WAIT)
            if not isinstance(self._failure, AuthorizationFailed):
                await asyncio.wait([self._connecting()])

    def _learn(self, client: Client) -> None:
        self._discovery, self.capabilities = client.discovery, client.server_capabilities

    async def reach(self) -> None:
        """Try to reach a server that was not reached yet. Raises InternalError with the reason."""
        if self._discovery is not None:
            return
        if self._is_running:
            await asyncio.wait([self._connecting()], timeout=RETRY_PATIENCE)
        if self._discovery is None:
            reason = f": {self._failure}" if self._failure is not None else " yet"
            raise InternalError(f"The upstream server is not connected{reason}", {"outcome": "not sent"})

    # ---------------------------------------------------------------- use

    @asynccontextmanager
    async def used_by(self, ctx: Context[Any]) -> AsyncIterator[Upstream]:
        """The session for a call, opened if need be.

        Raises:
            InternalError: The server was not reached yet.
            Overloaded: There are too many sessions.
            CallError: The session can't be opened.
        """
        await self.reach()
        await self._check_unused()
        key = self._key(ctx)
        upstream = self._of.get(key) or self._begin(ctx, key)
        self.hold(upstream)
        try:
            if upstream.opening is not None:
                await self._opened(upstream.opening)
            yield upstream
        finally:
            self.release(upstream)

    async def _check_unused(self) -> None:
        """End the first session if this caller has other credentials than it was opened with. Raises NotSent."""
        unused = self._unused
        if unused is not None and not await unused.client.same_credentials() and self._unused is unused:
            self._end(unused)

    def is_for_one_request(self, ctx: Context[Any]) -> bool:
        """Whether a call has a session of its own, which ends with it."""
        return _is_one_request(self._key(ctx))

    def find(self, ctx: Context[Any]) -> Upstream | None:
        """The session that a caller has."""
        return self._of.get(self._key(ctx))

    def hold(self, upstream: Upstream) -> None:
        """Use a session once more, until `release`."""
        upstream.uses += 1
        if upstream.idle is not None:
            upstream.idle.cancel()
            upstream.idle = None

    def release(self, upstream: Upstream) -> None:
        """Use a session no more. It ends if its caller has left, else when it was not used for long.

        Who is connected otherwise than by HTTP is there, and keeps it.
        """
        upstream.uses -= 1
        if upstream.uses or self._of.get(upstream.caller) is not upstream:
            return
        if _has_left(upstream.caller):
            self._end(upstream)
        elif not self._is_common(upstream) and not _is_connection(upstream.caller):
            self._begin_to_idle(upstream)

    def _key(self, ctx: Context[Any]) -> Hashable:
        common = self._of.get(None)
        if common is not None and self._is_common(common):
            return None
        if self._single_user and served_call(ctx).session.channel.kind == "post":
            return None
        return caller_key(ctx)

    def _is_common(self, upstream: Upstream) -> bool:
        """Whether a session may be that of all callers.

        A stateless server can't tell them apart over HTTP, where each request stands alone.
        """
        is_sessionless = self._channel_kind == "post" and not ERAS[upstream.client.era].negotiation_method
        return upstream.caller is None and (self._shared or is_sessionless)

    def _begin(self, ctx: Context[Any], key: Hashable) -> Upstream:
        if not self._is_running:
            raise InternalError("The proxy is stopping", {"outcome": "not sent"})
        session, counted_for = served_call(ctx).session, caller_of(ctx)
        self._check_room(counted_for)
        upstream, self._unused = self._unused, None
        if upstream is None:
            upstream = self._make(self._discovery)
            upstream.opening = asyncio.get_running_loop().create_task(self._open(upstream), context=upstream.context)
        upstream.caller, upstream.counted_for = key, counted_for
        self._counts[counted_for] += 1
        self._of[key] = upstream
        if isinstance(key, ReferenceType):
            self._end_with(session, upstream)
        return upstream

    def _check_room(self, counted_for: Hashable) -> None:
        limits = self._limits
        most, name = limits.upstream_sessions, "upstream_sessions"
        if self._channel_kind == "stdio" and limits.upstream_processes < most:
            most, name = limits.upstream_processes, "upstream_processes"
        if len(self._of) + len(self._ending) >= most:
            raise Overloaded(f"Too many sessions with the upstream server: the limit is {most} ({name})")
        most = limits.upstream_sessions_per_caller
        if self._counts[counted_for] >= most:
            raise Overloaded(
                f"Too many sessions of one caller with the upstream server: the limit is {most} "
                "(upstream_sessions_per_caller)"
            )

    def _end_with(self, session: Session, upstream: Upstream) -> None:
        """End the upstream session with that of its caller, who is told if it is not the first one."""
        lasts = session.channel.kind != "post"
        if session in self._known:
            for kind in LIST_CHANGED:
                self._on_change(upstream, Changed(kind))
            return
        self._known.add(session)
        key = upstream.caller

        async def leave() -> None:
            left = self._of.get(key)
            if left is not None and (lasts or not left.uses):  # a call that is parked outlives its POST
                self._end(left)

        session.on_close(leave)

    async def _open(self, upstream: Upstream) -> None:
        try:
            await upstream.client.connect()
        except BaseException:
            if self._of.get(upstream.caller) is upstream:
                del self._of[upstream.caller]
                self._uncount(upstream)
            raise
        upstream.opening = None
        self._learn(upstream.client)
        if not _is_one_request(upstream.caller):
            upstream.subscriptions.start()

    @staticmethod
    async def _opened(opening: asyncio.Task[None]) -> None:
        try:
            await wait_shared(opening)
        except asyncio.CancelledError:
            give_up_if_cancelled()
            raise InternalError("The session with the upstream server was ended") from None

    # ---------------------------------------------------------------- end

    def _begin_to_idle(self, upstream: Upstream) -> None:
        loop = asyncio.get_running_loop()
        upstream.idle = loop.call_later(self._limits.upstream_idle, self._end, upstream)

    def _end(self, upstream: Upstream) -> None:
        """End a session: no caller gets it any more."""
        if self._unused is upstream:
            self._unused = None
        elif self._of.get(upstream.caller) is upstream:
            del self._of[upstream.caller]
        else:
            return
        if upstream.idle is not None:
            upstream.idle.cancel()
        self._on_end(upstream)
        task = asyncio.get_running_loop().create_task(self._close(upstream), context=upstream.context)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _close(self, upstream: Upstream) -> None:
        try:
            if upstream.opening is not None:
                upstream.opening.cancel()
                await asyncio.wait([upstream.opening])
            await upstream.close()
        except GemelError as exc:
            logger.debug("A session with the upstream server could not be closed properly: %s", exc)
        finally:
            self._uncount(upstream)

    def _uncount(self, upstream: Upstream) -> None:
        self._counts[upstream.counted_for] -= 1
        if self._counts[upstream.counted_for] <= 0:
            del self._counts[upstream.counted_for]

    # ---------------------------------------------------------------- subscriptions

    async def watch(self, ctx: Context[Any], uri: str) -> bool:
        """Subscribe to a resource for a caller, until `unwatch`; False if the server does not allow it. Raises as `used_by`."""
        async with self.used_by(ctx) as upstream:
            resources = upstream.client.server_capabilities.resources
            if resources is None or not resources.subscribe or not await upstream.subscriptions.subscribe(uri):
                return False
            if self._keep(caller_key(ctx), uri, upstream):
                upstream.watching[uri] += 1
        return True

    async def watch_lists(self, ctx: Context[Any]) -> None:
        """Keep a session as long as a caller follows the lists by a stream, until `unwatch`."""
        try:
            async with self.used_by(ctx) as upstream:
                upstream.subscriptions.start()
                self._keep(caller_key(ctx), LISTS_URI, upstream)
        except (CallError, InternalError) as exc:
            logger.info("Changes of the lists are not reported before the server is reached: %s", exc)
            self._waiting[caller_key(ctx)] = ctx

    async def _watch_lists_now(self, caller: Hashable) -> None:
        """Do what `watch_lists` could not, unless the stream has ended."""
        try:
            async with self.used_by(self._waiting[caller]) as upstream:
                if self._waiting.pop(caller, None) is not None:
                    upstream.subscriptions.start()
                    self._keep(caller, LISTS_URI, upstream)
        except (CallError, ProtocolError) as exc:
            logger.info("Changes of the lists are not reported to a subscriber: %s", exc)

    def _keep(self, caller: Hashable, uri: str, upstream: Upstream) -> bool:
        if (caller, uri) in self._watched:
            return False
        self._watched[caller, uri] = upstream
        self.hold(upstream)
        return True

    def unwatch(self, caller: Hashable, uri: str) -> None:
        """End the subscription of a caller to a resource, or to the lists."""
        if uri == LISTS_URI:
            self._waiting.pop(caller, None)
        upstream = self._watched.pop((caller, uri), None)
        if upstream is None:
            return
        if uri != LISTS_URI:
            upstream.watching[uri] -= 1
            if not upstream.watching[uri]:
                del upstream.watching[uri]
                upstream.subscriptions.unsubscribe(uri)
        self.release(upstream)

    # ---------------------------------------------------------------- names

    def forget_names(self) -> None:
        """Forget the names of what the server offers."""
        for upstream in self._of.values():
            upstream.names.clear()


def _session_of(key: Hashable) -> Session | None:
    session = key() if isinstance(key, ReferenceType) else None
    return session if isinstance(session, Session) else None


def _is_one_request(key: Hashable) -> bool:
    session = _session_of(key)
    return session is not None and session.channel.kind == "post"


def _is_connection(key: Hashable) -> bool:
    """Whether a caller is known to be there as long as its session is open: over HTTP a client may leave unnoticed."""
    session = _session_of(key)
    return session is not None and session.channel.kind not in ("session", "post")


def _has_left(key: Hashable) -> bool:
    """Whether the session of a caller has ended."""
    if not isinstance(key, ReferenceType):
        return False
    session = _session_of(key)
    return session is None or session.connection.closed is not None
