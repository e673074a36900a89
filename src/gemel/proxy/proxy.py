"""A server that forwards requests to another server, and requests and notifications of that server to its callers.

The two sides may be of different eras and revisions. Headers and credentials of callers are not forwarded, except the headers
that are named.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, Unpack

import msgspec
from msgspec import Raw

from gemel.client.client import Client
from gemel.client.group.member import FIRST_WAIT, LONGEST_WAIT
from gemel.errors import CallError, DefinitionError, GemelError, InternalError, MethodNotFound, shorten
from gemel.extensions.apps import Apps
from gemel.jsonrpc import ABSENT
from gemel.loops import PerLoop
from gemel.options import options_of, resolve
from gemel.protocol.changes import Changed
from gemel.protocol.eras.base import Era
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.revisions.adapt import TooNew
from gemel.proxy.rounds import Rounds, UpstreamRequest
from gemel.proxy.subscriptions import UpstreamSubscriptions
from gemel.proxy.translation import Json, error_for, forwarded_meta, result_for
from gemel.proxy.upstream import Upstream
from gemel.schema.base import CLIENT_CAPABILITIES, LOG_LEVEL
from gemel.schema.input_required import InputRequiredResult
from gemel.schema.lifecycle import ClientCapabilities, ResourcesCapability, ServerCapabilities
from gemel.schema.methods import METHODS
from gemel.schema.notifications import SetLevelParams
from gemel.server.composition.mount import Catalog, Kind
from gemel.server.context import Context, served_call
from gemel.server.extensions import merged
from gemel.server.options import ProxyOptions, ServerOptions
from gemel.server.server import Server
from gemel.timeouts import give_up_if_cancelled
from gemel.transports.http.client.headers import call_headers

logger = logging.getLogger("gemel")

_FORWARDED_METHODS = (
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "completion/complete",
)
_LISTS: dict[Kind, tuple[str, str, str]] = {
    "tools": ("tools/list", "tools", "name"),
    "prompts": ("prompts/list", "prompts", "name"),
    "resources": ("resources/list", "resources", "uri"),
    "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
}
#: Seconds for which the names of the upstream server are cached; less if it reports a change.
_NAMES_TTL = 5.0


def proxy(target: Any, **options: Unpack[ProxyOptions]) -> Server[Any]:
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
    extensions = of_server.pop("extensions", ())
    made = Proxy(
        client,
        declare=settings["declare"],
        single_user=settings["single_user"],
        name=name,
        headers=settings["headers"],
        methods=settings["methods"],
        parked=settings["parked"],
        strict=settings["strict"],
        extensions=extensions if prefix is None else (),
        **of_server,
    )
    if prefix is None:
        return made
    outer: Server[Any] = Server(name or "proxy", extensions=extensions, **of_server)
    outer.mount(made, prefix)
    return outer


_SendUpstream: TypeAlias = Callable[[Context[Any], Any, UpstreamRequest], Awaitable[Raw | InputRequiredResult]]


class UpstreamInLoop:
    """What a proxy has in one event loop: a client of the upstream server, and what depends on it."""

    def __init__(self, upstream: Upstream, *, ttl: float, most: int) -> None:
        self.upstream = upstream
        self.rounds = Rounds(upstream, ttl=ttl, most=most)
        #: The subscriptions at the upstream server, while it is connected.
        self.subscribed: UpstreamSubscriptions | None = None
        self.names_cache: dict[Kind, tuple[float, set[str]]] = {}
        #: Why the upstream server is not connected.
        self.reason = ""


class UpstreamCatalog(Catalog):
    """What the upstream server offers."""

    upstreams: PerLoop[UpstreamInLoop]

    def upstream_capabilities(self) -> ServerCapabilities:
        """The capabilities of the upstream server; none while it is not connected."""
        upstream = self.upstreams.here().upstream
        return upstream.client.server_capabilities if upstream.connected else ServerCapabilities()

    def capabilities(self) -> ServerCapabilities:
        """The capabilities of the upstream server that can be forwarded: no tasks, nothing experimental."""
        upstream = self.upstream_capabilities()
        resources = upstream.resources
        if resources is None and self.keepers():
            resources = ResourcesCapability()
        return ServerCapabilities(
            tools=upstream.tools,
            prompts=upstream.prompts,
            resources=resources,
            completions=upstream.completions,
            logging=upstream.logging,
        )

    def extension_capabilities(self, era: Era) -> dict[str, Any]:
        """Own extensions, and of the upstream server those that consist of tools and resources: others can't be forwarded."""
        upstream = self.upstream_capabilities().extensions or {}
        forwarded = {name: upstream[name] for name in (Apps.id,) if name in upstream}
        own = super().extension_capabilities(era)
        return merged({"extensions": forwarded}, own) if forwarded else own

    def forget_names(self, event: Changed) -> None:
        """Forget names that a change of the upstream server may have made invalid."""
        for here in self.upstreams.all():
            here.names_cache.pop("tools" if event.kind == "tools" else "prompts", None)
            if event.kind == "resources":
                here.names_cache.clear()

    async def offers(self, ctx: Context[Any], kind: Kind, key: str) -> bool:
        if kind == "resources":
            templates = await self._upstream_names(ctx, "templates")
            if any(key.startswith(one.partition("{")[0]) for one in templates) or await self.keeps(key):
                return True
        return key in await self._upstream_names(ctx, kind)

    async def _upstream_names(self, ctx: Context[Any], kind: Kind) -> set[str]:
        here = self.upstreams.here()
        since, names = here.names_cache.get(kind, (0.0, set[str]()))
        if since and time.monotonic() - since < _NAMES_TTL:
            return names
        method, member, field = _LISTS[kind]
        names = set()
        if getattr(self.upstream_capabilities(), method.partition("/")[0]) is not None:
            client = here.upstream.client
            try:
                async for item in _items(client, method, member):
                    names.add(str(item.get(field)))
            except CallError as exc:
                raise error_for(exc, ctx.protocol_version) from exc
        here.names_cache[kind] = time.monotonic(), names
        return names

    async def may_watch(self, ctx: Context[Any], uri: str) -> bool:
        resources, subscribed = self.upstream_capabilities().resources, self.upstreams.here().subscribed
        if subscribed is None or resources is None or not resources.subscribe:
            return False
        try:
            return await subscribed.subscribe(uri)
        except CallError as exc:
            if ctx.method == "resources/subscribe":
                raise error_for(exc, ctx.protocol_version) from exc
            logger.info("the upstream server refuses a subscription to %s: %s", uri, exc)
            return False

    async def may_see_change(self, ctx: Context[Any], uri: str) -> bool:
        """The upstream server decides what it reports."""
        return True

    def unwatched(self, uri: str) -> None:
        subscribed = self.upstreams.here().subscribed
        if subscribed is not None:
            subscribed.unsubscribe(uri)


