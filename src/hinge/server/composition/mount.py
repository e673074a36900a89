"""Servers inside servers: what a mounted one offers shows up under its prefix, live, and its calls go through all of it.

A mounted server keeps its middleware, its lifespan, its visibility; the outer one owns the conversation and dresses the
results. Knows routes. Must not know how tools, prompts and resources are registered or run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from hinge.errors import DefinitionError, MethodNotFound, ResourceNotFound
from hinge.jsonrpc import ABSENT
from hinge.protocol.changes import Changed
from hinge.protocol.eras.base import Era
from hinge.schema.base import Page, PageParams
from hinge.schema.completion import CompleteParams, PromptReference
from hinge.schema.lifecycle import ListChanged, ResourcesCapability, ServerCapabilities
from hinge.schema.prompts import GetPromptParams, ListPromptsResult
from hinge.schema.resources import ListResourcesResult, ListResourceTemplatesResult, ReadResourceParams
from hinge.schema.tools import CallToolParams, ListToolsResult
from hinge.server.composition.namespace import Named, Prefix, plain
from hinge.server.composition.transform import ToolChanges
from hinge.server.context import Context
from hinge.server.dispatch import Dispatch, Elsewhere, RequestHandler, Served
from hinge.server.extensions import Extensions, Topic
from hinge.server.features.caching import list_scope
from hinge.server.features.pagination import item_key, paginate
from hinge.server.middleware.chain import Middleware

logger = logging.getLogger("hinge")

Kind: TypeAlias = Literal["tools", "prompts", "resources", "templates"]
#: Pages of one list of a mounted server; more can only be one that doesn't end.
_PAGES = 1000


class Forwarded(Served):
    """A method whose results come from elsewhere: a JSON object passes with members that we don't know."""

    def __init__(self, name: str, handler: RequestHandler) -> None:
        super().__init__(name, handler)
        self.row = None


class MountableServer(Protocol):
    """What mounting needs of a server, both of the one that mounts and of the one that is mounted."""

    _dispatch: Dispatch
    _elsewhere: MountedExtensions
    _extensions: Extensions
    _middleware: list[Middleware]
    _mounted_in: list[Callable[[Any, Changed], None]]
    _mounts: Mounts

    @property
    def name(self) -> str:
        """The name that clients see."""
        ...

    def notify(self, event: Changed) -> None:
        """Tell clients about a change."""
        ...

    async def _enter(self) -> None:
        """Enter the lifespan."""
        ...

    async def _exit(self) -> None:
        """Leave the lifespan."""
        ...

    async def _within(self, ctx: Context[Any]) -> Any:
        """Serve a request of the outer server; the result does not have its final shape yet."""
        ...

    def _feature_methods(self, kind: str) -> dict[str, RequestHandler]:
        """The handlers of this server alone."""
        ...

    def _features(self) -> frozenset[str]:
        """The kinds of lists that there are, here and in mounted servers."""
        ...

    def _capabilities(self) -> ServerCapabilities:
        """What is offered, here and in mounted servers."""
        ...

    def _announced(self, era: Era) -> dict[str, dict[str, Any]]:
        """The settings of extensions in an era, here and in mounted servers."""
        ...

    def _has(self, ctx: Context[Any], kind: Kind, key: str) -> bool:
        """Whether this caller finds an item that is registered here."""
        ...

    async def _offers(self, ctx: Context[Any], kind: Kind, key: str) -> bool:
        """Whether this caller finds an item, here or in mounted servers."""
        ...

    def _known_names(self, kind: Named, ctx: Context[Any]) -> Iterator[str]:
        """The names of all tools or prompts, here and in mounted servers."""
        ...

    async def _may_watch(self, ctx: Context[Any], uri: str) -> bool:
        """Whether this caller may subscribe to a resource."""
        ...

    def _unwatched(self, uri: str) -> None:
        """The last subscription to a resource has ended."""
        ...


