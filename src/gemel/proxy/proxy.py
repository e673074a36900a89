"""A server that forwards requests to another server, and requests and notifications of that server to its callers.

The two sides may be of different eras and revisions. Each caller has a session of its own with the other server: see
`gemel.proxy.sessions`. Headers and credentials of callers are not forwarded, except the headers that are named.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias, Unpack

import msgspec
from msgspec import Raw, structs

from gemel.client.client import Client
from gemel.client.negotiation import Discovery
from gemel.client.options import ClientOptions
from gemel.errors import CallError, DefinitionError, InternalError, MethodNotFound, ProtocolError
from gemel.extensions.apps import Apps
from gemel.jsonrpc import ABSENT
from gemel.loops import PerLoop
from gemel.options import options_of, resolve
from gemel.protocol.changes import Changed, ChangedFor
from gemel.protocol.eras.base import Era
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.revisions.adapt import TooNew
from gemel.proxy.sessions import UpstreamSessions
from gemel.proxy.stateless_calls import Rounds, UpstreamResult
from gemel.proxy.translation import Json, error_for, forwarded_meta, result_for
from gemel.proxy.upstream import Names, Upstream, UpstreamRequest
from gemel.schema.base import CLIENT_CAPABILITIES, LOG_LEVEL
from gemel.schema.input_required import InputRequiredResult
from gemel.schema.lifecycle import (
    ALL_LISTS,
    ClientCapabilities,
    InitializeParams,
    InitializeResult,
    ResourcesCapability,
    ServerCapabilities,
)
from gemel.schema.methods import LIST_CHANGED, LISTS, METHODS, ItemList, ListName
from gemel.schema.notifications import SetLevelParams
from gemel.server.composition.mount import Catalog
from gemel.server.composition.transform import ToolChange
from gemel.server.context import Context, served_call
from gemel.server.extensions import merged
from gemel.server.options import ProxyOptions, ServerOptions
from gemel.server.server import Server
from gemel.transports.http.client.headers import call_headers

logger = logging.getLogger("gemel")

_FORWARDED_METHODS = tuple(name for name, row in METHODS.items() if row.forwarded)
#: Seconds for which the names of the upstream server are cached; less if it reports a change.
_NAMES_TTL = 5.0


def proxy(target: object, **options: Unpack[ProxyOptions]) -> Server[Any]:
    """Make a server that offers what another MCP server offers: see `Server.from_client`."""
    settings = resolve(ProxyOptions, options, "proxy")
    if settings["coerce"]:
        raise DefinitionError(
            "A proxy passes arguments on as they are: say coerce=True in the server that has the tools"
        )
    if settings["list_null"]:
        raise DefinitionError("A proxy lists tools as they are: say list_null=True in the server that has the tools")
    of_server: Any = {name: value for name, value in options.items() if name in options_of(ServerOptions)}
    of_server.setdefault("log_level", "debug")  # the upstream server filters log messages
    in_process = hasattr(target, "serve")  # its callers are not the application: they have no scopes there
    client = (
        target if isinstance(target, Client) else Client(target, principal="proxy") if in_process else Client(target)
    )
    if client.connected:
        raise DefinitionError("A proxy needs a client that is not connected: it connects the client itself")
    name, prefix = settings["name"], settings["prefix"]
    # What is around the requests is there once: around the server that callers reach.
    around = {name: of_server.pop(name) for name in ("extensions", "middleware") if name in of_server}
    made = Proxy(
        client,
        declare=settings["declare"],
        single_user=settings["single_user"],
        shared=settings["shared"],
        name=name,
        headers=settings["headers"],
        methods=settings["methods"],
        parked=settings["parked"],
        strict=settings["strict"],
        **(of_server if prefix is not None else {**of_server, **around}),
    )
    if prefix is None:
        return made
    outer: Server[Any] = Server(name or "proxy", **around, **of_server)
    outer.mount(made, prefix)
    return outer


_SendUpstream: TypeAlias = Callable[[Context[Any], Any], Awaitable[UpstreamResult]]

#: What a server is said to have as long as it was not reached: its lists change when it is.
_UNKNOWN = structs.replace(ALL_LISTS, completions={}, logging={})


class ProxyInLoop:
    """What a proxy has in one event loop: the sessions with the upstream server, and the calls that wait for a next round."""

    def __init__(self, sessions: UpstreamSessions, rounds: Rounds) -> None:
        self.sessions = sessions
        self.rounds = rounds
        #: The names that callers without a session and a name find: all of them begin a new session.
        self.names: Names = {}
        #: Whether a client was told of `_UNKNOWN`: then what the server doesn't have is listed as empty.
        self.has_guessed = False


class UpstreamCatalog(Catalog):
    """What the upstream server offers."""

    proxies: PerLoop[ProxyInLoop]

    def upstream_capabilities(self) -> ServerCapabilities:
        """The capabilities of the upstream server; those of any if it was not reached yet."""
        here = self.proxies.here()
        capabilities = here.sessions.capabilities
        if capabilities is None:
            here.has_guessed = True
            return _UNKNOWN
        return capabilities

    def capabilities(self) -> ServerCapabilities:
        """The capabilities of the upstream server that can be forwarded: no tasks, nothing experimental."""
        upstream = self.upstream_capabilities()
        resources = upstream.resources
        if resources is None and self.keepers():
            resources = ResourcesCapability()
        return structs.replace(upstream, resources=resources, tasks=None, experimental=None, extensions=None)

    def extension_capabilities(self, era: Era) -> dict[str, Any]:
        """Own extensions, and of the upstream server those that consist of tools and resources: others can't be forwarded."""
        upstream = self.upstream_capabilities().extensions or {}
        forwarded = {name: upstream[name] for name in (Apps.id,) if name in upstream}
        own = super().extension_capabilities(era)
        return merged({"extensions": forwarded}, own) if forwarded else own

    def forget_names(self) -> None:
        """Forget names: a list of the upstream server has changed."""
        for here in self.proxies.all():
            here.names.clear()
            here.sessions.forget_names()

    async def offers(self, ctx: Context[Any], kind: ListName, key: str) -> bool:
        if kind == "resources":
            templates = await self._upstream_names(ctx, "templates")
            if any(key.startswith(one.partition("{")[0]) for one in templates) or await self.keeps(key):
                return True
        return key in await self._upstream_names(ctx, kind)

    async def _upstream_names(self, ctx: Context[Any], kind: ListName) -> set[str]:
        here = self.proxies.here()
        upstream = here.sessions.find(ctx)
        is_one_request = here.sessions.is_for_one_request(ctx)
        cache = here.names if is_one_request else {} if upstream is None else upstream.names
        since, names = cache.get(kind, (0.0, set[str]()))
        if since and time.monotonic() - since < _NAMES_TTL:
            return names
        try:
            async with here.sessions.used_by(ctx) as upstream:
                names = await _names_of(upstream.client, LISTS[kind])
        except CallError as exc:
            raise error_for(exc, self._server.name, ctx.protocol_version) from exc
        (here.names if is_one_request else upstream.names)[kind] = time.monotonic(), names
        return names

    async def watch_lists(self, ctx: Context[Any]) -> None:
        await self.proxies.here().sessions.watch_lists(ctx)

    async def may_watch(self, ctx: Context[Any], uri: str) -> bool:
        try:
            return await self.proxies.here().sessions.watch(ctx, uri)
        except CallError as exc:
            if ctx.method == "resources/subscribe":
                raise error_for(exc, self._server.name, ctx.protocol_version) from exc
            logger.info("the upstream server refuses a subscription to %s: %s", uri, exc)
            return False

    async def may_see_change(self, ctx: Context[Any], uri: str) -> bool:
        """The upstream server decides what it reports."""
        return True

    def unwatched(self, caller: Hashable, uri: str) -> None:
        here = self.proxies.find()
        if here is not None:
            here.sessions.unwatch(caller, uri)


