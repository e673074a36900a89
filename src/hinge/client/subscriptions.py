"""Hearing of changes: one face for `subscriptions/listen` and for what handshake servers say unasked, kept up by itself."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from hinge.client.connection import Link
from hinge.client.requests import stateless_meta
from hinge.errors import CallError, CallTimeout, ConnectionLost, HingeError, InvalidResponse, PeerError, SessionEnded
from hinge.protocol.changes import Changed, ChangesLost, covers
from hinge.protocol.http import headers as http
from hinge.protocol.limits import Limits
from hinge.schema.base import SUBSCRIPTION_ID
from hinge.schema.subscriptions import SubscriptionFilter
from hinge.session import Session
from hinge.timeouts import give_up_if_cancelled

if TYPE_CHECKING:
    from hinge.protocol.calls import Pending

logger = logging.getLogger("hinge")

#: Seconds of listening after which attempts to listen again are counted anew: less than any proxy's patience.
_LONG_LIVED = 10.0

_KINDS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


def change_of(method: str, params: dict[str, Any]) -> Changed | None:
    """The change that a notification tells of; None for any other notification."""
    if method in _KINDS:
        return Changed(_KINDS[method])
    if method == "notifications/resources/updated" and isinstance(params.get("uri"), str):
        return Changed("resource", params["uri"])
    return None


class Subscription:
    """Changes as they come: `async with client.listen(…) as changes: async for change in changes`.

    Repeats that nobody read yet are merged. At a loss there is a ChangesLost, and another one as soon as there is listening again
    (one for both, if nobody read the first meanwhile): look at everything again. `honoured`
    is the part of what was asked that the server agreed to; a handshake server is taken at its capabilities.
    """

    def __init__(
        self,
        link: Link,
        listeners: Listeners,
        wanted: SubscriptionFilter,
        limits: Limits,
        topics: Mapping[str, Any] | None = None,
    ) -> None:
        self._link = link
        self._listeners = listeners
        self._wanted = wanted
        self._wanted_topics = dict(topics or {})
        self._limits = limits
        self._changes: dict[Changed | ChangesLost, None] = {}
        self._wake: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure: Exception | None = None
        #: Since when there is listening, and the limit until then.
        self._since: float | None = None
        self._limit: asyncio.Timeout | None = None
        #: The loss that was told, until there is listening again.
        self._lost: ChangesLost | None = None
        self.honoured = SubscriptionFilter()
        #: What the server agreed to of extensions' topics, by key.
        self.topics: dict[str, Any] = {}
        #: The id of the listen request, while there is one: it tags what belongs to it.
        self.id: str | int | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop listening; the server is told by the channel's own way (SUB-08)."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._listeners.leave(self)
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()
        self._rouse()

    def __aiter__(self) -> AsyncIterator[Changed | ChangesLost]:
        return self

    async def __anext__(self) -> Changed | ChangesLost:
        while not self._changes:
            if self._failure is not None:
                raise self._failure
            if self._task is None or self._task.done():
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        change = next(iter(self._changes))
        del self._changes[change]
        return change

    def offer(self, change: Changed | ChangesLost) -> None:
        """A change for this listener; too many unread ones become one ChangesLost."""
        if len(self._changes) >= self._limits.changes and change not in self._changes:
            self._changes.clear()
            change = ChangesLost("too many changes were waiting to be read")
        self._changes[change] = None
        self._rouse()

    def wants(self, change: Changed) -> bool:
        """Whether this was asked for; only needed where the server can't tell listeners apart."""
        wanted = self._wanted
        if change.kind == "resource":
            return any(covers(uri, change.uri or "") for uri in wanted.resource_subscriptions or ())
        return bool(getattr(wanted, f"{change.kind}_list_changed", False))

    def acknowledged(self, params: dict[str, Any]) -> None:
        """The server says what it honours; from now on changes come."""
        honoured: Any = params.get("notifications")
        try:
            self.honoured = msgspec.convert(honoured, SubscriptionFilter)
            self.topics = {key: honoured[key] for key in self._wanted_topics if key in honoured}
        except msgspec.ValidationError:
            logger.warning("the acknowledgement of a subscription can't be read")
        self._set_ready()

    def _set_ready(self) -> None:
        self._since = asyncio.get_running_loop().time()
        if self._limit is not None:
            self._limit.reschedule(None)
        if not self._ready.done():
            self._ready.set_result(None)
        if self._lost is not None:
            # Whoever looked again at once may have missed what changed until now.
            self.offer(self._lost)
            self._lost = None

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _ended(self, _: asyncio.Task[None]) -> None:
        """Whoever waits for something learns that nothing more will come, however it came to that."""
        if not self._ready.done():
            self._ready.set_exception(ConnectionLost("The subscription was closed before it began"))
        self._rouse()

    async def _run(self) -> None:
        tries, loop = 0, asyncio.get_running_loop()
        while True:
            failure: Exception | None = None
            try:
                reason = await self._listen()
            except Exception as exc:
                failure, reason = exc, str(exc)
            give_up_if_cancelled()
            # Whoever agrees and ends at once is asked less and less often, too, and not for ever.
            tries = 1 if self._since is not None and loop.time() - self._since >= _LONG_LIVED else tries + 1
            if not self._ready.done() and not (tries == 1 and isinstance(failure, SessionEnded)):  # LHTTP-25
                self._ready.set_exception(failure or InvalidResponse(f"The subscription never began: {reason}"))
                return
            may_pass = failure is None or (
                isinstance(failure, CallError) and not isinstance(failure, PeerError | InvalidResponse)
            )
            if not may_pass or tries > self._limits.reconnects or not self._link.wanted:
                self._failure = ConnectionLost(f"The subscription ended: {reason}")
                self._failure.__cause__ = failure
                return
            if self._lost is None and self._ready.done():
                self._lost = ChangesLost(reason)
                self.offer(self._lost)
            await asyncio.sleep(min(0.2 * 2 ** (tries - 1), 30.0) * random.uniform(0.5, 1.5))

    async def _listen(self) -> str:
        """Listen until it ends, and say why it ended."""
        self._since = None
        session = await self._link.session()
        found = self._link.found
        self._listeners.join(self)
        if found is not None and found.era == "2026":
            return await self._by_request(session, found.revision)
        return await self._by_session(session)

    async def _by_request(self, session: Session, revision: str) -> str:
        pending: Pending = session.ask("subscriptions/listen")
        self.id = pending.id
        headers = None
        if session.channel.kind == "post":
            headers = http.request_headers("subscriptions/listen", None, revision)
        try:
            with self._link.span("subscriptions/listen", {}, pending.id) as trace:
                meta = stateless_meta(self._link.meta, None, pending, trace)
                wanted = {**msgspec.to_builtins(self._wanted), **self._wanted_topics}
                params = {"notifications": wanted, "_meta": meta}
                async with asyncio.timeout(self._limits.call_idle) as self._limit:
                    await session.exchange(pending, params, headers=headers)
        except TimeoutError as exc:
            if isinstance(exc, CallError):
                raise
            raise CallTimeout(
                f"The subscription was not acknowledged within {self._limits.call_idle:g} seconds"
            ) from exc
        finally:
            self.id = self._limit = None
        return "the server ended the subscription"

    async def _by_session(self, session: Session) -> str:
        """A handshake server says changes of lists unasked; single resources are subscribed to (SUB-14, SUB-15)."""
        try:
            for uri in self._wanted.resource_subscriptions or ():
                await self._link.request(session, "resources/subscribe", {"uri": uri}, total=self._limits.call_idle)
        except SessionEnded as exc:
            self._link.retire(session, f"the server ended the session: {exc}")
            raise
        self.honoured = self._wanted
        self._set_ready()
        try:
            return await session.ended()
        except asyncio.CancelledError:
            await self._unsubscribe(session)
            raise

    async def _unsubscribe(self, session: Session) -> None:
        """Nobody listens any more. Whatever the server makes of that, and however slow it is, holds nobody up."""
        try:
            async with asyncio.timeout(self._limits.teardown):
                for uri in self._wanted.resource_subscriptions or ():
                    if session.connection.closed is None and not self._listeners.watched(uri, but=self):
                        total = self._limits.teardown
                        await self._link.request(session, "resources/unsubscribe", {"uri": uri}, total=total)
        except (HingeError, TimeoutError) as exc:
            logger.debug("the server was not told that its resources are watched no more: %s", exc)