class Mount(NamedTuple):
    """A server and the prefix that its names have here."""

    server: MountableServer
    prefix: Prefix
    changes: ToolChanges | None = None

    async def ask(self, ctx: Context[Any], **changes: Any) -> Any:
        """What the mounted server answers to this request with other members in its params; not dressed yet.

        A member that is None is left out.
        """
        inner = ctx.replace(params=_changed(ctx.params, changes))
        if self.prefix.text is not None:
            inner._layers = (*ctx._layers, self.prefix)
        return await (self.server._within(inner) if self.changes is None else self.changes(inner, self.server._within))


class _List(NamedTuple):
    """How one list is put together."""

    kind: Kind
    field: str
    member: str
    result: type[Page]
    rename: Callable[[Prefix, Any], Any]


_LISTS = {
    "tools/list": _List("tools", "tools", "tools", ListToolsResult, Prefix.tool),
    "prompts/list": _List("prompts", "prompts", "prompts", ListPromptsResult, Prefix.prompt),
    "resources/list": _List("resources", "resources", "resources", ListResourcesResult, Prefix.resource),
    "resources/templates/list": _List(
        "resources", "resource_templates", "resourceTemplates", ListResourceTemplatesResult, Prefix.template
    ),
}


class Mounts:
    """What is mounted in one server, and the handlers that serve it together with the server's own."""

    def __init__(self, host: MountableServer, page_size: int | None) -> None:
        self._host = host
        self._page_size = page_size
        self._all: list[Mount] = []
        self._users = 0
        self._entered: list[Mount] = []
        self._entering: asyncio.Lock | None = None
        #: What clients were told that there is: an empty list is no unknown method.
        self._told: set[str] = set()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Mount]:
        return iter(self._all)

    def check(self, server: MountableServer, prefix: str | None, changes: ToolChanges | None) -> Mount:
        """Whether a server can be mounted. Raises DefinitionError for a prefix that is taken, and for a circle."""
        made = Mount(server, Prefix(prefix), changes)
        if server is self._host or server._mounts.holds(self._host):
            raise DefinitionError(f"{server.name!r} can't be mounted in {self._host.name!r}: it would hold itself")
        for other in self._all:
            if made.server is other.server or made.prefix.clashes(other.prefix):
                raise DefinitionError(
                    f"{server.name!r} can't be mounted as {prefix!r}: {other.server.name!r} is mounted as "
                    f"{other.prefix.text!r}, and it couldn't be told whose a name is"
                )
            both = server._elsewhere.with_methods() & other.server._elsewhere.with_methods()
            if both - self._host._extensions.with_methods:
                raise DefinitionError(
                    f"{server.name!r} and {other.server.name!r} both have the extension {min(both)!r}, whose requests carry "
                    f"no prefix: add it to {self._host.name!r}, or mount one of them"
                )
        return made

    def add(self, mount: Mount) -> None:
        """Mount a server that was checked; clients are told."""
        self._all.append(mount)
        mount.server._mounted_in.append(self._heard)
        self._tell(mount.server)

    def remove(self, server: MountableServer) -> None:
        """Take a mounted server away. Raises KeyError when it isn't there."""
        found = next((mount for mount in self._all if mount.server is server), None)
        if found is None:
            raise KeyError(f"{server.name!r} is not mounted in {self._host.name!r}")
        self._all.remove(found)
        server._mounted_in.remove(self._heard)
        self._tell(server)

    def holds(self, server: MountableServer) -> bool:
        """Whether a server is mounted here, however deep."""
        return any(mount.server is server or mount.server._mounts.holds(server) for mount in self._all)

    def _tell(self, server: MountableServer) -> None:
        for kind in sorted(server._features()):
            self._host.notify(Changed(kind))

    def _heard(self, server: MountableServer, event: Changed) -> None:
        """Something changed in a mounted server: it did here, too."""
        for mount in self._all:
            if mount.server is server:
                uri = event.uri if event.kind != "resource" or event.uri is None else mount.prefix.uri(event.uri)
                self._host.notify(Changed(event.kind, uri))

    # ---------------------------------------------------------------- life

    async def enter(self) -> None:
        """Whoever serves the host begins: enter the lifespans of all that is mounted."""
        self._users += 1
        try:
            for mount in list(self._all):
                await self._ready(mount)
        except BaseException:
            await self.exit()
            raise

    async def _ready(self, mount: Mount) -> None:
        """Enter the lifespan of one, once; also of what was mounted later."""
        if self._users == 0 or mount in self._entered:
            return
        if self._entering is None:
            self._entering = asyncio.Lock()
        async with self._entering:
            if mount not in self._entered:
                await mount.server._enter()
                self._entered.append(mount)

    async def exit(self) -> None:
        """Nobody serves the host any more when the last one has left: leave the lifespans, last entered first."""
        self._users -= 1
        if self._users == 0:
            self._entering = None
            while self._entered:
                await self._entered.pop().server._exit()

    # ---------------------------------------------------------------- what is offered

    def features(self) -> frozenset[str]:
        """The lists that mounted servers have."""
        return frozenset[str]().union(*(mount.server._features() for mount in self._all))

    def capabilities(self, own: ServerCapabilities) -> ServerCapabilities:
        """What the host offers with all that is mounted in it."""
        parts = [mount.server._capabilities() for mount in self._all]
        changes = ListChanged(list_changed=True)
        if any(part.tools is not None for part in parts):
            own.tools = changes
        if any(part.prompts is not None for part in parts):
            own.prompts = changes
        found = [part.resources for part in parts if part.resources is not None]
        if found:
            watched = own.resources is not None or any(one.subscribe for one in found)
            own.resources = ResourcesCapability(subscribe=watched or None, list_changed=True)
        if any(part.completions is not None for part in parts):
            own.completions = {}
        self._told |= {kind for kind in ("tools", "prompts", "resources") if getattr(own, kind) is not None}
        return own

    async def offers(self, ctx: Context[Any], kind: Kind, key: str) -> bool:
        """Whether a mounted server has a tool, prompt, resource or template of this outer name or URI."""
        return (await self._find(ctx, kind, key))[0] is not None

    async def _find(self, ctx: Context[Any], kind: Kind, key: str) -> tuple[Mount | None, str]:
        """Whose it is, and its inner name or URI; None for the host's own and for what nobody has."""
        if self._host._has(ctx, kind, key):
            return None, key
        named = kind in ("tools", "prompts")
        for mount in self._all:
            if mount.prefix.text is not None:
                inner = mount.prefix.inner_name(key) if named else mount.prefix.inner_uri(key)
                if inner is not None:
                    return mount, inner
        for mount in self._all:
            inner = key if mount.changes is None or kind != "tools" else mount.changes.inner(key)
            if mount.prefix.text is None and inner is not None and await mount.server._offers(ctx, kind, inner):
                return mount, key
        return None, key

    # ---------------------------------------------------------------- serving

    def handlers(self) -> dict[str, RequestHandler]:
        """The methods of all features, served by the host and what is mounted in it."""
        lists = {method: self._lister(method) for method in _LISTS}
        return {
            **lists,
            "tools/call": self._call,
            "prompts/get": self._get,
            "resources/read": self._read,
            "completion/complete": self._complete,
        }

    def _lister(self, method: str) -> RequestHandler:
        what = _LISTS[method]

        async def combined(ctx: Context[Any], params: PageParams) -> Page:
            self._require(what.kind, method)
            others = (self._items(ctx, mount, what) for mount in self._all)
            parts = await asyncio.gather(self._own_items(ctx, method, what), *others)
            return self._page(what, params, parts)

        return combined

    def _page(self, what: _List, params: PageParams, parts: list[_Part]) -> Page:
        """One page out of everybody's items; of two with the same name the first one counts."""
        items: dict[str, Any] = {}
        for part in parts:
            for item in part.items:
                items.setdefault(item_key(item), item)
        page, cursor = paginate(list(items.values()), params.cursor, self._page_size)
        private = any(part.scope == "private" for part in parts)
        members: dict[str, Any] = {what.field: page}
        return what.result(**members, next_cursor=cursor, cache_scope=list_scope(private))

    async def _own_items(self, ctx: Context[Any], method: str, what: _List) -> _Part:
        own = self._host._feature_methods(what.kind)[method]
        return await _all_pages(what, lambda cursor: own(ctx, PageParams(cursor=cursor)))

    async def _items(self, ctx: Context[Any], mount: Mount, what: _List) -> _Part:
        """The items of one mounted server; one that fails is left out: the others are still of use."""
        try:
            await self._ready(mount)
            if what.kind not in mount.server._features():
                return _Part([], None)
            part = await _all_pages(what, lambda cursor: mount.ask(ctx, cursor=cursor))
        except MethodNotFound:
            return _Part([], None)
        except Exception as exc:
            logger.warning("The %s of %r are left out: %s", what.kind, mount.server.name, exc)
            return _Part([], "private")
        return _Part([what.rename(mount.prefix, item) for item in part.items], part.scope)

    async def _call(self, ctx: Context[Any], params: CallToolParams) -> Any:
        mount, name = await self._find(ctx, "tools", params.name)
        if mount is None:
            return await self._own(ctx, "tools", "tools/call", params)
        return await self._answer(ctx, mount, name=name)

    async def _get(self, ctx: Context[Any], params: GetPromptParams) -> Any:
        mount, name = await self._find(ctx, "prompts", params.name)
        if mount is None:
            return await self._own(ctx, "prompts", "prompts/get", params)
        return await self._answer(ctx, mount, name=name)

    async def _read(self, ctx: Context[Any], params: ReadResourceParams) -> Any:
        mount, uri = await self._find(ctx, "resources", params.uri)
        if mount is None:
            return await self._own(ctx, "resources", "resources/read", params)
        try:
            return await self._answer(ctx, mount, uri=uri)
        except ResourceNotFound:
            raise ResourceNotFound(params.uri) from None

    async def _complete(self, ctx: Context[Any], params: CompleteParams) -> Any:
        reference = params.ref
        if isinstance(reference, PromptReference):
            mount, key = await self._find(ctx, "prompts", reference.name)
            inner: Any = msgspec.structs.replace(reference, name=key)
        else:
            mount, key = await self._find(ctx, "templates", reference.uri)
            inner = msgspec.structs.replace(reference, uri=key)
        if mount is None:
            kind: Kind = "prompts" if isinstance(reference, PromptReference) else "resources"
            return await self._own(ctx, kind, "completion/complete", params)
        return await self._answer(ctx, mount, ref=inner)

    def _require(self, kind: Kind, method: str) -> None:
        if kind not in self._told and kind not in self._host._features():
            raise MethodNotFound(method)

    async def _own(self, ctx: Context[Any], kind: Kind, method: str, params: Any) -> Any:
        self._require(kind, method)
        return await self._host._feature_methods(kind)[method](ctx, params)

    async def _answer(self, ctx: Context[Any], mount: Mount, **changes: Any) -> Any:
        await self._ready(mount)
        return mount.prefix.result(await mount.ask(ctx, **changes))

    # ---------------------------------------------------------------- watching

    async def may_watch(self, ctx: Context[Any], uri: str) -> bool | None:
        """Whether the server that has the resource lets it be watched; None when it isn't a mounted one's."""
        mount, inner = await self._find(ctx, "resources", uri)
        if mount is None:
            return None
        await self._ready(mount)
        return await mount.server._may_watch(ctx, inner)

    def unwatched(self, uri: str) -> None:
        """Nobody watches a resource any more."""
        for mount in self._all:
            inner = mount.prefix.inner_uri(uri)
            if inner is not None:
                mount.server._unwatched(inner)