class Proxy(Server[Any]):
    """A server that forwards everything. It has no tools of its own: to add some, mount it in a server."""

    _catalog_type = UpstreamCatalog

    def __init__(
        self,
        client: Client,
        *,
        declare: ClientCapabilities | None,
        single_user: bool,
        shared: bool,
        name: str | None,
        headers: Sequence[str],
        methods: Sequence[str],
        parked: int,
        strict: bool,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(name or "proxy", lifespan=self._run_sessions, **options)
        self._has_name = name is not None
        self._strict = strict
        assert isinstance(self.catalog, UpstreamCatalog)
        self._offered = self.catalog
        self._client, self._callbacks, self._declare = client, client.callbacks, declare
        self._single_user, self._shared, self._parked = single_user, shared, parked
        self._lock = threading.Lock()
        #: The event loop whose first session has the client that was given; all others have copies of it.
        self._first: asyncio.AbstractEventLoop | None = None
        self._proxies = self._offered.proxies = PerLoop(self._make_proxy)
        self._send_by_era: dict[Era, _SendUpstream] = {HANDSHAKE: self._send, STATELESS: self._send_in_rounds}
        self._headers = _forwardable_headers(headers)
        self._serve_forwarded(dict.fromkeys((*_FORWARDED_METHODS, *methods), self._forward))
        self.notification("notifications/initialized")(self._initialized)
        self.notification("notifications/roots/list_changed")(self._roots_changed)

    def _make_proxy(self) -> ProxyInLoop:
        sessions = UpstreamSessions(
            self._make_upstream,
            self.limits,
            shared=self._shared,
            single_user=self._single_user,
            on_connected=self._connected,
            on_change=self._upstream_changed,
            on_end=lambda upstream: rounds.drop(upstream),
        )
        rounds = Rounds(sessions, ttl=self.limits.state_ttl, most=self._parked)
        return ProxyInLoop(sessions, rounds)

    def _make_upstream(self, discovery: Discovery | None) -> Upstream:
        """A session with the client that was given, if that is free: until the first event loop has ended."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._first is None or self._first.is_closed():
                self._first = loop
            is_first = self._first is loop and discovery is None
        known: ClientOptions = {} if discovery is None else {"discovery": discovery}
        client = self._client if is_first else self._client.copy(**known)
        return Upstream(
            client,
            self._callbacks,
            self._declare,
            single_user=self._single_user,
            on_change=self._upstream_changed,
        )

    # ---------------------------------------------------------------- lifespan

    @property
    def _is_remote(self) -> bool:
        return True

    @asynccontextmanager
    async def _run_sessions(self, server: Server[Any]) -> AsyncIterator[None]:
        here = self._proxies.here()
        try:
            await here.sessions.start(self.name, strict=self._strict)
            yield
        finally:
            self._proxies.forget()
            await here.rounds.close()
            await here.sessions.stop()

    def _connected(self, client: Client, is_late: bool) -> None:
        """Use the name and instructions of the upstream server, unless the proxy has its own."""
        self._describe(None if self._has_name else client.server_info, client.instructions)
        if is_late:
            for kind in LIST_CHANGED:
                self.notify(Changed(kind))

    def _upstream_changed(self, upstream: Upstream, change: Changed) -> None:
        """Tell the caller whose session it is of a change, or all if it is not that of one."""
        upstream.names.clear()
        caller = upstream.caller
        self.notify(change if caller is None else ChangedFor(change.kind, change.uri, caller))

    async def _initialize(self, ctx: Context[Any], params: InitializeParams) -> InitializeResult:
        await self._try_to_reach()
        return await super()._initialize(ctx, params)

    async def _discover(self, ctx: Context[Any], params: object) -> Any:
        await self._try_to_reach()
        return await super()._discover(ctx, params)

    async def _try_to_reach(self) -> None:
        """Learn what the upstream server offers, if it can be reached by now."""
        try:
            await self._proxies.here().sessions.reach()
        except InternalError as exc:
            logger.debug("A client connects, and is told when the server can be reached: %s", exc)

    async def _initialized(self, ctx: Context[Any], params: object) -> None:
        """A handshake client is connected and gets its session; a server that requested roots before may request them again."""
        session = served_call(ctx).session
        if session.channel.kind == "post":
            return
        try:
            async with self._proxies.here().sessions.used_by(ctx) as upstream:
                upstream.sessions.add(session)
                if ctx.client_capabilities.roots is not None:
                    await _tell_of_roots(upstream)
        except (CallError, ProtocolError) as exc:  # its requests will tell
            logger.info("The session of a client with the upstream server could not be opened: %s", exc)

    async def _roots_changed(self, ctx: Context[Any], params: object) -> None:
        upstream = self._proxies.here().sessions.find(ctx)
        if upstream is not None:
            await _tell_of_roots(upstream)

    async def _set_level(self, ctx: Context[Any], params: SetLevelParams) -> None:
        await super()._set_level(ctx, params)
        upstream = self._proxies.here().sessions.find(ctx)
        if upstream is not None and upstream.opening is None:
            await upstream.lower_log_level(params.level)

    # ---------------------------------------------------------------- features

    def _changed(self, kind: str) -> None:
        raise DefinitionError("A proxy has no features of its own: mount it in a Server, and add them there")

    def mount(
        self,
        server: Server[Any],
        prefix: str | None = None,
        *,
        tools: Mapping[str, ToolChange | None] | None = None,
    ) -> None:
        """Raise DefinitionError: mount the proxy and the other server in a Server.

        Args:
            server: Not used.
            prefix: Not used.
            tools: Not used.

        Raises:
            DefinitionError: Always.
        """
        raise DefinitionError("A proxy can't contain a server: mount both in a Server")

    def notify(self, event: Changed) -> None:
        """Report a change of the upstream server to clients.

        Args:
            event: The change.
        """
        if not isinstance(event, ChangedFor):
            self._offered.forget_names()
        super().notify(event)

    # ---------------------------------------------------------------- calls

    async def _forward(self, ctx: Context[Any], params: object) -> Any:
        method = ctx.method
        uri = getattr(params, "uri", None) if method == "resources/read" else None
        try:
            upstream, result = await self._send_by_era[served_call(ctx).call.era](ctx, params)
            if isinstance(result, InputRequiredResult):
                return result
            translated = result_for(method, result, upstream.client.protocol_version, ctx.protocol_version)
            _end_list(upstream.client, method, params, translated)
            return translated
        except MethodNotFound:
            listed = next((of.member for of in LISTS.values() if of.method == method), None)
            if listed is None or not self._proxies.here().has_guessed:
                raise
            revision = ctx.protocol_version
            return result_for(method, Raw(msgspec.json.encode({listed: []})), revision, revision)
        except CallError as exc:
            raise error_for(exc, self.name, ctx.protocol_version, uri) from exc
        except TooNew as exc:
            raise InternalError(f"The result can't be expressed in protocol revision {ctx.protocol_version}") from exc

    async def _send_in_rounds(self, ctx: Context[Any], params: object) -> UpstreamResult:
        if served_call(ctx).call.era.may_request_input(ctx.method):
            make_request = partial(self._request_for, ctx, params)
            return await self._proxies.here().rounds.serve(ctx, params, make_request)
        return await self._send(ctx, params)

    async def _send(self, ctx: Context[Any], params: object) -> UpstreamResult:
        session = served_call(ctx).session
        async with self._proxies.here().sessions.used_by(ctx) as upstream:
            if session.channel.kind != "post":
                upstream.sessions.add(session)
            request = await self._request_for(ctx, params, upstream)
            call = upstream.call(ctx)
            try:
                return UpstreamResult(upstream, await upstream.request(call, request))
            finally:
                await call.flush()

    async def _request_for(self, ctx: Context[Any], params: object, upstream: Upstream) -> UpstreamRequest:
        """The request of a call. Raises MethodNotFound for a method of a feature that the upstream server does not have."""
        method = ctx.method
        row = METHODS.get(method)
        capability = None if row is None else row.capability
        if capability is not None and getattr(upstream.client.server_capabilities, capability) is None:
            raise MethodNotFound(method)
        headers = {one: ctx.headers[one] for one in self._headers if one in ctx.headers}
        return UpstreamRequest(method, await self._upstream_params(ctx, params, upstream), headers)

    async def _upstream_params(self, ctx: Context[Any], params: object, upstream: Upstream) -> Json:
        """Return the params for the upstream server, without what belongs to the connection of the caller."""
        members: Json = {} if ctx.params is ABSENT else msgspec.json.decode(ctx.params, type=dict[str, Raw])
        forwarded = forwarded_meta(members.pop("_meta", Raw(b"null")))
        for member in ("inputResponses", "requestState", "task"):  # tasks are not forwarded: see `capabilities`
            members.pop(member, None)
        row = METHODS.get(ctx.method)
        if row is not None and row.name_field is not None:
            members[row.name_field] = getattr(params, row.name_field)  # mirrored in headers
        meta: Json = forwarded or {}
        call, session = served_call(ctx).call, served_call(ctx).session
        level: Any = call.era.log_level(call.meta, session.connection.handshake, None)
        await upstream.lower_log_level(level)
        if not ERAS[upstream.client.era].negotiation_method:  # then each request declares the capabilities
            meta[CLIENT_CAPABILITIES] = upstream.capabilities_of(ctx)
            if level is not None:
                meta[LOG_LEVEL] = level
        return {**members, "_meta": meta} if meta else members


def _forwardable_headers(names: Sequence[str]) -> tuple[str, ...]:
    """Return header names in lower case. Raises DefinitionError for those of the protocol or of one connection."""
    for name in names:
        if not call_headers({name: ""}):
            raise DefinitionError(f"headers={name!r} can't be forwarded: it belongs to the protocol or the connection")
    return tuple(name.lower() for name in names)


def _end_list(client: Client, method: str, params: object, page: Json) -> None:
    """Remove a `nextCursor` that ends the list in the era of the upstream server, and might not in that of the caller."""
    cursor = page.get("nextCursor")
    if isinstance(cursor, Raw):
        cursor = msgspec.json.decode(cursor)
    if not isinstance(cursor, str):
        return
    is_repeated = cursor == getattr(params, "cursor", None)
    deviation = ERAS[client.era].deviation_of_cursor(cursor, is_repeated=is_repeated)
    if deviation:
        client.deviations.note(deviation, method)
        del page["nextCursor"]


async def _tell_of_roots(upstream: Upstream) -> None:
    try:
        await upstream.client.roots_changed()
    except CallError as exc:
        logger.debug("a change of roots could not be forwarded: %s", exc)


async def _names_of(client: Client, of: ItemList) -> set[str]:
    if getattr(client.server_capabilities, of.feature) is None:
        return set()
    return {str(item.get(of.key)) async for item in _items(client, of.method, of.member)}


async def _items(client: Client, method: str, member: str) -> AsyncIterator[Json]:
    """Yield all items of a list, over a limited number of pages, as JSON objects."""
    cursor: str | None = None
    for _ in range(client.limits.pages):
        page: Json = await client.request(method, {} if cursor is None else {"cursor": cursor})
        for item in page.get(member) or ():
            yield item
        before, cursor = cursor, page.get("nextCursor")
        if cursor is None or cursor == before or ERAS[client.era].deviation_of_cursor(cursor, is_repeated=False):
            return
