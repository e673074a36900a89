"""Servers inside servers: a mounted server's features show up under its prefix, live, and calls go through all of it.

A mounted server keeps its middleware, its lifespan and its visibility; the outer one owns the session and finishes results.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from gemel.errors import DefinitionError, InvalidParams, MethodNotFound, ResourceNotFound
from gemel.jsonrpc import ABSENT
from gemel.loops import PerLoop
from gemel.protocol.changes import Changed
from gemel.protocol.description import ServerDescription
from gemel.protocol.eras.base import Era
from gemel.schema.base import Page, PageParams
from gemel.schema.completion import CompleteParams, PromptReference
from gemel.schema.lifecycle import ALL_LISTS, ServerCapabilities
from gemel.schema.methods import LIST_CHANGED, LISTS, Feature, ItemList, ListName
from gemel.schema.resources import ReadResourceParams
from gemel.server.composition.include import Registries
from gemel.server.composition.namespace import Layer, Prefix, plain
from gemel.server.composition.transform import ToolChanges
from gemel.server.context import Context, served_call
from gemel.server.dispatch import Dispatch, RequestHandler, Served
from gemel.server.extensions import Extensions, merged
from gemel.server.features.caching import list_scope
from gemel.server.features.encoded_lists import encoded_once
from gemel.server.features.pagination import item_key, paginate
from gemel.server.features.subscriptions import LISTS_URI, Authorize
from gemel.server.features.tools import RegisteredTool
from gemel.server.features.visibility import has_scopes, require_scopes
from gemel.server.middleware.chain import Middleware, ResourceKeeper

if TYPE_CHECKING:
    from gemel.backends.patience import Outage

logger = logging.getLogger("gemel")

#: Pages of one list that are read from a mounted server, at most.
_PAGE_LIMIT = 1000


class ForwardedMethod(Served):
    """A method whose results come from another server: JSON objects with unknown members are not changed."""

    def __init__(self, name: str, handler: RequestHandler) -> None:
        super().__init__(name, handler)
        self.row = None


class MountableServer(Protocol):
    """What mounting needs of a server, both of the one that mounts and of the one that is mounted."""

    catalog: Catalog
    #: The name that it was made with.
    _own_name: str

    @property
    def name(self) -> str:
        """The name that clients see."""
        ...

    def notify(self, event: Changed) -> None:
        """Tell clients about a change."""

    def _list_changed(self, event: Changed) -> None:
        """Tell clients about a changed list, unless no client has seen the server yet."""

    @property
    def _has_lifespan(self) -> bool:
        """Whether something is to be entered before it serves."""
        ...

    @property
    def _is_remote(self) -> bool:
        """Whether its lifespan waits for a server elsewhere."""
        ...

    async def _enter(self) -> None:
        """Enter the lifespan."""

    async def _exit(self) -> None:
        """Leave the lifespan."""

    async def _within(self, ctx: Context[Any]) -> Any:
        """Serve a request of the outer server; the result does not have its final shape yet."""


class Mount(NamedTuple):
    """A server and the prefix that its names have here."""

    server: MountableServer
    prefix: Prefix
    changes: ToolChanges | None = None

    @property
    def name(self) -> str:
        """What tells it from others in a log: its prefix, or the name of the server."""
        return self.prefix.text or self.server.name

    async def request(self, ctx: Context[Any], **members: object) -> Any:
        """Send the request to the mounted server, with other members in its params; those that are None are left out."""
        inner = ctx.replace(params=_with_members(ctx.params, members))
        if self.prefix.text is not None:
            served_call(inner).layers += (self.prefix,)
        return await (self.server._within(inner) if self.changes is None else self.changes(inner, self.server._within))

    def forwarded(self, served: Served) -> Served:
        """A method of an extension of the mounted server, which runs in that server's middleware."""

        async def forward(ctx: Context[Any], params: object) -> Any:
            return await self.request(ctx)

        outer = copy.copy(served)
        outer.handler = forward
        return outer