class _Part(NamedTuple):
    """What one server adds to a list, and who may share it."""

    items: list[Any]
    scope: str | None


async def _all_pages(what: _List, ask: Callable[[str | None], Awaitable[Any]]) -> _Part:
    items: list[Any] = []
    scope: str | None = None
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await ask(cursor)
        items += _member(page, what.field, what.member) or ()
        found = _member(page, "cache_scope", "cacheScope")
        scope = "private" if "private" in (scope, found) else None
        before, cursor = cursor, _member(page, "next_cursor", "nextCursor")
        if cursor is None or cursor == before:
            break
    return _Part(items, scope)


def _member(result: Any, field: str, member: str) -> Any:
    value = getattr(result, field, None) if isinstance(result, Struct) else plain(result.get(member))
    return None if value is UNSET else value


def _changed(params: Raw, changes: dict[str, Any]) -> Raw:
    """The params with other members, as JSON text; what isn't changed stays as it is, known or not."""
    found: dict[str, Any] = {} if params is ABSENT else msgspec.json.decode(params, type=dict[str, Raw])
    found.update(changes)
    return Raw(msgspec.json.encode({key: value for key, value in found.items() if value is not None}))


class MountedExtensions(Elsewhere, Mapping[str, tuple[str, Topic]]):
    """All that is found in mounted servers; as a mapping, the topics of the server and of all that is mounted in it."""

    def __init__(self, host: MountableServer) -> None:
        self._host = host

    def settings(self, era: Era) -> dict[str, dict[str, Any]]:
        """What mounted servers announce in an era; of two with the same extension, the first."""
        found: dict[str, dict[str, Any]] = {}
        for mount in self._host._mounts:
            found = {**mount.server._announced(era), **found}
        return found

    def with_methods(self) -> set[str]:
        """The ids of all extensions, of the server and in it, that have methods or topics of their own."""
        return self._host._extensions.with_methods.union(
            *(mount.server._elsewhere.with_methods() for mount in self._host._mounts)
        )

    def request(self, method: str) -> Served | None:
        """Who serves a request of an extension."""
        for mount in self._host._mounts:
            served = mount.server._extensions.requests.get(method) or mount.server._elsewhere.request(method)
            if served is not None:
                return _Passed(served, mount)
        return None

    def notification(self, method: str) -> Served | None:
        """Who hears a notification of an extension."""
        for mount in self._host._mounts:
            served = mount.server._extensions.notifications.get(method) or mount.server._elsewhere.notification(method)
            if served is not None:
                return served
        return None

    def result_type(self, said: str) -> str | None:
        """The id of the extension that has results of this type."""
        for mount in self._host._mounts:
            found = mount.server._dispatch.result_types.get(said) or mount.server._elsewhere.result_type(said)
            if found is not None:
                return found
        return None

    # ---------------------------------------------------------------- topics, by the key of the filter

    def __getitem__(self, key: str) -> tuple[str, Topic]:
        own = self._host._extensions.topics.get(key)
        if own is not None:
            return own
        for mount in self._host._mounts:
            if key in mount.server._elsewhere:
                return mount.server._elsewhere[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        found = dict.fromkeys(self._host._extensions.topics)
        for mount in self._host._mounts:
            found |= dict.fromkeys(mount.server._elsewhere)
        return iter(found)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Passed(Served):
    """A request that a mounted server serves, in its own chain of middleware."""

    def __init__(self, inner: Served, mount: Mount) -> None:
        async def serve(ctx: Context[Any], params: Raw) -> Any:
            return await mount.ask(ctx)

        super().__init__(inner.name, serve, Raw)
        self.first, self.last = inner.first, inner.last
