"""Subscriptions to changes: `subscriptions/listen` in the stateless era, change notifications and `resources/subscribe` in
the handshake era. A lost subscription is opened again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import msgspec

from gemel.client.connection import ClientConnection
from gemel.errors import CallError, CallTimeout, ConnectionLost, GemelError, InvalidResponse, PeerError, SessionEnded
from gemel.loops import running_loop
from gemel.protocol.changes import Changed, ChangesLost, covers, lists_of_filter
from gemel.protocol.eras.base import Era
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.http.mirror import request_headers
from gemel.protocol.limits import Limits
from gemel.protocol.peer_log import warn_about_peer
from gemel.schema.base import SUBSCRIPTION_ID
from gemel.schema.lifecycle import ServerCapabilities
from gemel.schema.methods import LIST_CHANGED, METHODS
from gemel.schema.subscriptions import SubscriptionFilter
from gemel.session import Session
from gemel.timeouts import give_up_if_cancelled, wait_shared

if TYPE_CHECKING:
    from gemel.protocol.records import Pending

logger = logging.getLogger("gemel")

#: Seconds after which a subscription counts as stable, so that attempts are counted anew; less than proxies wait.
_LONG_LIVED = 10.0


def change_of(method: str, params: dict[str, Any]) -> Changed | None:
    """The change that a notification announces; None for any other notification."""
    row = METHODS.get(method)
    if row is not None and row.changed is not None:
        return Changed(row.changed)
    if method == "notifications/resources/updated" and isinstance(params.get("uri"), str):
        return Changed("resource", params["uri"])
    return None


class Subscription:
    """An open subscription: `async with client.listen(…) as changes: async for change in changes`.

    Changes that were not read yet are merged. When it is lost there is a ChangesLost, and another one when it is open again
    (a single one if the first was not read yet): list everything again. Made by `Client.listen`.

    Args:
        connection: The connection of the client.
        registry: The open subscriptions of the client.
        requested: What is subscribed to.
        limits: Time limits, attempts and sizes.
        topics: Keys of extensions for the filter.

    Attributes:
        honoured: What the server agreed to; in the handshake era all of what was requested.
        topics: What the server agreed to of the topics of extensions, by their keys.
        id: The id of the `subscriptions/listen` request; None while there is none.
    """

    def __init__(
        self,
        connection: ClientConnection,
        registry: OpenSubscriptions,
        requested: SubscriptionFilter,
        limits: Limits,
        topics: Mapping[str, Any] | None = None,
    ) -> None:
        self._connection = connection
        self._registry = registry
        self._filter = requested
        self._requested_topics = dict(topics or {})
        self._limits = limits
        self._changes: dict[Changed | ChangesLost, None] = {}
        self._change_bytes = 0
        self._warnings = 0
        self._reader: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = running_loop().create_future()
        self._failure: Exception | None = None
        #: When it was opened, and the limit for that.
        self._opened_at: float | None = None
        self._open_timeout: asyncio.Timeout | None = None
        self._by_era: dict[Era, Callable[[Session], Awaitable[str]]] = {
            HANDSHAKE: self._by_session,
            STATELESS: self._by_request,
        }
        #: The loss that was reported, until it is open again.
        self._reported_loss: ChangesLost | None = None
        self.honoured = SubscriptionFilter()
        self.topics: dict[str, Any] = {}
        self.id: str | int | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)
        try:
            await wait_shared(self._ready)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the subscription; the server is notified."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._registry.leave(self)
        if self._ready.done():
            self._ready.exception()  # marks it as retrieved
        self._notify_reader()

    def __aiter__(self) -> AsyncIterator[Changed | ChangesLost]:
        return self

    async def __anext__(self) -> Changed | ChangesLost:
        while not self._changes:
            if self._failure is not None:
                raise self._failure
            if self._task is None or self._task.done():
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        change = next(iter(self._changes))
        del self._changes[change]
        self._change_bytes -= _size(change)
        return change

    def offer(self, change: Changed | ChangesLost) -> None:
        """Add a change; too many unread ones become one ChangesLost.

        Args:
            change: The change.
        """
        if change in self._changes:
            return
        limits, size = self._limits, _size(change)
        if len(self._changes) >= limits.changes or self._change_bytes + size > limits.change_bytes:
            self._changes.clear()
            self._change_bytes = 0
            change = ChangesLost("too many changes were waiting to be read")
            size = _size(change)
        self._changes[change] = None
        self._change_bytes += size
        self._notify_reader()

    def wants(self, change: Changed) -> bool:
        """Tell whether a change was subscribed to, where notifications have no subscription id.

        Args:
            change: The change.

        Returns:
            Whether it belongs to this subscription.
        """
        requested = self._filter
        if change.kind == "resource":
            return any(covers(uri, change.uri or "") for uri in requested.resource_subscriptions or ())
        return change.kind in lists_of_filter(requested)

    def acknowledged(self, params: dict[str, Any]) -> None:
        """Take the server's acknowledgement.

        Args:
            params: The params of `notifications/subscriptions/acknowledged`.
        """
        honoured: Any = params.get("notifications")
        try:
            self.honoured = msgspec.convert(honoured, SubscriptionFilter)
            self.topics = {key: honoured[key] for key in self._requested_topics if key in honoured}
        except msgspec.ValidationError:
            text = "the acknowledgement of a subscription can't be read"
            self._warnings = warn_about_peer(self._warnings, text)
        self._set_ready()

    def _set_ready(self) -> None:
        self._opened_at = asyncio.get_running_loop().time()
        if self._open_timeout is not None:
            self._open_timeout.reschedule(None)
        if not self._ready.done():
            self._ready.set_result(None)
        if self._reported_loss is not None:
            # A reader that listed everything again at the loss may have missed changes since.
            self._registry.on_loss()
            if self._reported_loss not in self._changes:
                self.offer(ChangesLost(f"the subscription is open again; it had ended: {self._reported_loss.reason}"))
        self._reported_loss = None

    def _notify_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _ended(self, _: asyncio.Task[None]) -> None:
        """Wake the reader: there are no more changes."""
        if not self._ready.done():
            self._ready.set_exception(ConnectionLost("The subscription was closed before it began"))
        self._notify_reader()

    async def _run(self) -> None:
        tries, loop = 0, asyncio.get_running_loop()
        while True:
            failure: Exception | None = None
            try:
                reason = await self._open()
            except Exception as exc:
                failure, reason = exc, str(exc)
            give_up_if_cancelled()
            self._registry.on_loss()
            # A server that acknowledges and ends at once counts as a failed attempt, too.
            tries = 1 if self._opened_at is not None and loop.time() - self._opened_at >= _LONG_LIVED else tries + 1
            if not self._ready.done() and not (tries == 1 and isinstance(failure, SessionEnded)):
                self._ready.set_exception(failure or InvalidResponse(f"The subscription never began: {reason}"))
                return
            may_pass = failure is None or (
                isinstance(failure, CallError) and not isinstance(failure, PeerError | InvalidResponse)
            )
            if not may_pass or tries > self._limits.reconnects or not self._connection.keep_open:
                self._failure = ConnectionLost(f"The subscription ended: {reason}")
                self._failure.__cause__ = failure
                return
            if self._reported_loss is None and self._ready.done():
                self._reported_loss = ChangesLost(reason)
                self.offer(self._reported_loss)
            await asyncio.sleep(min(0.2 * 2 ** (tries - 1), 30.0) * random.uniform(0.5, 1.5))

    async def _open(self) -> str:
        """Open it, wait until it ends, and return why."""
        self._opened_at = None
        session = await self._connection.ready_session()
        self._registry.join(self)
        return await self._by_era[session.connection.era](session)

    async def _by_request(self, session: Session) -> str:
        assert self._connection.discovery is not None
        revision = self._connection.discovery.revision
        pending: Pending = session.register_request("subscriptions/listen")
        self.id = pending.id
        headers = request_headers("subscriptions/listen", None, revision) if session.channel.kind == "post" else ()
        try:
            with self._connection.observe("subscriptions/listen", {}, pending.id) as (_, trace):
                meta = {"progressToken": pending.id, **msgspec.json.decode(self._connection.meta), **trace}
                requested = {**msgspec.to_builtins(self._filter), **self._requested_topics}
                params = {"notifications": requested, "_meta": meta}
                async with asyncio.timeout(self._limits.call_idle) as self._open_timeout:
                    await session.send_request(pending, params, headers=headers)
        except TimeoutError as exc:
            raise CallTimeout(
                f"The subscription was not acknowledged within {self._limits.call_idle:g} seconds"
            ) from exc
        finally:
            self.id = self._open_timeout = None
        return "the server ended the subscription"

    async def _by_session(self, session: Session) -> str:
        """A handshake server announces changes of lists without a request; single resources are subscribed to."""
        try:
            for uri in self._filter.resource_subscriptions or ():
                await self._connection.request(
                    session, "resources/subscribe", {"uri": uri}, total=self._limits.call_idle
                )
        except SessionEnded as exc:
            self._connection.retire(session, f"the server ended the session: {exc}")
            raise
        self.honoured = self._filter
        self._set_ready()
        try:
            return await session.ended()
        except asyncio.CancelledError:
            await self._unsubscribe(session)
            raise

    async def _unsubscribe(self, session: Session) -> None:
        """Unsubscribe resources, within a limit; failures are only logged."""
        try:
            async with asyncio.timeout(self._limits.teardown):
                for uri in self._filter.resource_subscriptions or ():
                    if session.connection.closed is None and not self._registry.watched(uri, but=self):
                        await self._connection.request(session, "resources/unsubscribe", {"uri": uri}, total=None)
        except (GemelError, TimeoutError) as exc:
            logger.debug("resources could not be unsubscribed: %s", exc)


class OpenSubscriptions:
    """The open subscriptions of one client: which notification belongs to which of them.

    Args:
        on_loss: Called when changes may have been missed: a subscription was lost, or is open again.
    """

    def __init__(self, on_loss: Callable[[], None]) -> None:
        self.on_loss = on_loss
        self._all: dict[Subscription, None] = {}

    def join(self, subscription: Subscription) -> None:
        """Add one."""
        self._all[subscription] = None

    def leave(self, subscription: Subscription) -> None:
        """Remove one."""
        self._all.pop(subscription, None)

    def watched(self, uri: str, *, but: Subscription) -> bool:
        """Whether another subscription still watches this resource."""
        change = Changed("resource", uri)
        return any(other is not but and other.wants(change) for other in self._all)

    def acknowledged(self, params: dict[str, Any]) -> None:
        """Pass on an acknowledgement, by the id of the subscription."""
        for subscription in self._tagged(_tag(params)):
            subscription.acknowledged(params)

    def notified(self, method: str, params: dict[str, Any]) -> Changed | None:
        """Pass on the change that a notification announces, by the id of the subscription if there is one; returns it."""
        tag = _tag(params)
        change = change_of(method, params)
        if change is None:
            return None
        for subscription in self._tagged(tag) if tag is not None else list(self._all):
            if tag is not None or subscription.wants(change):
                subscription.offer(change)
        return change

    def _tagged(self, tag: object) -> list[Subscription]:
        return [one for one in self._all if one.id is not None and one.id == tag and type(one.id) is type(tag)]


def _size(change: Changed | ChangesLost) -> int:
    """The bytes that count for an unread change."""
    return len((change.uri or "") if isinstance(change, Changed) else change.reason)


def _tag(params: dict[str, Any]) -> Any:
    """The id of the subscription that a notification belongs to."""
    meta = params.get("_meta")
    return meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None


def announced_lists(capabilities: ServerCapabilities) -> list[str]:
    """The features for whose lists a server declares that it announces changes."""
    declared = {feature: getattr(capabilities, feature) for feature in LIST_CHANGED}
    return [feature for feature, offer in declared.items() if offer is not None and offer.list_changed]


def listen_to(features: Iterable[str]) -> dict[str, Any]:
    """The arguments of `Client.listen` for the lists of these features."""
    return {"resource_list" if feature == "resources" else feature: True for feature in features}