class ToolLocation(NamedTuple):
    """Where a tool is, as seen from one server.

    Attributes:
        server: The prefix that the server with the tool, or around it, is mounted with, or its name without one; the name of the
            server itself for its own tools. None for a tool that nothing here has.
        tool: The registered tool; None for one of a remote server.
        is_changed: Whether `ToolChanges` may change its names or arguments on the way.
        scopes: What a call needs, by the tool and by `ToolChanges` on the way, as far as that is known here.
    """

    server: str | None
    tool: RegisteredTool | None
    is_changed: bool
    scopes: frozenset[str] = frozenset()


NOWHERE = ToolLocation(None, None, is_changed=True)


class Catalog:
    """What a server offers: what is registered on it, and what is mounted in it. Servers of another source override it."""

    def __init__(
        self,
        server: MountableServer,
        description: ServerDescription,
        registries: Registries,
        dispatch: Dispatch,
        extensions: Extensions,
        middleware: list[Middleware],
        *,
        page_size: int | None,
        authorize: Authorize | None,
    ) -> None:
        self._server = server
        self._description = description
        self._registries = registries
        self._tools, self._resources, self._completions = registries.tools, registries.resources, registries.completions
        self._dispatch = dispatch
        self._extensions = extensions
        self._middleware = middleware
        self._page_size = page_size
        self._authorize = authorize
        #: The lists that mounted servers fail to give.
        self._outages: dict[tuple[Mount, ListName], Outage] = {}
        #: Methods with a handler that the user gave.
        self.custom_methods: set[str] = set()
        #: The topics of all extensions, by the key of the filter.
        self.topics = extensions.topics.copy()
        #: The handlers of what is registered here.
        self.own_handlers: dict[str, RequestHandler] = {
            **registries.handlers(),
            "completion/complete": self._complete_own,
        }
        self._entries = registries.entries()
        #: The same for a server without mounted ones.
        self.sole_handlers: dict[str, RequestHandler] = self.own_handlers | {
            of.method: encoded_once(of, self.own_handlers[of.method], self._entries[of.feature], self._sends_lists)
            for of in LISTS.values()
        }
        self._mounts: list[Mount] = []
        self._outer: list[Catalog] = []
        self._entered = PerLoop(_EnteredMounts)

    # ---------------------------------------------------------------- what is offered

    def capabilities(self) -> ServerCapabilities:
        """The capabilities. Lists may be empty, so that a client has negotiated what is registered later."""
        completions = (
            len(self._completions)
            or "completion/complete" in self.custom_methods
            or any(mount.server.catalog.capabilities().completions is not None for mount in self._mounts)
        )
        return msgspec.structs.replace(
            ALL_LISTS,
            completions={} if completions else None,
            logging={} if self._description.log_level is not None else None,
        )

    def extension_capabilities(self, era: Era) -> dict[str, Any]:
        """What extensions add to the capabilities in an era; this server's count before those of the first mounted one."""
        added: dict[str, Any] = {}
        for mount in reversed(self._mounts):
            added = merged(added, mount.server.catalog.extension_capabilities(era))
        return merged(added, self._extensions.capabilities(era))

    async def find_tool(self, ctx: Context[Any], name: str) -> RegisteredTool | None:
        """The tool of a name, here or in a mounted server, if this caller sees it; None for one of a remote server."""
        return (await self._locate_here(ctx, name)).tool

    async def locate_tool(self, ctx: Context[Any], name: str, *, behind: object = None) -> ToolLocation:
        """Where the tool of a name is: here, in a mounted server, or elsewhere.

        The name is the one outside of all middleware, or of what is behind one of them.
        """
        first = next((place for place, one in enumerate(self._middleware, 1) if one is behind), 0)
        changes = [one for one in self._middleware[first:] if isinstance(one, ToolChanges)]
        scopes: frozenset[str] = frozenset()
        for change in changes:
            inner = change.inner(name)
            if inner is None:
                return NOWHERE
            name = inner
            scopes |= change.scopes(name)
        found = await self._locate_here(ctx, name)
        return found._replace(is_changed=found.is_changed or bool(changes), scopes=found.scopes | scopes)

    async def _locate_here(self, ctx: Context[Any], name: str) -> ToolLocation:
        """Where a tool is, by its name behind the middleware."""
        tool = self._tools.find(ctx, name)
        if tool is not None:
            return ToolLocation(self._server._own_name, tool, is_changed=False, scopes=tool.item.scopes)
        mount, inner = await self._find(ctx, "tools", name)
        if mount is None:
            return ToolLocation(self._server._own_name if self._server._is_remote else None, None, is_changed=False)
        inner_name = inner if mount.changes is None else mount.changes.inner(inner)
        below = NOWHERE if inner_name is None else await mount.server.catalog.locate_tool(ctx, inner_name)
        scopes = below.scopes
        if mount.changes is not None and inner_name is not None:
            scopes |= mount.changes.scopes(inner_name)
        changed = mount.changes is not None or below.is_changed
        return ToolLocation(mount.prefix.text or mount.server._own_name, below.tool, is_changed=changed, scopes=scopes)

    def tools_without_tasks(self) -> list[str]:
        """The tools, here and in mounted servers, whose option `task` has no effect since no extension serves tasks."""
        if "task" in self._dispatch.result_types:
            return []
        own = [name for name, tool in self._tools.all.items() if tool.task_support is not None]
        return own + [name for mount in self._mounts for name in mount.server.catalog.tools_without_tasks()]

    def _sends_lists(self) -> bool:
        """Whether the lists are sent as they are made, since no middleware may look into them."""
        return all(vars(type(one)).get("leaves_results") for one in self._middleware)

    def registered(self) -> set[tuple[str, str]]:
        """The kind and name of each tool, prompt and resource that is registered here, whoever may see it."""
        return {(feature.removesuffix("s"), name) for feature, entries in self._entries.items() for name in entries.all}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is registered, mounted or added that a client could use."""
        added = self._mounts or self.custom_methods or self._middleware or self._extensions.with_methods
        return not added and not self.registered()

    @property
    def is_mounted(self) -> bool:
        """Whether another server offers what this one does."""
        return bool(self._outer)

    async def offers(self, ctx: Context[Any], kind: ListName, key: str) -> bool:
        """Whether this caller finds a tool, prompt, resource or template of this name or URI."""
        return (
            LISTS[kind].used_by in self.custom_methods
            or self._has(ctx, kind, key)
            or (await self._find(ctx, kind, key))[0] is not None
            or (kind == "resources" and await self.keeps(key))
        )

    async def keeps(self, uri: str) -> bool:
        """Whether a middleware has a resource of this URI."""
        for keeper in self.keepers():
            if await keeper.keeps(uri):
                return True
        return False

    def keepers(self) -> list[ResourceKeeper]:
        """The middleware that serves resources of its own."""
        candidates: Iterable[object] = self._middleware
        return [one for one in candidates if isinstance(one, ResourceKeeper) and one.keeps_resources]

    async def may_watch(self, ctx: Context[Any], uri: str) -> bool:
        """Whether this caller may watch a resource: this server's `authorize_subscription`, then that of a mounted one.

        Raises InsufficientScope.
        """
        if not await self._is_authorized(ctx, uri):
            return False
        mount, inner = await self._find(ctx, "resources", uri)
        if mount is None:
            if (item := self._resources.item(ctx, uri)) is not None:
                require_scopes(ctx, item.scopes)
            return self._authorize is not None or await self._resources.known(ctx, uri)
        await self._enter_mount(mount)
        return await mount.server.catalog.may_watch(ctx, inner)

    async def may_see_change(self, ctx: Context[Any], uri: str) -> bool:
        """Whether a caller that watches the resource, or one above it, may learn that it changed: asked for each change."""
        if not await self._is_authorized(ctx, uri):
            return False
        if self._resources.registers(uri):
            item = self._resources.item(ctx, uri)
            return item is not None and has_scopes(ctx, item.scopes)
        for mount in self._mounts:
            inner, catalog = mount.prefix.inner_uri(uri), mount.server.catalog
            if inner is not None and (mount.prefix.text is not None or catalog._registers(inner)):
                return await catalog.may_see_change(ctx, inner)
        return True

    def sees(self, ctx: Context[Any], uri: str) -> bool:
        """Whether a resource that is registered here exists for this caller."""
        return self._resources.registers(uri) and self._resources.item(ctx, uri) is not None

    async def _is_authorized(self, ctx: Context[Any], uri: str) -> bool:
        """The verdict of `authorize_subscription`."""
        if self._authorize is None:
            return True
        verdict = self._authorize(ctx, uri)
        return verdict if isinstance(verdict, bool) else await verdict

    def _registers(self, uri: str) -> bool:
        """Whether a URI names a resource here or in a mounted server, whoever may see it."""
        inner_uris = ((mount.server.catalog, mount.prefix.inner_uri(uri)) for mount in self._mounts)
        return self._resources.registers(uri) or any(
            inner is not None and catalog._registers(inner) for catalog, inner in inner_uris
        )

    async def watch_lists(self, ctx: Context[Any]) -> None:
        """Called when a caller subscribes to lists by a stream. A mounted server that fails keeps nobody from it."""
        await asyncio.gather(*(self._watch_lists_of(ctx, mount) for mount in self._mounts))

    async def _watch_lists_of(self, ctx: Context[Any], mount: Mount) -> None:
        try:
            await self._enter_mount(mount)
            await mount.server.catalog.watch_lists(ctx)
        except Exception as exc:
            logger.warning("Changes of the lists of %r are not reported: %s", mount.name, exc)

    def unwatched(self, caller: Hashable, uri: str) -> None:
        """Called when the last subscription of a caller to a resource has ended, or to lists: `LISTS_URI`."""
        for mount in self._mounts:
            inner = uri if uri == LISTS_URI else mount.prefix.inner_uri(uri)
            if inner is not None:
                mount.server.catalog.unwatched(caller, inner)

    def names(self, kind: Feature, ctx: Context[Any]) -> Iterator[str]:
        """The names of all tools or prompts that this caller sees."""
        yield from self._entries[kind].names(ctx)
        for mount in self._mounts:
            inner = mount.server.catalog
            changes = [one for one in reversed(inner._middleware) if isinstance(one, ToolChanges)]
            layers: list[Layer] = [*changes, *([] if mount.changes is None else [mount.changes]), mount.prefix]
            for inner_name in inner.names(kind, ctx):
                name: str | None = inner_name
                for layer in layers:
                    name = None if name is None else layer.outer(kind, name)
                if name is not None:
                    yield name

    def _has(self, ctx: Context[Any], kind: ListName, key: str) -> bool:
        """Whether this caller finds an item that is registered here; a URI may also be one of a template."""
        if kind != "resources":
            return self._entries[LISTS[kind].feature].sees(ctx, key)
        try:
            return self._resources.has(ctx, key)
        except InvalidParams:
            return False

    async def _find(self, ctx: Context[Any], kind: ListName, key: str) -> tuple[Mount | None, str]:
        """The mount that has an item, and its inner name or URI; None for an item of this server and one that nobody has."""
        if self._has(ctx, kind, key):
            return None, key
        for mount in self._mounts:
            if mount.prefix.text is not None:
                inner = mount.prefix.inner_name(key) if LISTS[kind].is_named else mount.prefix.inner_uri(key)
                if inner is not None:
                    return mount, inner
        for mount in self._mounts:
            inner = key if mount.changes is None or kind != "tools" else mount.changes.inner(key)
            offers = mount.server.catalog.offers
            if mount.prefix.text is None and inner is not None and await offers(ctx, kind, inner):
                return mount, key
        return None, key

    # ---------------------------------------------------------------- mounting

    @property
    def mounted(self) -> bool:
        """Whether another server offers this one."""
        return bool(self._outer)

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the servers that this one is mounted in, outermost first, and its own.

        One that several servers mount belongs to none of them.
        """
        above = self._outer[0].path if len(self._outer) == 1 else ()
        return (*above, self._server._own_name)

    @property
    def parts(self) -> list[object]:
        """The middleware and the extensions, here and in mounted servers."""
        inner = [part for mount in self._mounts for part in mount.server.catalog.parts]
        return [*self._middleware, *self._extensions.all, *inner]

    @property
    def offered_names(self) -> list[str]:
        """The names of what is registered here, and of the servers that are mounted."""
        names = [name for entries in self._entries.values() for name in entries.all]
        return names + [mount.server._own_name for mount in self._mounts]

    def check(self, server: MountableServer, prefix: str | None, changes: ToolChanges | None) -> Mount:
        """Whether a server can be mounted. Raises DefinitionError for a prefix that is taken, and for a circle."""
        made = Mount(server, Prefix(prefix), changes)
        if server is self._server or server.catalog._contains(self._server):
            raise DefinitionError(f"{server.name!r} can't be mounted in {self._server.name!r}: it would contain itself")
        for other in self._mounts:
            if server is other.server or made.prefix.clashes(other.prefix):
                raise DefinitionError(
                    f"{server.name!r} can't be mounted as {prefix!r}: {other.server.name!r} is mounted as "
                    f"{other.prefix.text!r}, and names of one could be taken for names of the other"
                )
            both = server.catalog._with_methods() & other.server.catalog._with_methods()
            if both - self._extensions.with_methods:
                raise DefinitionError(
                    f"{server.name!r} and {other.server.name!r} both have the extension {min(both)!r}, whose requests carry "
                    f"no prefix: add it to {self._server.name!r}, or mount one of them"
                )
        return made

    def add(self, mount: Mount) -> None:
        """Mount a server that was checked; clients are told."""
        self._mounts.append(mount)
        mount.server.catalog._outer.append(self)
        self._mounts_changed()

    def remove(self, server: MountableServer) -> None:
        """Remove a mounted server. Raises KeyError if it is not mounted here."""
        mount = next((mount for mount in self._mounts if mount.server is server), None)
        if mount is None:
            raise KeyError(f"{server.name!r} is not mounted in {self._server.name!r}")
        self._mounts.remove(mount)
        for of in LISTS:
            self._outages.pop((mount, of), None)
        server.catalog._outer.remove(self)
        self._mounts_changed()

    def _mounts_changed(self) -> None:
        self.collect_extensions()
        for feature in sorted(LIST_CHANGED):
            self._server._list_changed(Changed(feature))

    def collect_extensions(self) -> None:
        """Collect what the extensions of mounted servers provide, after a change; of two of the same name the first counts."""
        here = self._dispatch
        for table in (here.mounted_requests, here.mounted_notifications, here.mounted_result_types, self.topics):
            table.clear()
        for mount in reversed(self._mounts):
            catalog = mount.server.catalog
            inner, extensions = catalog._dispatch, catalog._extensions
            requests = inner.mounted_requests | extensions.requests
            here.mounted_requests |= {name: mount.forwarded(served) for name, served in requests.items()}
            here.mounted_notifications |= inner.mounted_notifications | extensions.notifications
            here.mounted_result_types |= inner.mounted_result_types | inner.result_types
            self.topics |= catalog.topics
        self.topics |= self._extensions.topics
        for outer in self._outer:
            outer.collect_extensions()

    def _contains(self, server: MountableServer) -> bool:
        """Whether a server is mounted here, however deep."""
        return any(mount.server is server or mount.server.catalog._contains(server) for mount in self._mounts)

    def _with_methods(self) -> set[str]:
        """The ids of all extensions, here and in mounted servers, that have methods or topics of their own."""
        return self._extensions.with_methods.union(*(mount.server.catalog._with_methods() for mount in self._mounts))

    def forward_change(self, event: Changed) -> None:
        """Tell the clients of the servers that this one is mounted in about a change here."""
        for outer in self._outer:
            (mount,) = (mount for mount in outer._mounts if mount.server is self._server)
            is_resource = event.kind == "resource" and event.uri is not None
            uri = mount.prefix.uri(event.uri) if is_resource and event.uri is not None else event.uri
            forward = outer._server.notify if event.uri is not None else outer._server._list_changed
            forward(msgspec.structs.replace(event, uri=uri))

    # ---------------------------------------------------------------- lifespans

    @property
    def has_lifespan(self) -> bool:
        """Whether a mounted server has something to enter."""
        return any(mount.server._has_lifespan for mount in self._mounts)

    async def enter(self) -> None:
        """Enter the lifespans of all mounted servers, because this server is going to be served in the running event loop."""
        self._entered.here().users += 1
        mounts = list(self._mounts)
        try:
            for mount in mounts:
                if not mount.server._is_remote:
                    await self._enter_mount(mount)
            await self._enter_together([mount for mount in mounts if mount.server._is_remote])
        except BaseException:
            await self.exit()
            raise

    async def _enter_together(self, mounts: Sequence[Mount]) -> None:
        """Enter the lifespans of servers that wait for others elsewhere. Raises the first failure when all are done."""
        tasks = [asyncio.ensure_future(self._enter_mount(mount)) for mount in mounts]
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            failures = await asyncio.gather(*tasks, return_exceptions=True)
        for failure in failures:
            if failure is not None:
                raise failure

    async def _enter_mount(self, mount: Mount) -> None:
        """Enter the lifespan of a mounted server, once; also of one that was mounted while serving."""
        entered = self._entered.here()
        if entered.users == 0 or mount in entered.mounts:
            return
        async with entered.locks[mount.server]:
            if mount not in entered.mounts:
                await mount.server._enter()
                entered.mounts.append(mount)

    async def exit(self) -> None:
        """Leave the lifespans, the last one first, when this server is no longer served in the running event loop."""
        entered = self._entered.find()
        if entered is None:
            return
        entered.users -= 1
        if entered.users == 0:
            self._entered.forget()
            while entered.mounts:
                await entered.mounts.pop().server._exit()

    # ---------------------------------------------------------------- serving

    def handlers(self) -> dict[str, RequestHandler]:
        """The methods of all features, for what is registered here together with what is mounted."""
        return {
            **{of.method: self._lister(of) for of in LISTS.values()},
            **{of.used_by: self._by_name(of) for of in LISTS.values() if of.is_named},
            "resources/read": self._read,
            "completion/complete": self._complete,
        }

    def _lister(self, of: ItemList) -> RequestHandler:
        own = self.own_handlers[of.method]

        async def combined(ctx: Context[Any], params: PageParams) -> Page:
            mounted = (self._items(ctx, mount, of) for mount in self._mounts)
            parts = await asyncio.gather(_all_pages(of, lambda cursor: own(ctx, PageParams(cursor=cursor))), *mounted)
            items: dict[str, Any] = {}  # of two items with the same name the first one counts
            for part in parts:
                for item in part.items:
                    items.setdefault(item_key(item), item)
            page, cursor = paginate(list(items.values()), params.cursor, self._page_size)
            members: dict[str, Any] = {of.field: page}
            private = any(part.private for part in parts)
            return of.result(**members, next_cursor=cursor, cache_scope=list_scope(private))

        return combined

    @property
    def missing(self) -> dict[str, str]:
        """The mounted servers whose tools the last list left out because they failed: the reason by prefix or name."""
        failed = ((mount, outage.reason) for (mount, of), outage in self._outages.items() if of == "tools")
        return {mount.name: reason for mount, reason in failed if reason is not None}

    async def _items(self, ctx: Context[Any], mount: Mount, of: ItemList) -> _Part:
        """The items of one mounted server. If it fails, the list is made without them."""
        from gemel.backends.patience import Outage

        what = f"The {of.feature} of {mount.name!r} are"
        outage = self._outages.setdefault((mount, of.name), Outage(f"{what} left out", f"{what} listed again"))
        try:
            await self._enter_mount(mount)
            part = await _all_pages(of, lambda cursor: mount.request(ctx, cursor=cursor))
        except MethodNotFound:
            outage.ended()
            return _Part([], private=False)
        except Exception as exc:
            outage.failed(exc)
            return _Part([], private=True)
        outage.ended()
        usable = [item for item in part.items if isinstance(item, Struct | dict)]
        if len(usable) < len(part.items):
            logger.warning("Some %s of %r are left out: they are not objects", of.feature, mount.name)
        return _Part([mount.prefix.listed(of, item) for item in usable], part.private)

    def _by_name(self, of: ItemList) -> RequestHandler:
        """The handler of a method that uses an item by its name."""

        async def serve(ctx: Context[Any], params: Any) -> Any:
            mount, name = await self._find(ctx, of.name, params.name)
            return await self._serve(ctx, params, mount, name=name)

        return serve

    async def _read(self, ctx: Context[Any], params: ReadResourceParams) -> Any:
        mount, uri = await self._find(ctx, "resources", params.uri)
        try:
            return await self._serve(ctx, params, mount, uri=uri)
        except ResourceNotFound:
            raise ResourceNotFound(params.uri) from None

    async def _complete(self, ctx: Context[Any], params: CompleteParams) -> Any:
        reference = params.ref
        if isinstance(reference, PromptReference):
            mount, name = await self._find(ctx, "prompts", reference.name)
            return await self._serve(ctx, params, mount, ref=msgspec.structs.replace(reference, name=name))
        mount, uri = await self._find(ctx, "templates", reference.uri)
        return await self._serve(ctx, params, mount, ref=msgspec.structs.replace(reference, uri=uri))

    async def _serve(self, ctx: Context[Any], params: object, mount: Mount | None, **members: object) -> Any:
        """Serve a request here, or with these members in a mounted server."""
        if mount is None:
            return await self.own_handlers[ctx.method](ctx, params)
        await self._enter_mount(mount)
        return mount.prefix.result(await mount.request(ctx, **members))

    async def _complete_own(self, ctx: Context[Any], params: CompleteParams) -> Any:
        """Complete an argument. Without completers the method does not exist, except for a server that mounts this one."""
        description = served_call(ctx).session.connection.description
        if description is self._description and self.capabilities().completions is None:
            raise MethodNotFound(ctx.method)
        return await self._completions.complete(ctx, params)


