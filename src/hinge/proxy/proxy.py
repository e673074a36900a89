"""A server that offers what another one does: each request, answer, question, change and word is passed on.

The two sides may be of different eras and revisions. Nothing of a caller goes further that need not: no headers, no
credentials.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Unpack

import msgspec
from msgspec import Raw

from hinge.client.client import Client
from hinge.errors import CallError, DefinitionError, InternalError, MethodNotFound
from hinge.extensions.apps import Apps
from hinge.jsonrpc import ABSENT
from hinge.options import options_of, resolve
from hinge.protocol.changes import Changed
from hinge.protocol.eras.base import Era
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.eras.stateless import STATELESS
from hinge.protocol.revisions.adapt import TooNew
from hinge.proxy.rounds import Rounds, Sent
from hinge.proxy.translation import Json, error_for, passed_meta, result_for
from hinge.proxy.upstream import Upstream
from hinge.proxy.watching import Watching
from hinge.schema.base import CLIENT_CAPABILITIES, LOG_LEVEL, SERVER_INFO
from hinge.schema.input_required import InputRequiredResult
from hinge.schema.lifecycle import ServerCapabilities
from hinge.schema.methods import METHODS
from hinge.schema.notifications import SetLevelParams
from hinge.server.composition.mount import Forwarded, Kind
from hinge.server.context import Context
from hinge.server.options import ProxyOptions, ServerOptions
from hinge.server.server import Server
from hinge.transports.http.client.endpoint import call_headers

logger = logging.getLogger("hinge")

_FORWARDED = (
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
#: Names of the next server are remembered for so many seconds, or until it says that they changed.
_REMEMBERED = 5.0


def proxy(target: Any, **options: Unpack[ProxyOptions]) -> Server[Any]:
    """Make a server that offers what another MCP server offers: see `Server.from_client`."""
    settings = resolve(ProxyOptions, options, "proxy")
    of_server: Any = {name: value for name, value in options.items() if name in options_of(ServerOptions)}
    of_server.setdefault("log_level", "debug")  # until a client says otherwise it gets what the other server says
    client = target if isinstance(target, Client) else Client(target)
    upstream = Upstream(client, settings["declare"], single_user=settings["single_user"])
    name, prefix = settings["name"], settings["prefix"]
    made = Proxy(
        upstream,
        name=name,
        headers=settings["headers"],
        methods=settings["methods"],
        parked=settings["parked"],
        **of_server,
    )
    if prefix is None:
        return made
    outer: Server[Any] = Server(name or "proxy", **of_server)
    outer.mount(made, prefix)
    return outer


class Proxy(Server[Any]):
    """What `proxy` makes. It has no tools of its own: to add some, mount it in a server."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        name: str | None,
        headers: Sequence[str],
        methods: Sequence[str],
        parked: int,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(name or "proxy", lifespan=self._life, **options)
        self._named = name is not None
        self._upstream = upstream
        self._watching: Watching | None = None
        self._rounds = Rounds(self._upstream, ttl=self.limits.state_ttl, most=parked)
        self._headers = _passable(headers)
        self._known: dict[Kind, tuple[float, set[str]]] = {}
        for method in (*_FORWARDED, *methods):
            self._taken.add(method)
            self._dispatch.requests[method] = Forwarded(method, self._forward)
        for method in ("resources/subscribe", "resources/unsubscribe"):
            handler = getattr(self._subscriptions, method.partition("/")[2])
            self._dispatch.requests[method] = Forwarded(method, handler)
        self.notification("notifications/initialized")(self._joined)
        self.notification("notifications/roots/list_changed")(self._roots_changed)

    # ---------------------------------------------------------------- life

    @asynccontextmanager
    async def _life(self, server: Server[Any]) -> AsyncIterator[None]:
        client = self._upstream.client
        async with client:
            self._introduce(client)
            self._watching = Watching(client, self.notify)
            self._watching.start()
            try:
                yield
            finally:
                await self._watching.stop()
                self._watching = None
                await self._rounds.close()

    def _introduce(self, client: Client) -> None:
        """Say what the next server says of itself, unless this one was given a name."""
        description = self._description
        if not self._named and client.server_info is not None:
            description.info = client.server_info
            description.result_meta = {SERVER_INFO: Raw(msgspec.json.encode(description.info))}
        if description.instructions is None:
            description.instructions = client.instructions

    async def _joined(self, ctx: Context[Any], params: Any) -> None:
        """A handshake client is ready: a server that asked for roots before there was one may ask again."""
        self._upstream.sessions.add(ctx._session)
        if ctx.client_capabilities.roots is not None:
            await self._roots_changed(ctx, params)

    async def _roots_changed(self, ctx: Context[Any], params: Any) -> None:
        if self._upstream.connected:
            try:
                await self._upstream.client.roots_changed()
            except CallError as exc:
                logger.debug("a change of roots could not be passed on: %s", exc)

    async def _set_level(self, ctx: Context[Any], params: SetLevelParams) -> None:
        await super()._set_level(ctx, params)
        await self._upstream.want_level(params.level)

    # ---------------------------------------------------------------- what is offered

    def _offered(self) -> ServerCapabilities:
        upstream = self._upstream
        return upstream.client.server_capabilities if upstream.connected else ServerCapabilities()

    def _capabilities(self) -> ServerCapabilities:
        """What the next server offers, as far as it can be passed on: no tasks, nothing experimental."""
        found = self._offered()
        return ServerCapabilities(
            tools=found.tools,
            prompts=found.prompts,
            resources=found.resources,
            completions=found.completions,
            logging=found.logging,
        )

    def _announced(self, era: Era) -> dict[str, dict[str, Any]]:
        """Extensions that are all in tools and resources pass; others have methods and results that nobody here knows."""
        found = self._offered().extensions or {}
        return {name: found[name] for name in (Apps.id,) if name in found}

    def _features(self) -> frozenset[str]:
        found = self._offered()
        return frozenset(kind for kind in ("tools", "prompts", "resources") if getattr(found, kind) is not None)

    def _changed(self, kind: str) -> None:
        raise DefinitionError("A proxy offers what the server behind it does: mount it in a Server to add to that")

    def mount(self, server: Server[Any], prefix: str | None = None, **options: Any) -> None:
        """Not here: raises DefinitionError. Mount the proxy, and the other server beside it, in a Server."""
        raise DefinitionError("Nothing can be mounted in a proxy: mount it and the other one in a Server")

    def notify(self, event: Changed) -> None:
        """Something changed at the next server."""
        self._known.pop("tools" if event.kind == "tools" else "prompts", None)
        if event.kind == "resources":
            self._known.clear()
        super().notify(event)

    async def _offers(self, ctx: Context[Any], kind: Kind, key: str) -> bool:
        if kind == "resources":
            templates = await self._names(ctx, "templates")
            if any(key.startswith(one.partition("{")[0]) for one in templates):
                return True
        return key in await self._names(ctx, kind)

    async def _names(self, ctx: Context[Any], kind: Kind) -> set[str]:
        since, names = self._known.get(kind, (0.0, set[str]()))
        if since and time.monotonic() - since < _REMEMBERED:
            return names
        method, member, field = _LISTS[kind]
        names = set()
        if method.partition("/")[0] in self._features():
            client = self._upstream.client
            try:
                async for item in _items(client, method, member):
                    names.add(str(item.get(field)))
            except CallError as exc:
                raise error_for(exc, ctx.protocol_version) from exc
        self._known[kind] = time.monotonic(), names
        return names

    # ---------------------------------------------------------------- calls

    async def _forward(self, ctx: Context[Any], params: Any) -> Any:
        upstream = self._upstream
        method = ctx.method
        self._require(method)
        sent = Sent(
            method, await self._passed(ctx), {one: ctx.headers[one] for one in self._headers if one in ctx.headers}
        )
        row = METHODS.get(method)
        uri = getattr(params, "uri", None) if method == "resources/read" else None
        try:
            if ctx._call.era is STATELESS and row is not None and row.may_ask:
                found = await self._rounds.serve(ctx, params, sent)
                if isinstance(found, InputRequiredResult):
                    return found
            else:
                found = await self._ask(ctx, sent)
            return result_for(method, found, upstream.client.protocol_version, ctx.protocol_version)
        except CallError as exc:
            raise error_for(exc, ctx.protocol_version, uri) from exc
        except TooNew as exc:
            raise InternalError(f"The result can't be said in revision {ctx.protocol_version} of the protocol") from exc

    async def _ask(self, ctx: Context[Any], sent: Sent) -> Raw:
        if ctx._session.channel.kind != "post":
            self._upstream.sessions.add(ctx._session)
        relay = self._upstream.relay(ctx)
        try:
            return await self._upstream.request(relay, sent.method, sent.params, sent.headers)
        finally:
            await relay.told()

    def _require(self, method: str) -> None:
        """What the next server doesn't offer isn't there."""
        if not self._upstream.connected:
            raise InternalError("The server behind this one isn't connected")
        row = METHODS.get(method)
        if row is not None and row.capability is not None and getattr(self._offered(), row.capability) is None:
            raise MethodNotFound(method)

    async def _passed(self, ctx: Context[Any]) -> Json:
        """The params for the next server: as they came, but for what concerns this conversation alone."""
        found: Json = {} if ctx.params is ABSENT else msgspec.json.decode(ctx.params, type=dict[str, Raw])
        kept = passed_meta(found.pop("_meta", Raw(b"null")))
        for member in ("inputResponses", "requestState"):
            found.pop(member, None)
        row = METHODS.get(ctx.method)
        if row is not None and row.name_field is not None:
            found[row.name_field] = getattr(ctx._parsed, row.name_field)  # headers mirror it
        meta: Json = kept or {}
        if ctx._call.era is STATELESS:
            level: Any = STATELESS.log_level(ctx._call.meta, ctx._session.connection.handshake, None)
        else:
            level = ctx._session.connection.handshake.log_level
        await self._upstream.want_level(level)
        if self._upstream.client.era == "2026":
            meta[CLIENT_CAPABILITIES] = self._upstream.capabilities_of(ctx)
            if level is not None:
                meta[LOG_LEVEL] = level
        return {**found, "_meta": meta} if meta else found

    # ---------------------------------------------------------------- watching

    async def _may_watch(self, ctx: Context[Any], uri: str) -> bool:
        resources = self._offered().resources
        if self._watching is None or resources is None or not resources.subscribe:
            return False
        try:
            return await self._watching.watch(uri)
        except CallError as exc:
            if ctx._call.era is HANDSHAKE:
                raise error_for(exc, ctx.protocol_version) from exc
            logger.info("%s can't be watched at the server behind this one: %s", uri, exc)
            return False

    def _unwatched(self, uri: str) -> None:
        if self._watching is not None:
            self._watching.unwatch(uri)


def _passable(names: Sequence[str]) -> tuple[str, ...]:
    """Names of headers, in small letters. Raises DefinitionError for those that belong to one hop, or to the protocol."""
    if isinstance(names, str):
        raise DefinitionError(f"headers={names!r} is one text: write headers=[{names!r}]")
    for name in names:
        if not call_headers({name: ""}):
            raise DefinitionError(f"headers={name!r} can't be passed on: the protocol sets it, or the connection does")
    return tuple(name.lower() for name in names)


async def _items(client: Client, method: str, member: str) -> AsyncIterator[Json]:
    """All items of a list, over all its pages (bounded), as JSON objects."""
    cursor: str | None = None
    for _ in range(client.limits.pages):
        page: Json = await client.request(method, {} if cursor is None else {"cursor": cursor})
        for item in page.get(member) or ():
            yield item
        before, cursor = cursor, page.get("nextCursor")
        if cursor is None or cursor == before:
            return