class Proxy(Server[Any]):
    """A server that forwards everything. It has no tools of its own: to add some, mount it in a server."""

    _catalog_type = UpstreamCatalog

    def __init__(
        self,
        client: Client,
        *,
        declare: ClientCapabilities | None,
        single_user: bool,
        name: str | None,
        headers: Sequence[str],
        methods: Sequence[str],
        parked: int,
        strict: bool,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(name or "proxy", lifespan=self._run_client, **options)
        self._has_name = name is not None
        self._strict = strict
        assert isinstance(self.catalog, UpstreamCatalog)
        self._offered = self.catalog
        self._client, self._callbacks, self._declare = client, client.callbacks, declare
        self._single_user, self._parked = single_user, parked
        self._lock = threading.Lock()
        #: The event loop that has the client that was given; others have copies of it.
        self._first: asyncio.AbstractEventLoop | None = None
        self._upstreams = self._offered.upstreams = PerLoop(self._make_upstream)
        self._send_by_era: dict[Era, _SendUpstream] = {HANDSHAKE: self._send, STATELESS: self._send_in_rounds}
        self._headers = _forwardable_headers(headers)
        self._serve_forwarded(dict.fromkeys((*_FORWARDED_METHODS, *methods), self._forward))
        self.notification("notifications/initialized")(self._initialized)
        self.notification("notifications/roots/list_changed")(self._roots_changed)

    @property
    def _upstream(self) -> Upstream:
        return self._upstreams.here().upstream

    def _make_upstream(self) -> UpstreamInLoop:
        """The client that was given serves the first event loop, until that is closed. Others get a copy of it."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._first is None or self._first.is_closed():
                self._first = loop
        client = self._client if self._first is loop else self._client.copy()
        upstream = Upstream(client, self._callbacks, self._declare, single_user=self._single_user)
        return UpstreamInLoop(upstream, ttl=self.limits.state_ttl, most=self._parked)

    # ---------------------------------------------------------------- lifespan

    @asynccontextmanager
    async def _run_client(self, server: Server[Any]) -> AsyncIterator[None]:
        here = self._upstreams.here()
        client = here.upstream.client
        retrying: asyncio.Task[None] | None = None
        try:
            await self._connect(here)
        except GemelError as exc:
            if self._strict or not self._offered.mounted:
                raise
            here.reason = str(exc)
            logger.warning(
                "Mounted server %r can't be reached, and is tried again: %s", self.name, shorten(here.reason)
            )
            retrying = asyncio.get_running_loop().create_task(self._connect_later(here))
        try:
            yield
        finally:
            if retrying is not None:
                retrying.cancel()
                await asyncio.wait([retrying])
            self._upstreams.forget()
            if here.subscribed is not None:
                await here.subscribed.stop()
            await here.rounds.close()
            await client.close()

    async def _connect(self, here: UpstreamInLoop) -> None:
        client = here.upstream.client
        await client.connect()
        self._describe_upstream(client)
        here.subscribed = UpstreamSubscriptions(client, self.notify)
        here.subscribed.start()

    async def _connect_later(self, here: UpstreamInLoop) -> None:
        """Connect with growing pauses until it succeeds; then clients are told that the lists changed."""
        wait = FIRST_WAIT
        while True:
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(wait * 2, LONGEST_WAIT)
            try:
                await self._connect(here)
            except GemelError as exc:
                give_up_if_cancelled()
                here.reason = str(exc)
                continue
            for kind in ("tools", "prompts", "resources"):
                self.notify(Changed(kind))
            return

    def _describe_upstream(self, client: Client) -> None:
        """Use the name and instructions of the upstream server, unless the proxy has its own."""
        self._describe(None if self._has_name else client.server_info, client.instructions)

    async def _initialized(self, ctx: Context[Any], params: Any) -> None:
        """A handshake client is connected; a server that requested roots before may request them again."""
        self._upstream.sessions.add(served_call(ctx).session)
        if ctx.client_capabilities.roots is not None:
            await self._roots_changed(ctx, params)

    async def _roots_changed(self, ctx: Context[Any], params: Any) -> None:
        if self._upstream.connected:
            try:
                await self._upstream.client.roots_changed()
            except CallError as exc:
                logger.debug("a change of roots could not be forwarded: %s", exc)

    async def _set_level(self, ctx: Context[Any], params: SetLevelParams) -> None:
        await super()._set_level(ctx, params)
        await self._upstream.lower_log_level(params.level)

    # ---------------------------------------------------------------- features

    def _changed(self, kind: str) -> None:
        raise DefinitionError("A proxy has no features of its own: mount it in a Server, and add them there")

    def mount(self, server: Server[Any], prefix: str | None = None, **options: Any) -> None:
        """Raise DefinitionError: mount the proxy and the other server in a Server.

        Args:
            server: Not used.
            prefix: Not used.
            **options: Not used.

        Raises:
            DefinitionError: Always.
        """
        raise DefinitionError("A proxy can't contain a server: mount both in a Server")

    def notify(self, event: Changed) -> None:
        """Report a change of the upstream server to clients.

        Args:
            event: The change.
        """
        self._offered.forget_names(event)
        super().notify(event)

    # ---------------------------------------------------------------- calls

    async def _forward(self, ctx: Context[Any], params: Any) -> Any:
        upstream = self._upstream
        method = ctx.method
        self._require_capability(method)
        request = UpstreamRequest(
            method,
            await self._upstream_params(ctx, params),
            {one: ctx.headers[one] for one in self._headers if one in ctx.headers},
        )
        uri = getattr(params, "uri", None) if method == "resources/read" else None
        try:
            result = await self._send_by_era[served_call(ctx).call.era](ctx, params, request)
            if isinstance(result, InputRequiredResult):
                return result
            translated = result_for(method, result, upstream.client.protocol_version, ctx.protocol_version)
            _end_list(upstream.client, request, translated)
            return translated
        except CallError as exc:
            raise error_for(exc, ctx.protocol_version, uri) from exc
        except TooNew as exc:
            raise InternalError(f"The result can't be expressed in protocol revision {ctx.protocol_version}") from exc

    async def _send_in_rounds(
        self, ctx: Context[Any], params: Any, request: UpstreamRequest
    ) -> Raw | InputRequiredResult:
        if served_call(ctx).call.era.may_request_input(request.method):
            return await self._upstreams.here().rounds.serve(ctx, params, request)
        return await self._send(ctx, params, request)

    async def _send(self, ctx: Context[Any], params: Any, request: UpstreamRequest) -> Raw:
        session = served_call(ctx).session
        if session.channel.kind != "post":
            self._upstream.sessions.add(session)
        call = self._upstream.call(ctx)
        try:
            return await self._upstream.request(call, request.method, request.params, request.headers)
        finally:
            await call.flush()

    def _require_capability(self, method: str) -> None:
        """Raise MethodNotFound for a method of a feature that the upstream server does not have."""
        here = self._upstreams.here()
        if not here.upstream.connected:
            reason = f": {here.reason}" if here.reason else ""
            raise InternalError(f"The upstream server is not connected{reason}")
        row = METHODS.get(method)
        if (
            row is not None
            and row.capability is not None
            and getattr(self._offered.upstream_capabilities(), row.capability) is None
        ):
            raise MethodNotFound(method)

    async def _upstream_params(self, ctx: Context[Any], params: Any) -> Json:
        """Return the params for the upstream server, without what belongs to the connection of the caller."""
        members: Json = {} if ctx.params is ABSENT else msgspec.json.decode(ctx.params, type=dict[str, Raw])
        forwarded = forwarded_meta(members.pop("_meta", Raw(b"null")))
        for member in ("inputResponses", "requestState", "task"):  # tasks are not forwarded: see `capabilities`
            members.pop(member, None)
        row = METHODS.get(ctx.method)
        if row is not None and row.name_field is not None:
            members[row.name_field] = getattr(params, row.name_field)  # mirrored in headers
        meta: Json = forwarded or {}
        call, session, _ = served_call(ctx)
        level: Any = call.era.log_level(call.meta, session.connection.handshake, None)
        await self._upstream.lower_log_level(level)
        if not ERAS[self._upstream.client.era].negotiation_method:  # then each request declares the capabilities
            meta[CLIENT_CAPABILITIES] = self._upstream.capabilities_of(ctx)
            if level is not None:
                meta[LOG_LEVEL] = level
        return {**members, "_meta": meta} if meta else members


def _forwardable_headers(names: Sequence[str]) -> tuple[str, ...]:
    """Return header names in lower case. Raises DefinitionError for those of the protocol or of one connection."""
    for name in names:
        if not call_headers({name: ""}):
            raise DefinitionError(f"headers={name!r} can't be forwarded: it belongs to the protocol or the connection")
    return tuple(name.lower() for name in names)


def _end_list(client: Client, request: UpstreamRequest, page: Json) -> None:
    """Remove a `nextCursor` that ends the list in the era of the upstream server, and might not in that of the caller."""
    cursor = page.get("nextCursor")
    if isinstance(cursor, Raw):
        cursor = msgspec.json.decode(cursor)
    if not isinstance(cursor, str):
        return
    before = request.params.get("cursor")
    before = msgspec.json.decode(before) if isinstance(before, Raw) else before
    deviation = ERAS[client.era].deviation_of_cursor(cursor, is_repeated=cursor == before)
    if deviation:
        client.deviations.note(deviation, request.method)
        del page["nextCursor"]


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
