"""What the server sends: requests go to callbacks and extensions, notifications to whom they concern."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from hinge.client.cache import Cache
from hinge.client.callbacks import Callbacks, awaited
from hinge.client.extensions import ClientExtensions, ClientMethod, serve
from hinge.client.methods import ClientMethods
from hinge.client.middleware import CallNext, ClientContext
from hinge.client.subscriptions import OpenSubscriptions
from hinge.client.url_elicitation import FINISHED, RequiredPages
from hinge.errors import HingeError
from hinge.protocol.calls import Call
from hinge.protocol.changes import Changed, ChangesLost
from hinge.protocol.eras.base import Era
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.revisions.adapt import shape
from hinge.schema.notifications import LogParams
from hinge.session import Session

logger = logging.getLogger("hinge")


class InboundMessages:
    """Serves the requests and notifications of the server of one client."""

    def __init__(
        self,
        client: ClientMethods,
        callbacks: Callbacks,
        *,
        extensions: ClientExtensions,
        subscriptions: OpenSubscriptions,
        cache: Cache,
        pages: RequiredPages,
    ) -> None:
        self._client = client
        self.callbacks = callbacks
        self._extensions = extensions
        self._subscriptions = subscriptions
        self._cache = cache
        self._pages = pages
        #: The middleware around `dispatch`; None without any.
        self.chain: CallNext | None = None
        self._era: Era = HANDSHAKE

    async def handle(self, session: Session, call: Call) -> Any:
        """Serve one message; the result of a request, in the shape of its revision."""
        self._era = session.connection.era
        if call.id is None:
            await self._notified(call)
            return None
        return shape(await self._answer_call(call), call.revision)

    async def _answer_call(self, call: Call) -> Any:
        if self.chain is None and self._extensions.request_method(call.method, HANDSHAKE) is None:
            return {} if call.method == "ping" else await self.callbacks.answer(call.method, bytes(call.params))
        ctx = self._context(call, notification=False)
        return await self.dispatch(ctx) if self.chain is None else await self.chain(ctx)

    def _context(self, call: Call, *, notification: bool) -> ClientContext:
        params: Any = msgspec.json.decode(call.params) if bytes(call.params) else {}
        return ClientContext(
            client=self._client,
            method=call.method,
            params=params,
            inbound=True,
            notification=notification,
            request_id=call.id,
        )

    async def answer_input(self, method: str, params: bytes) -> Any:
        """Serve a request that is part of a result, in the same way as one that is a message of its own."""
        if self.chain is None:
            return await self.callbacks.answer(method, params)
        decoded = msgspec.json.decode(params)
        return await self.chain(ClientContext(client=self._client, method=method, params=decoded, inbound=True))

    async def dispatch(self, ctx: ClientContext) -> Any:
        """The inner end of the middleware."""
        if ctx.notification:
            return await self._dispatch_notification(ctx)
        method = self._extensions.request_method(ctx.method, HANDSHAKE)
        if method is not None:
            return await serve(method, ctx)
        if ctx.method == "ping":
            return {}
        return await self.callbacks.answer(ctx.method, msgspec.json.encode(ctx.params))

    async def _notified(self, call: Call) -> None:
        try:
            ctx = self._context(call, notification=True)
        except msgspec.MsgspecError as exc:
            logger.warning("%s is dropped: %s", call.method, exc)
            return
        await (self._dispatch_notification(ctx) if self.chain is None else self.chain(ctx))

    async def _dispatch_notification(self, ctx: ClientContext) -> None:
        method, params, callbacks = ctx.method, ctx.params, self.callbacks
        if method == "notifications/message" and callbacks.on_log is not None:
            try:
                log = msgspec.convert(params, LogParams)
            except msgspec.ValidationError as exc:
                logger.warning("%s is dropped: %s", method, exc)
                return
            await awaited(callbacks.on_log(log))
            return
        if method == "notifications/subscriptions/acknowledged":
            self._subscriptions.acknowledged(params)
            return
        if method == FINISHED:
            self._pages.finished(params.get("elicitationId"))
        change = self._subscriptions.notified(method, params)
        if change is not None:
            await self.changed(change)
        extension_method = self._extensions.notification_method(method, self._era)
        if extension_method is not None:
            await _serve_notification(extension_method, ctx)
        if callbacks.on_notification is not None:
            await awaited(callbacks.on_notification(method, params))

    async def changed(self, change: Changed | ChangesLost) -> None:
        """Drop outdated cache entries and call `on_change`."""
        self._cache.changed(change)
        if self.callbacks.on_change is not None:
            await awaited(self.callbacks.on_change(change))


async def _serve_notification(method: ClientMethod, ctx: ClientContext) -> None:
    try:
        await serve(method, ctx)
    except HingeError as exc:
        logger.warning("%s is dropped: %s", ctx.method, exc)
