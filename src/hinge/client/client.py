"""The client: one object for every server, era and transport. What its users call; how it asks stays in the session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from importlib import metadata
from typing import Any, Literal, Protocol, Self, TypeVar

import msgspec
from msgspec import UNSET, Raw

from hinge.client.connecting import Opening
from hinge.client.negotiate import Discovery
from hinge.client.target import transport_for
from hinge.errors import (
    CallError,
    ConnectFailed,
    InvalidResponse,
    MethodNotFound,
    NotSent,
    ToolFailed,
)
from hinge.protocol import era_2026, http
from hinge.protocol.connection import Connection
from hinge.protocol.events import Call, EraName
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.schema.base import Implementation, Result
from hinge.schema.lifecycle import ClientCapabilities, ServerCapabilities
from hinge.schema.methods import METHODS
from hinge.schema.notifications import LogParams, ProgressParams
from hinge.schema.tools import CallToolResult, ListToolsResult, Tool
from hinge.session import Session
from hinge.transports.channel import Channel

logger = logging.getLogger("hinge")

ResultT = TypeVar("ResultT", bound=Result)
OnProgress = Callable[[ProgressParams], None]
OnLog = Callable[[LogParams], Any]
OnNotification = Callable[[str, dict[str, Any]], Any]

_progress = msgspec.json.Decoder(ProgressParams)
_decoders: dict[type[Any], Any] = {}


class _Runs(Protocol):
    def running(self) -> AbstractAsyncContextManager[None]: ...


class Client:
    """A conversation with one MCP server: `async with Client(target) as client`.

    `target` is a URL, a command line (string or words), a Python file, a `Server` object, or a transport. `era` is found
    out by itself unless pinned; `discovery=` (an earlier `client.discovery`) connects without a round trip. `on_log` and
    `on_notification` hear what the server says unasked. Further options go to the transport (`headers`, `env`, …).
    """

    def __init__(
        self,
        target: Any,
        *,
        era: EraName | Literal["auto"] = "auto",
        info: Implementation | None = None,
        discovery: Discovery | None = None,
        limits: Limits = DEFAULT_LIMITS,
        on_log: OnLog | None = None,
        on_notification: OnNotification | None = None,
        **options: Any,
    ) -> None:
        self.limits = limits
        self._target = target
        self._transport = transport_for(target, limits=limits, **options)
        self._era: EraName | Literal["auto"] = era
        self._info = info or _own_info()
        self._capabilities = ClientCapabilities()
        self._saved = discovery
        self._on_log = on_log
        self._on_notification = on_notification
        self._session: Session | None = None
        self._found: Discovery | None = None
        self._meta = b""
        self._resources: AsyncExitStack | None = None

    # ---------------------------------------------------------------- opening and closing

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the conversation. Raises ConnectFailed or another CallError, never a group; may be called again after `close`."""
        if self._session is not None:
            raise ConnectFailed("This client is connected already")
        resources = AsyncExitStack()
        try:
            async with asyncio.timeout(self.limits.connect):
                await self._open(resources)
        except BaseException as exc:
            await self._shut(resources, "the connection could not be opened")
            if isinstance(exc, TimeoutError) and not isinstance(exc, CallError):
                raise ConnectFailed(f"No conversation within {self.limits.connect:g} seconds") from exc
            raise
        self._resources = resources

    async def _open(self, resources: AsyncExitStack) -> None:
        running: _Runs | None = self._target if hasattr(self._target, "running") else None
        if running is not None:
            await resources.enter_async_context(running.running())
        channel = await self._transport.open(self._serve)
        session = self._session
        assert session is not None
        resources.push_async_callback(self._end, session, channel)
        if self._saved is not None and self._saved.era == "2026":
            found = self._saved
        else:
            era = self._saved.era if self._saved is not None else self._era
            found = await Opening(session, self._info, self._capabilities).agree(era)
        await self._settle(session, channel, found)

    def _serve(self, channel: Channel) -> Session:
        self._session = Session(Connection(None, limits=self.limits), channel, self._handle)
        return self._session

    async def _settle(self, session: Session, channel: Channel, found: Discovery) -> None:
        """Keep what was agreed, and finish a handshake (LIFE-07)."""
        self._found = found
        session.connection.stateless = found.era == "2026"
        if found.era == "2026":
            meta = era_2026.request_meta(found.revision, self._info, self._capabilities)
            self._meta = msgspec.json.encode(meta)
            return
        self._meta = b""
        session.connection.handshake.assume(found.revision)
        adopt = getattr(channel, "adopt", None)
        if adopt is not None:
            adopt(found.revision)
        await session.notify("notifications/initialized")

    async def close(self) -> None:
        """End the conversation, from any task, twice or during a call: waiting calls fail with ConnectionLost."""
        resources, self._resources = self._resources, None
        if resources is not None:
            await self._shut(resources, "the client was closed")

    async def _shut(self, resources: AsyncExitStack, reason: str) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close(reason)
        await resources.aclose()

    async def _end(self, session: Session, channel: Channel) -> None:
        try:
            await channel.close()
        finally:
            session.close("the client was closed")
            await session.finish()

    # ---------------------------------------------------------------- what was agreed

    @property
    def discovery(self) -> Discovery:
        """What the server turned out to be; save it to connect later without a round trip. Raises NotSent when not connected."""
        if self._found is None:
            raise NotSent("The client is not connected: use `async with Client(…)` or await `connect()`")
        return self._found

    @property
    def era(self) -> EraName:
        """The era in use."""
        return self.discovery.era

    @property
    def protocol_version(self) -> str:
        """The revision in use."""
        return self.discovery.revision

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is; display data."""
        return self.discovery.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server offers."""
        return self.discovery.capabilities

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in its own words."""
        return self.discovery.instructions

    # ---------------------------------------------------------------- asking

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[ResultT] | None = None,
        idle: float | msgspec.UnsetType | None = UNSET,
        total: float | msgspec.UnsetType | None = UNSET,
        on_progress: OnProgress | None = None,
    ) -> Any:
        """Any request: its result read into `result`, or into a dict.

        `idle` and `total` are seconds without a word from the server, and at all; None for no limit. Raises a CallError,
        whose `outcome` says whether the request may have run.
        """
        raw = await self._ask(method, dict(params or {}), idle, total, on_progress)
        return _read(raw, method, result)

    async def _ask(
        self,
        method: str,
        params: dict[str, Any],
        idle: float | msgspec.UnsetType | None = UNSET,
        total: float | msgspec.UnsetType | None = UNSET,
        on_progress: OnProgress | None = None,
    ) -> Raw:
        session = self._session
        if session is None or self._found is None:
            raise NotSent(f"{method} was not sent: the client is not connected")
        pending = session.ask(method)
        headers: dict[str, str] | None = None
        if self._found.era == "2026":
            given = params.get("_meta")
            params["_meta"] = _with_token(self._meta, pending.id) if given is None else self._merged(given, pending.id)
            if session.channel.kind == "post":
                row = METHODS.get(method)
                name = params.get(row.name_field) if row is not None and row.name_field is not None else None
                headers = http.request_headers(method, name, self._found.revision)
        else:
            params["_meta"] = {**params.get("_meta", {}), "progressToken": pending.id}
        return await session.exchange(
            pending,
            params,
            headers=headers,
            idle=self.limits.call_idle if idle is UNSET else idle,
            total=self.limits.call_total if total is UNSET else total,
            on_progress=None if on_progress is None else _reporter(on_progress),
        )

    def _merged(self, given: Mapping[str, Any], token: str | int) -> dict[str, Any]:
        return {"progressToken": token, **msgspec.json.decode(self._meta), **given}

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification of your own. Raises ChannelClosed when it can't leave."""
        if self._session is None:
            raise NotSent(f"{method} was not sent: the client is not connected")
        await self._session.notify(method, UNSET if params is None else params)

    async def ping(self) -> None:
        """Ask for a sign of life: `ping`, or `server/discover` in the stateless era, which has no ping."""
        await self._ask("ping" if self.era == "2025" else "server/discover", {})

    async def list_tools(self) -> list[Tool]:
        """All tools, over all pages. Raises InvalidResponse for pages without end."""
        tools: list[Tool] = []
        params: dict[str, Any] = {}
        seen: set[str] = set()
        while True:
            page: ListToolsResult = await self.request("tools/list", params, result=ListToolsResult)
            tools.extend(page.tools)
            cursor = page.next_cursor
            if cursor is None:
                return tools
            if cursor in seen or len(seen) >= self.limits.pages:
                raise InvalidResponse("tools/list: the server's pages don't end")
            seen.add(cursor)
            params = {"cursor": cursor}

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress | None = None,
        idle: float | msgspec.UnsetType | None = UNSET,
        total: float | msgspec.UnsetType | None = UNSET,
        raise_on_error: bool = True,
    ) -> CallToolResult:
        """Call a tool; the result has `content`, `structured_content`, `text` and `data`.

        A result marked as an error raises ToolFailed, unless `raise_on_error=False`. Time limits as for `request`.
        """
        params = {"name": name, "arguments": {} if arguments is None else arguments}
        raw = await self._ask("tools/call", params, idle, total, on_progress)
        result: CallToolResult = _read(raw, "tools/call", CallToolResult)
        if result.is_error and raise_on_error:
            raise ToolFailed(result.text or f"Tool {name!r} failed without a word", result)
        return result

    # ---------------------------------------------------------------- being asked

    async def _handle(self, session: Session, call: Call) -> Any:
        if call.id is None:
            await self._hear(call)
            return None
        if call.method == "ping":
            return {}
        raise MethodNotFound(call.method)

    async def _hear(self, call: Call) -> None:
        if call.method == "notifications/message" and self._on_log is not None:
            try:
                params = msgspec.json.decode(call.params, type=LogParams)
            except msgspec.MsgspecError as exc:
                logger.warning("notifications/message is dropped: %s", exc)
                return
            await _maybe(self._on_log(params))
        elif self._on_notification is not None:
            text = bytes(call.params)
            await _maybe(self._on_notification(call.method, msgspec.json.decode(text) if text else {}))