class Listeners:
    """All that listen on one client: who gets which notification."""

    def __init__(self) -> None:
        self._all: dict[Subscription, None] = {}

    def join(self, listening: Subscription) -> None:
        """Begin to be told."""
        self._all[listening] = None

    def leave(self, listening: Subscription) -> None:
        """Be told no more."""
        self._all.pop(listening, None)

    def watched(self, uri: str, *, but: Subscription) -> bool:
        """Whether somebody else still watches this resource."""
        change = Changed("resource", uri)
        return any(other is not but and other.wants(change) for other in self._all)

    def acknowledged(self, params: dict[str, Any]) -> None:
        """A subscription has begun: by its id in its JSON type (D-001)."""
        for listening in self._tagged(_tag(params)):
            listening.acknowledged(params)

    def heard(self, method: str, params: dict[str, Any]) -> Changed | None:
        """A notification: give it to whom it belongs, by id where it has one (STDIO-05, D-001)."""
        tag = _tag(params)
        change = change_of(method, params)
        if change is None:
            return None
        for listening in self._tagged(tag) if tag is not None else list(self._all):
            if tag is not None or listening.wants(change):
                listening.offer(change)
        return change

    def _tagged(self, tag: Any) -> list[Subscription]:
        return [one for one in self._all if one.id is not None and one.id == tag and type(one.id) is type(tag)]


def _tag(params: dict[str, Any]) -> Any:
    """The id of the subscription that a notification belongs to."""
    meta = params.get("_meta")
    return meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None


def filter_of(
    *, tools: bool, prompts: bool, resource_list: bool, resources: bool | Sequence[str]
) -> SubscriptionFilter:
    """What `listen` was asked for, as the protocol writes it."""
    uris = list(resources) if not isinstance(resources, bool) else None
    return SubscriptionFilter(
        tools_list_changed=tools or None,
        prompts_list_changed=prompts or None,
        resources_list_changed=resource_list or resources is True or None,
        resource_subscriptions=uris or None,
    )
