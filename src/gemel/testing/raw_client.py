"""A client without negotiation, retries or callbacks, and the live server behind a recording that uses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Raw

from gemel.channel import Channel, Transport
from gemel.errors import CallError, GemelError, InternalError, PeerError, ProtocolError
from gemel.jsonrpc import RequestId
from gemel.protocol.connection import Connection
from gemel.protocol.http.mirror import HeaderTexts, ParamHeader, collect_param_headers, param_headers, request_headers
from gemel.protocol.limits import Limits
from gemel.protocol.records import Call
from gemel.schema.base import PROTOCOL_VERSION, SUBSCRIPTION_ID
from gemel.schema.methods import METHODS
from gemel.session import Handle, Session
from gemel.timeouts import wait_shared


class RawClient:
    """One session with a server, over any transport. `handle` serves requests and notifications of the server."""

    def __init__(self, transport: Transport, handle: Handle, limits: Limits) -> None:
        self._transport = transport
        self._handle = handle
        self._limits = limits
        self._resources = AsyncExitStack()
        self._tools: dict[str, tuple[ParamHeader, ...]] = {}
        self._channel: Channel | None = None
        self._session: Session | None = None
        #: The ids of requests in flight, each with the `tag` of its sender.
        self.running: dict[RequestId, Any] = {}

    async def open(self) -> None:
        """Open the channel. Raises ConnectFailed."""
        await self._resources.enter_async_context(self._transport.running())
        try:
            self._channel = await self._transport.open(self._serve)
        except BaseException:
            await self._resources.aclose()
            raise

    def _serve(self, channel: Channel) -> Session:
        connection = Connection(None, limits=self._limits, printed_on=channel.kind == "stdio")
        self._session = Session(connection, channel, self._handle)
        return self._session

    @property
    def session(self) -> Session:
        """The session."""
        assert self._session is not None, "the client is not open"
        return self._session

    async def request(
        self,
        method: str,
        params: object,
        tag: object = None,
        *,
        total: float | None = None,
        on_progress: Callable[[Raw], None] | None = None,
    ) -> Raw:
        """Send a request and return its result. A progress token in it is replaced by one of this session. Raises CallError."""
        session = self.session
        pending = session.register_request(method)
        self.running[pending.id] = tag
        try:
            result = await session.send_request(
                pending,
                _with_token(params, pending.id),
                headers=self._headers(method, params),
                total=total,
                on_progress=on_progress,
            )
        finally:
            del self.running[pending.id]
        if method == "initialize":
            self._use_revision(result)
        elif method == "tools/list":
            self.learn_headers(msgspec.json.decode(result))
        return result

    async def notify(self, method: str, params: object = UNSET) -> None:
        """Send a notification. Raises ChannelClosed."""
        await self.session.notify(method, params)

    async def close(self) -> None:
        """Close the session."""
        session, channel = self._session, self._channel
        try:
            if session is not None:
                await session.cancel_requests("the session is closed")
            if channel is not None:
                with suppress(GemelError):
                    await channel.close()
            if session is not None:
                session.close("the session is closed")
                await session.wait_closed()
        finally:
            await self._resources.aclose()

    def _use_revision(self, result: Raw) -> None:
        """Use the revision that the server chose in the handshake."""
        chosen = msgspec.json.decode(result)
        revision = chosen.get("protocolVersion") if isinstance(chosen, dict) else None
        if isinstance(revision, str):
            if not self.session.connection.handshake.open:
                self.session.connection.handshake.assume(revision)
            if self._channel is not None:
                self._channel.set_revision(revision)

    # ---------------------------------------------------------------- headers

    def learn_headers(self, result: object) -> None:
        """Remember which arguments of tools are mirrored in headers."""
        tools: Iterable[Any] = result.get("tools", ()) if isinstance(result, Mapping) else ()
        for tool in tools:
            with suppress(GemelError, KeyError, TypeError):
                self._tools[tool["name"]] = collect_param_headers(tool["inputSchema"])

    def _headers(self, method: str, params: object) -> HeaderTexts:
        """Return the headers that mirror a stateless request over HTTP."""
        given = params if isinstance(params, Mapping) else {}
        revision = (given.get("_meta") or {}).get(PROTOCOL_VERSION)
        if self.session.channel.kind != "post" or not isinstance(revision, str):
            return ()
        row = METHODS.get(method)
        name = given.get(row.name_field) if row is not None and row.name_field is not None else None
        headers = request_headers(method, name if isinstance(name, str) else None, revision)
        mirrored = self._tools.get(str(name), ()) if method == "tools/call" else ()
        return headers + tuple(param_headers(mirrored, given.get("arguments") or {}).items())


def _with_token(params: Any, token: RequestId) -> Any:
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    if not isinstance(meta, Mapping) or "progressToken" not in meta:
        return params
    return {**params, "_meta": {**meta, "progressToken": token}}


logger = logging.getLogger("gemel")


class LiveServer:
    """The live server behind a recording. Each session of a client has one here; all stateless POSTs share one.

    Nothing is translated: the server is used in the era of the client.
    """

    def __init__(self, transport: Callable[[], Transport], limits: Limits, *, lists: Sequence[Any] = ()) -> None:
        self._transport = transport
        self._limits = limits
        #: The lists of tools that clients have received: they say which arguments are mirrored in headers.
        self._lists = lists
        self._clients: WeakKeyDictionary[Session, asyncio.Task[_LiveSession]] = WeakKeyDictionary()
        self._shared: asyncio.Task[_LiveSession] | None = None
        #: The params of `initialize`, for each client.
        self._initializes: WeakKeyDictionary[Session, Any] = WeakKeyDictionary()

    async def request(self, front: Session, call: Call) -> Any:
        """Send a request of a client to the server. Raises ProtocolError with the error of the server."""
        try:
            live = await wait_shared(self._session_for(front, call))
            return await live.forward_request(front, call)
        except PeerError as exc:
            raise ProtocolError(exc.message, exc.error.data, code=exc.code) from exc
        except CallError as exc:
            raise InternalError(f"The recorded server can't be reached: {exc}") from exc

    async def notify(self, front: Session, call: Call) -> None:
        """Send a notification of a client to the server, if it has a session there.

        Some are left out, because the session with the server sends them by itself.
        """
        live = _opened(self._clients.get(front))
        if live is not None and call.method not in ("notifications/initialized", "notifications/cancelled"):
            await live.notify(call.method, _params(call))

    def remember_initialize(self, front: Session, params: object) -> None:
        """Remember `initialize` of a client: it is sent to the server when that is needed."""
        self._initializes[front] = params

    async def close(self) -> None:
        """Close the session that stateless POSTs share; the others end with their clients."""
        live, self._shared = _opened(self._shared), None
        if live is not None:
            await live.close()

    def _session_for(self, front: Session, call: Call) -> asyncio.Task[_LiveSession]:
        shared = front.channel.kind == "post"
        task = self._shared if shared else self._clients.get(front)
        if task is None or (task.done() and _opened(task) is None):
            task = front.loop.create_task(self._open(front, call))
            if shared:
                self._shared = task
            else:
                self._clients[front] = task
        return task

    async def _open(self, front: Session, call: Call) -> _LiveSession:
        own = None if front.channel.kind == "post" else front
        live = _LiveSession(self._transport(), self._limits, own)
        await live.open()
        for tools in self._lists:
            live.learn_headers(tools)
        if own is not None:
            own.on_close(live.close)
        params = self._initializes.get(front)
        if params is not None and call.method != "initialize":
            await live.initialize(params)
        return live


def _opened(task: asyncio.Task[_LiveSession] | None) -> _LiveSession | None:
    """Return the session that a task opened, unless it failed, is not finished, or the session is closed."""
    if task is None or not task.done() or task.cancelled() or task.exception() is not None:
        return None
    live = task.result()
    return live if live.session.connection.closed is None else None


class _LiveSession(RawClient):
    """One session with the live server. `front` is the session of the client that it belongs to, if there is one."""

    def __init__(self, transport: Transport, limits: Limits, front: Session | None) -> None:
        super().__init__(transport, self._serve_peer, limits)
        self._front = front
        #: Notifications that are being sent to clients: a response waits for those before it.
        self._notifications: set[asyncio.Task[None]] = set()

    async def initialize(self, params: object) -> Raw:
        """Do the handshake in the name of the client."""
        result = await self.request("initialize", params)
        await self.notify("notifications/initialized")
        return result

    async def forward_request(self, front: Session, call: Call) -> Any:
        """Send one request; its progress is sent to the client before this returns."""
        if call.method == "initialize":
            return msgspec.json.decode(await self.initialize(_params(call)))

        def progress(text: Raw) -> None:
            params = {**msgspec.json.decode(text), "progressToken": call.meta and call.meta.progress_token}
            self._forward_notification(front, "notifications/progress", params, call)

        try:
            result = await self.request(call.method, _params(call), (front, call), on_progress=progress)
        finally:
            await asyncio.gather(*self._notifications, return_exceptions=True)
        if call.method != "subscriptions/listen":
            return result
        return _with_subscription_id(msgspec.json.decode(result), call)

    def _forward_notification(self, front: Session, method: str, params: object, about: Call | None) -> None:
        task = front.loop.create_task(front.notify(method, params, about=about))
        self._notifications.add(task)
        task.add_done_callback(self._forwarded)

    def _forwarded(self, task: asyncio.Task[None]) -> None:
        self._notifications.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.debug("A notification was not sent to the client: %s", task.exception())

    async def _serve_peer(self, session: Session, call: Call) -> Any:
        """Send a request or notification of the server to the client whose call it belongs to."""
        params = _params(call)
        meta = (params.get("_meta") if isinstance(params, Mapping) else None) or {}
        subscription = meta.get(SUBSCRIPTION_ID)
        cause = self.running.get(subscription) if isinstance(subscription, str | int) else None
        cause = cause or next((tag for tag in reversed(self.running.values()) if tag is not None), None)
        front, about = cause if cause is not None else (self._front, None)
        if front is None:
            return {}
        if about is not None and subscription is not None:
            params = _with_subscription_id(params, about)
        if call.id is None:
            self._forward_notification(front, call.method, params, about)
            return None
        try:
            return await front.request(call.method, params, about=about)
        except PeerError as exc:
            raise ProtocolError(exc.message, exc.error.data, code=exc.code) from exc


def _params(call: Call) -> Any:
    return msgspec.json.decode(call.params) if call.params else UNSET


def _with_subscription_id(members: Mapping[str, Any], call: Call) -> Any:
    """Replace the id of a subscription by that of the client's request."""
    return {**members, "_meta": {**(members.get("_meta") or {}), SUBSCRIPTION_ID: call.id}}