def _own_info() -> Implementation:
    return Implementation(name="hinge", version=metadata.version("hinge"))


def _with_token(meta: bytes, token: str | int) -> Raw:
    """The prepared `_meta` with this request's progress token: progress renews the time limit, so it is always wanted."""
    return Raw(b'{"progressToken":' + msgspec.json.encode(token) + b"," + meta[1:])


def _reporter(on_progress: OnProgress) -> Callable[[Raw], None]:
    def report(params: Raw) -> None:
        try:
            on_progress(_progress.decode(params))
        except msgspec.MsgspecError as exc:
            logger.warning("notifications/progress is dropped: %s", exc)
        except Exception:
            logger.exception("on_progress failed")

    return report


def _read(raw: Raw, method: str, kind: type[Any] | None) -> Any:
    """A result as its type; what it says of being complete is checked first (BASE-16, BASE-17)."""
    decoder = _decoders.get(kind or dict)
    if decoder is None:
        decoder = _decoders[kind or dict] = msgspec.json.Decoder(kind or dict[str, Any])
    try:
        found = decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as exc:
        said = _result_type(raw)
        if said not in (None, "complete"):
            raise InvalidResponse(f"{method}: the result is of type {said!r}, which is unknown here") from exc
        raise InvalidResponse(f"{method}: the result can't be read: {exc}") from exc
    said = found.get("resultType") if isinstance(found, dict) else found.result_type
    if said not in (None, UNSET, "complete"):
        raise InvalidResponse(f"{method}: the result is of type {said!r}, which is unknown here")
    return found


def _result_type(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw, type=Result).result_type
    except (msgspec.MsgspecError, RecursionError):
        return None


async def _maybe(value: Any) -> None:
    if isinstance(value, Awaitable):
        await value