class _EnteredMounts:
    """The mounted servers whose lifespans were entered in one event loop."""

    def __init__(self) -> None:
        self.users = 0
        self.mounts: list[Mount] = []
        self.locks: defaultdict[MountableServer, asyncio.Lock] = defaultdict(asyncio.Lock)


class _Part(NamedTuple):
    """The items that one server adds to a list, and whether they depend on the caller."""

    items: list[Any]
    private: bool


async def _all_pages(of: ItemList, request: Callable[[str | None], Awaitable[Any]]) -> _Part:
    items: list[Any] = []
    private = False
    cursor: str | None = None
    for _ in range(_PAGE_LIMIT):
        page = await request(cursor)
        items += _member(page, of.field, of.member) or ()
        private = private or _member(page, "cache_scope", "cacheScope") == "private"
        before, cursor = cursor, _member(page, "next_cursor", "nextCursor")
        if cursor is None or cursor == before:
            break
    return _Part(items, private)


def _member(result: Any, field: str, member: str) -> Any:
    value = getattr(result, field, None) if isinstance(result, Struct) else plain(result.get(member))
    return None if value is UNSET else value


def _with_members(params: Raw, members: dict[str, Any]) -> Raw:
    """The params as JSON text with other members; the others stay as they are, known or not."""
    changed: dict[str, Any] = {} if params is ABSENT else msgspec.json.decode(params, type=dict[str, Raw])
    changed.update(members)
    return Raw(msgspec.json.encode({key: value for key, value in changed.items() if value is not None}))
