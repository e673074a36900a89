"""A client that says what it is given: messages of any era over any transport, with the ids, tokens and headers that this
conversation needs. It negotiates nothing, repeats nothing and answers nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from hinge.channel import Channel, Transport
from hinge.errors import HingeError
from hinge.jsonrpc import RequestId
from hinge.protocol.connection import Connection
from hinge.protocol.http import headers as http
from hinge.protocol.http.parameters import ParamHeader, collect_param_headers, param_headers
from hinge.protocol.limits import Limits
from hinge.schema.base import PROTOCOL_VERSION
from hinge.schema.methods import METHODS
from hinge.session import Handle, Session


class Caller:
    """One conversation with a server. `handle` gets what the server says unasked, as a session's handle does."""

    def __init__(self, target: Any, transport: Transport, handle: Handle, limits: Limits) -> None:
        self._target = target
        self._transport = transport
        self._handle = handle
        self._limits = limits
        self._resources = AsyncExitStack()
        self._tools: dict[str, tuple[ParamHeader, ...]] = {}
        self._channel: Channel | None = None
        self._session: Session | None = None
        #: Requests on their way: their ids here, and what the caller wants to be reminded of.
        self.running: dict[RequestId, Any] = {}

    async def open(self) -> None:
        """Open the channel. Raises ConnectFailed."""
        if hasattr(self._target, "running"):
            await self._resources.enter_async_context(self._target.running())
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
        """The conversation."""
        assert self._session is not None, "it isn't open"
        return self._session

    async def ask(
        self,
        method: str,
        params: Any,
        tag: Any = None,
        *,
        total: float | None = None,
        on_progress: Callable[[Raw], None] | None = None,
    ) -> Raw:
        """A request and its result. A progress token in it becomes one of this conversation. Raises CallError."""
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
            self._shaken(result)
        elif method == "tools/list":
            self.learn(msgspec.json.decode(result))
        return result

    async def tell(self, method: str, params: Any = UNSET) -> None:
        """A notification. Raises ChannelClosed."""
        await self.session.notify(method, params)

    async def close(self) -> None:
        """End the conversation."""
        session, channel = self._session, self._channel
        try:
            if session is not None:
                await session.withdraw("the conversation is over")
            if channel is not None:
                with suppress(HingeError):
                    await channel.close()
            if session is not None:
                session.close("the conversation is over")
                await session.finish()
        finally:
            await self._resources.aclose()

    def _shaken(self, result: Raw) -> None:
        """The server has agreed to a handshake: what follows is of that revision."""
        found = msgspec.json.decode(result)
        revision = found.get("protocolVersion") if isinstance(found, dict) else None
        if isinstance(revision, str):
            if not self.session.connection.handshake.open:
                self.session.connection.handshake.assume(revision)
            adopt = getattr(self._channel, "adopt", None)
            if adopt is not None:
                adopt(revision)

    # ---------------------------------------------------------------- headers

    def learn(self, result: Any) -> None:
        """A list of tools says which arguments go into headers (HDR-13)."""
        tools: Iterable[Any] = result.get("tools", ()) if isinstance(result, Mapping) else ()
        for tool in tools:
            with suppress(HingeError, KeyError, TypeError):
                self._tools[tool["name"]] = collect_param_headers(tool["inputSchema"])

    def _headers(self, method: str, params: Any) -> dict[str, str] | None:
        """What a stateless request over HTTP repeats in its headers."""
        given = params if isinstance(params, Mapping) else {}
        revision = (given.get("_meta") or {}).get(PROTOCOL_VERSION)
        if self.session.channel.kind != "post" or not isinstance(revision, str):
            return None
        row = METHODS.get(method)
        name = given.get(row.name_field) if row is not None and row.name_field is not None else None
        found = http.request_headers(method, name if isinstance(name, str) else None, revision)
        spec = self._tools.get(str(name), ()) if method == "tools/call" else ()
        return {**found, **param_headers(spec, given.get("arguments") or {})} if spec else found


def _with_token(params: Any, token: RequestId) -> Any:
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    if not isinstance(meta, Mapping) or "progressToken" not in meta:
        return params
    return {**params, "_meta": {**meta, "progressToken": token}}
