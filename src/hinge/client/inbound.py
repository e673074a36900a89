"""What a client is asked and told: questions to its answers and extensions, notifications to whom they concern.

Must not know how a client asks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from hinge.client.cache import Cache
from hinge.client.callbacks import Answers
from hinge.client.connection import Link
from hinge.client.extensions import ClientExtensions, serve
from hinge.client.middleware import CallNext, ClientContext
from hinge.client.subscriptions import Listeners
from hinge.client.url_elicitation import FINISHED, RequiredPages
from hinge.errors import HingeError
from hinge.protocol.calls import Call
from hinge.protocol.changes import Changed, ChangesLost
from hinge.protocol.revisions.adapt import shape
from hinge.schema.notifications import LogParams
from hinge.session import Session

if TYPE_CHECKING:
    from hinge.client.client import Client

logger = logging.getLogger("hinge")

OnLog = Callable[[LogParams], Any]
OnChange = Callable[[Changed | ChangesLost], Any]
OnNotification = Callable[[str, dict[str, Any]], Any]


class Hearing:
    """The listening half of a client."""

    _link: Link
    _answers: Answers
    _cache: Cache
    _extensions: ClientExtensions
    _listeners: Listeners
    _required_pages: RequiredPages
    _on_log: OnLog | None
    _on_change: OnChange | None
    _on_notification: OnNotification | None
    #: The middleware around all that is heard and asked; None without any.
    _heard_chain: CallNext | None

    async def _handle(self, session: Session, call: Call) -> Any:
        if call.id is None:
            await self._hear(call)
            return None
        if call.method == "ping" and self._heard_chain is None:
            return {}
        return shape(await self._asked(call), call.revision)

    async def _asked(self, call: Call) -> Any:
        method = self._extensions.answering(call.method, "2025")
        if method is None and self._heard_chain is None:
            return await self._answers.answer(call.method, bytes(call.params))
        ctx = self._inbound(call, notification=False)
        return await self._answer(ctx) if self._heard_chain is None else await self._heard_chain(ctx)

    def _inbound(self, call: Call, *, notification: bool) -> ClientContext:
        params: Any = msgspec.json.decode(call.params) if bytes(call.params) else {}
        return ClientContext(
            client=cast("Client", self),
            method=call.method,
            params=params,
            inbound=True,
            notification=notification,
            request_id=call.id,
        )

    async def _question(self, method: str, params: bytes) -> Any:
        """A question within a result: the same way as one that is a request of its own (C-085)."""
        if self._heard_chain is None:
            return await self._answers.answer(method, params)
        ctx = ClientContext(
            client=cast("Client", self), method=method, params=msgspec.json.decode(params), inbound=True
        )
        return await self._heard_chain(ctx)

    async def _served(self, ctx: ClientContext) -> Any:
        """The inner end of the chain."""
        return await (self._tell(ctx) if ctx.notification else self._answer(ctx))

    async def _answer(self, ctx: ClientContext) -> Any:
        method = self._extensions.answering(ctx.method, "2025")
        if method is not None:
            return await serve(method, ctx)
        if ctx.method == "ping":
            return {}
        return await self._answers.answer(ctx.method, msgspec.json.encode(ctx.params))

    async def _hear(self, call: Call) -> None:
        try:
            ctx = self._inbound(call, notification=True)
        except msgspec.MsgspecError as exc:
            logger.warning("%s is dropped: %s", call.method, exc)
            return
        await (self._tell(ctx) if self._heard_chain is None else self._heard_chain(ctx))

    async def _tell(self, ctx: ClientContext) -> None:
        method, params = ctx.method, ctx.params
        if method == "notifications/message" and self._on_log is not None:
            try:
                said = msgspec.convert(params, LogParams)
            except msgspec.ValidationError as exc:
                logger.warning("%s is dropped: %s", method, exc)
                return
            await _maybe(self._on_log(said))
            return
        if method == "notifications/subscriptions/acknowledged":
            self._listeners.acknowledged(params)
            return
        if method == FINISHED:
            self._required_pages.finished(params.get("elicitationId"))
        change = self._listeners.heard(method, params)
        if change is not None:
            self._heard(change)
        found = self._link.found
        known = self._extensions.hearing(method, "2025" if found is None else found.era)
        if known is not None:
            await self._hear_extension(known, ctx)
        if self._on_notification is not None:
            await _maybe(self._on_notification(method, params))

    async def _hear_extension(self, method: Any, ctx: ClientContext) -> None:
        try:
            await serve(method, ctx)
        except HingeError as exc:
            logger.warning("%s is dropped: %s", ctx.method, exc)

    def _heard(self, change: Changed | ChangesLost) -> None:
        self._cache.heard(change)
        if self._on_change is not None:
            self._on_change(change)


async def _maybe(value: Any) -> None:
    if isinstance(value, Awaitable):
        await value
