"""A server as something that holds other servers and can be held by one: its half of what `mounting` arranges.

Knows the server's own registries and life. Must not know channels or eras.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from hinge.errors import DefinitionError, InvalidParams
from hinge.protocol.calls import EraName
from hinge.protocol.changes import Changed
from hinge.protocol.limits import Limits
from hinge.schema.lifecycle import ServerCapabilities
from hinge.server.composition.extensions import MountedExtensions
from hinge.server.composition.mounting import Forwarded, Kind, Mounts
from hinge.server.composition.namespace import Layer, Named
from hinge.server.composition.transform import ToolChange, ToolChanges
from hinge.server.context import Context
from hinge.server.dispatch import Dispatch, RequestHandler
from hinge.server.extensions import Extensions
from hinge.server.features.subscriptions import Authorize, Subscriptions
from hinge.server.lifespan import Lifespan
from hinge.server.middleware.chain import CallNext, Middleware
from hinge.server.router import Router
from hinge.server.watchdog import unwatch, watch

if TYPE_CHECKING:
    from hinge.server.server import Server

#: What a server has to do with one kind of item.
_METHODS: dict[Kind, str] = {
    "tools": "tools/call",
    "prompts": "prompts/get",
    "resources": "resources/read",
    "templates": "completion/complete",
}


class Mountable(Router):
    """What mounting needs of a server; `Server` is the one that there is, and makes the attributes."""

    limits: Limits
    _authorize: Authorize | None
    _dispatch: Dispatch
    _elsewhere: MountedExtensions
    _extensions: Extensions
    _inner_chain: CallNext
    _nested_chain: CallNext
    _lifespan: Lifespan
    _mounted_in: list[Callable[[Server[Any], Changed], None]]
    _middleware: list[Middleware]
    _mounts: Mounts
    _subscriptions: Subscriptions
    #: Methods that the user serves with a handler of his own.
    _taken: set[str]

    # ---------------------------------------------------------------- holding

    def mount(
        self,
        server: Server[Any],
        prefix: str | None = None,
        *,
        tools: Mapping[str, ToolChange | None] | None = None,
    ) -> None:
        """Make all of another server a part of this one, live: what it offers shows up here, also what changes later.

        Its tool `forecast` is `weather_forecast` here under the prefix "weather", prompts likewise; its resource
        `city://oslo` is `weather+city://oslo`. Without a prefix names stay, and this server's own go first. Calls run
        through its middleware and see its lifespan's state and its visibility; changes and subscriptions are passed on.
        Its extensions are announced and served here, unless this server has them itself; methods of its own stay with it.
        `tools` shows some of its tools in other words, by the names that they have there, or hides them (None).

        Raises DefinitionError for a prefix that can't be, or that can't be told from another one, and for an extension
        with requests that another mounted server has, too.
        """
        if not isinstance(server, Mountable):
            raise DefinitionError(
                f"A {type(server).__name__} can't be mounted: make a server of it, mount(Server.from_client(…), …)"
            )
        made = self._mounts.check(server, prefix, ToolChanges(tools) if tools is not None else None)
        self._dispatch.elsewhere = self._elsewhere
        handlers = self._mounts.handlers()
        handlers["resources/subscribe"] = self._subscriptions.subscribe
        handlers["resources/unsubscribe"] = self._subscriptions.unsubscribe
        for method, handler in handlers.items():
            if method not in self._taken:
                self._dispatch.requests[method] = Forwarded(method, self._applied(method, handler))
        self._tools.known, self._prompts.known = (
            partial(self._known_names, "tools"),
            partial(self._known_names, "prompts"),
        )
        self._mounts.add(made)

    def unmount(self, server: Server[Any]) -> None:
        """Take a mounted server away; connected clients are told. Raises KeyError when it isn't mounted here."""
        self._mounts.remove(server)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Hold the lifespan open, and those of mounted servers: whoever serves does it inside this block."""
        return self._running()

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        await self._enter()
        try:
            yield
        finally:
            await self._exit()

    async def _enter(self) -> None:
        """One more who serves."""
        await self._lifespan.enter()
        try:
            await self._mounts.enter()
        except BaseException:
            await self._lifespan.exit()
            raise
        watch(self.limits.stall)

    async def _exit(self) -> None:
        """One less."""
        unwatch()
        try:
            await self._mounts.exit()
        finally:
            await self._lifespan.exit()

    # ---------------------------------------------------------------- being held

    async def _within(self, ctx: Context[Any]) -> Any:
        """Serve a request for a server that this one is mounted in; the result isn't dressed yet."""
        ctx.state = self._lifespan.state
        ctx.own = self._nested_chain
        return await self._inner_chain(ctx)

    def _applied(self, method: str, handler: RequestHandler) -> RequestHandler:
        """A handler with what this server puts around it."""
        raise NotImplementedError

    def _feature_methods(self, kind: str) -> dict[str, RequestHandler]:
        """The handlers of this server alone."""
        raise NotImplementedError

    def _features(self) -> frozenset[str]:
        """The lists that there are, here and in what is mounted."""
        raise NotImplementedError

    def _capabilities(self) -> ServerCapabilities:
        """What is offered, here and in what is mounted."""
        raise NotImplementedError

    async def _offers(self, ctx: Context[Any], kind: Kind, key: str) -> bool:
        """Whether this caller finds a tool, prompt, resource or template of this name or URI here."""
        return _METHODS[kind] in self._taken or self._has(ctx, kind, key) or await self._mounts.offers(ctx, kind, key)

    def _known_names(self, kind: Named, ctx: Context[Any]) -> Iterator[str]:
        """The tools or prompts that are registered here and in what is mounted, as they are called here."""
        yield from self._tools.names(ctx) if kind == "tools" else self._prompts.names(ctx)
        for mount in self._mounts:
            within = [one for one in mount.server._middleware if isinstance(one, ToolChanges)]
            steps: list[Layer] = [
                *reversed(within),
                *([mount.changes] if mount.changes is not None else []),
                mount.prefix,
            ]
            for inner in mount.server._known_names(kind, ctx):
                name: str | None = inner
                for step in steps:
                    name = None if name is None else step.outer(kind, name)
                if name is not None:
                    yield name

    def _has(self, ctx: Context[Any], kind: Kind, key: str) -> bool:
        """The same of what is registered here."""
        if kind == "tools":
            return self._tools.sees(ctx, key)
        if kind == "prompts":
            return self._prompts.sees(ctx, key)
        if kind == "templates":
            return self._resources.sees(ctx, key)
        try:
            return self._resources.has(ctx, key)
        except InvalidParams:
            return False

    def _announced(self, era: EraName) -> dict[str, dict[str, Any]]:
        """The settings of the extensions that are on offer in an era, here and in what is mounted."""
        return {**self._elsewhere.settings(era), **self._extensions.settings(era)}

    # ---------------------------------------------------------------- watching

    async def _may_watch(self, ctx: Context[Any], uri: str) -> bool:
        """Whether this caller may watch a resource: its server decides, after what decides for this one."""
        if self._authorize is not None:
            verdict = self._authorize(ctx, uri)
            if not (verdict if isinstance(verdict, bool) else await verdict):
                return False
        inner = await self._mounts.may_watch(ctx, uri)
        if inner is not None:
            return inner
        return self._authorize is not None or await self._resources.known(ctx, uri)

    def _unwatched(self, uri: str) -> None:
        """The last one who watched a resource has gone."""
        self._mounts.unwatched(uri)
