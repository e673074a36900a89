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

from hinge.channel import Channel, Transport
from hinge.errors import CallError, HingeError, InternalError, PeerError, ProtocolError
from hinge.jsonrpc import RequestId
from hinge.protocol.calls import Call
from hinge.protocol.connection import Connection
from hinge.protocol.http.mirror import ParamHeader, collect_param_headers, param_headers, request_headers
from hinge.protocol.limits import Limits
from hinge.schema.base import PROTOCOL_VERSION, SUBSCRIPTION_ID
from hinge.schema.methods import METHODS
from hinge.session import Handle, Session


class RawClient:
    """One session with a server, over any transport. `handle` serves requests and notifications of the server."""

    def __init__(self, target: Any, transport: Transport, handle: Handle, limits: Limits) -> None:
        self._target = target
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
        params: Any,
        tag: Any = None,
        *,
        total: float | None = None,
        on_progress: Callable[[Raw], None] | None = None,
    ) -> Raw:
        """Send a request and return its result. A progress token in it is replaced by one of this session. Raises CallError."""
        session = self.session
        pending = session.ask(method)
        self.running[pending.id] = tag
        try:
            result = await session.exchange(
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

    async def notify(self, method: str, params: Any = UNSET) -> None:
        """Send a notification. Raises ChannelClosed."""
        await self.session.notify(method, params)

    async def close(self) -> None:
        """Close the session."""
        session, channel = self._session, self._channel
        try:
            if session is not None:
                await session.withdraw("the session is closed")
            if channel is not None:
                with suppress(HingeError):
                    await channel.close()
            if session is not None:
                session.close("the session is closed")
                await session.finish()
        finally:
            await self._resources.aclose()

    def _use_revision(self, result: Raw) -> None:
        """Use the revision that the server chose in the handshake."""
        found = msgspec.json.decode(result)
        revision = found.get("protocolVersion") if isinstance(found, dict) else None
        if isinstance(revision, str):
            if not self.session.connection.handshake.open:
                self.session.connection.handshake.assume(revision)
            if self._channel is not None:
                self._channel.set_revision(revision)

    # ---------------------------------------------------------------- headers

    def learn_headers(self, result: Any) -> None:
        """Remember which arguments of tools are mirrored in headers."""
        tools: Iterable[Any] = result.get("tools", ()) if isinstance(result, Mapping) else ()
        for tool in tools:
            with suppress(HingeError, KeyError, TypeError):
                self._tools[tool["name"]] = collect_param_headers(tool["inputSchema"])

    def _headers(self, method: str, params: Any) -> dict[str, str] | None:
        """Return the headers that mirror a stateless request over HTTP."""
        given = params if isinstance(params, Mapping) else {}
        revision = (given.get("_meta") or {}).get(PROTOCOL_VERSION)
        if self.session.channel.kind != "post" or not isinstance(revision, str):
            return None
        row = METHODS.get(method)
        name = given.get(row.name_field) if row is not None and row.name_field is not None else None
        found = request_headers(method, name if isinstance(name, str) else None, revision)
        spec = self._tools.get(str(name), ()) if method == "tools/call" else ()
        return {**found, **param_headers(spec, given.get("arguments") or {})} if spec else found


def _with_token(params: Any, token: RequestId) -> Any:
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    if not isinstance(meta, Mapping) or "progressToken" not in meta:
        return params
    return {**params, "_meta": {**meta, "progressToken": token}}


logger = logging.getLogger("hinge")


class LiveServer:
    """The live server behind a recording. Each session of a client has one here; all stateless POSTs share one.

    Nothing is translated: the server is used in the era of the client.
    """

    def __init__(
        self, target: Any, transport: Callable[[], Transport], limits: Limits, *, lists: Sequence[Any] = ()
    ) -> None:
        self._target = target
        self._transport = transport
        self._limits = limits
        #: The lists of tools that clients have received: they say which arguments are mirrored in headers.
        self._lists = lists
        self._clients: WeakKeyDictionary[Session, asyncio.Task[_LiveConnection]] = WeakKeyDictionary()
        self._shared: asyncio.Task[_LiveConnection] | None = None
        #: The params of `initialize`, for each client.
        self._initializes: WeakKeyDictionary[Session, Any] = WeakKeyDictionary()

    async def request(self, front: Session, call: Call) -> Any:
        """Send a request of a client to the server. Raises ProtocolError with the error of the server."""
        try:
            behind = await asyncio.shield(self._behind(front, call))
            return await behind.request(front, call)
        except PeerError as exc:
            raise ProtocolError(exc.message, exc.error.data, code=exc.code) from exc
        except CallError as exc:
            raise InternalError(f"The recorded server can't be reached: {exc}") from exc

    async def notify(self, front: Session, call: Call) -> None:
        """Send a notification of a client to the server, if it has a session there."""
        behind = self._clients.get(front)
        if behind is not None and behind.done() and not behind.cancelled() and behind.exception() is None:
            await behind.result().notify(call)

    def remember_initialize(self, front: Session, params: Any) -> None:
        """Remember `initialize` of a client: it is sent to the server when that is needed."""
        self._initializes[front] = params

    def _behind(self, front: Session, call: Call) -> asyncio.Task[_LiveConnection]:
        shared = front.channel.kind == "post"
        found = self._shared if shared else self._clients.get(front)
        if found is None or (found.done() and (found.cancelled() or found.exception() or found.result().over)):
            found = front.loop.create_task(self._open(front, call))
            if shared:
                self._shared = found
            else:
                self._clients[front] = found
        return found

    async def _open(self, front: Session, call: Call) -> _LiveConnection:
        own = None if front.channel.kind == "post" else front
        behind = _LiveConnection(self._target, self._transport(), self._limits, own)
        await behind.open(self._lists)
        if own is not None:
            own.on_close(behind.close)
        params = self._initializes.get(front)
        if params is not None and call.method != "initialize":
            await behind.do_handshake(params)
        return behind

    async def close(self) -> None:
        """Close the session that stateless POSTs share; the others end with their clients."""
        shared, self._shared = self._shared, None
        if shared is not None and shared.done() and not shared.cancelled() and shared.exception() is None:
            await shared.result().close()


class _LiveConnection:
    """One session with the live server. `front` is the session of the client that it belongs to, if there is one."""

    def __init__(self, target: Any, transport: Transport, limits: Limits, front: Session | None) -> None:
        self._front = front
        #: Notifications that are being sent to clients: a response waits for those before it.
        self._passing: set[asyncio.Task[None]] = set()
        self._client = RawClient(target, transport, self._serve_peer, limits)

    @property
    def over(self) -> bool:
        """Whether it is closed."""
        return self._client.session.connection.closed is not None

    async def open(self, lists: Sequence[Any]) -> None:
        """See RawClient."""
        await self._client.open()
        for one in lists:
            self._client.learn_headers(one)

    async def close(self) -> None:
        """See RawClient."""
        await self._client.close()

    async def do_handshake(self, params: Any) -> Raw:
        """Do the handshake in the name of the client."""
        result = await self._client.request("initialize", params)
        await self._client.notify("notifications/initialized")
        return result

    async def request(self, front: Session, call: Call) -> Any:
        """Send one request; its progress is sent to the client before this returns."""
        params = msgspec.json.decode(call.params) if call.params else UNSET
        if call.method == "initialize":
            return msgspec.json.decode(await self.do_handshake(params))

        def progress(notified: Raw) -> None:
            found = {**msgspec.json.decode(notified), "progressToken": call.meta and call.meta.progress_token}
            self._pass_on(front, "notifications/progress", found, call)

        try:
            result = await self._client.request(call.method, params, (front, call), on_progress=progress)
        finally:
            await asyncio.gather(*self._passing, return_exceptions=True)
        return _with_subscription_id(result, call)

    def _pass_on(self, front: Session, method: str, params: Any, about: Call | None) -> None:
        task = front.loop.create_task(front.notify(method, params, about=about))
        self._passing.add(task)
        task.add_done_callback(self._passed)

    def _passed(self, task: asyncio.Task[None]) -> None:
        self._passing.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.debug("A notification was not sent to the client: %s", task.exception())

    async def notify(self, call: Call) -> None:
        """Send one notification, except those that this session sends by itself."""
        if call.method not in ("notifications/initialized", "notifications/cancelled"):
            await self._client.notify(call.method, msgspec.json.decode(call.params) if call.params else UNSET)

    async def _serve_peer(self, session: Session, call: Call) -> Any:
        """Send a request or notification of the server to the client whose call it belongs to."""
        params = msgspec.json.decode(call.params) if call.params else UNSET
        meta = params.get("_meta") if isinstance(params, Mapping) else None
        named = meta.get(SUBSCRIPTION_ID) if isinstance(meta, Mapping) else None
        running = self._client.running
        about = running.get(named) if isinstance(named, str | int) else None
        about = about or next((tag for tag in reversed(running.values()) if tag is not None), None)
        front, cause = about if about is not None else (self._front, None)
        if front is None:
            return {}
        if cause is not None and named is not None and isinstance(params, Mapping) and isinstance(meta, Mapping):
            params = {**params, "_meta": {**meta, SUBSCRIPTION_ID: cause.id}}
        if call.id is None:
            self._pass_on(front, call.method, params, cause)
            return None
        try:
            return await front.request(call.method, params, about=cause)
        except PeerError as exc:
            raise ProtocolError(exc.message, exc.error.data, code=exc.code) from exc


def _with_subscription_id(result: Raw, call: Call) -> Any:
    """Replace the id of a subscription by that of the client's request."""
    if call.method != "subscriptions/listen":
        return result
    found = msgspec.json.decode(result)
    return {**found, "_meta": {**(found.get("_meta") or {}), SUBSCRIPTION_ID: call.id}}
