"""Many servers as one: their lists merged, each call sent to the server that it is for, all eras and transports side by side.

Knows several members and the names that stand for what they offer. One server that fails leaves the others alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import msgspec

from hinge.client.cache import CacheMode
from hinge.client.client import Client
from hinge.client.group.config import ServerEntry, Source, read_config
from hinge.client.group.member import Health, Member
from hinge.client.group.names import Origin, Prefixing, merge_names
from hinge.client.options import ClientGroupOptions
from hinge.errors import CallError, NotSent, shorten
from hinge.options import accepts, check_option, instance, resolve
from hinge.schema.content import ResourceLink
from hinge.schema.prompts import GetPromptResult, Prompt
from hinge.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from hinge.schema.tools import CallToolResult, Tool

logger = logging.getLogger("hinge")

#: The key in the `_meta` of everything listed that names the server it is from.
SERVER = "hinge/server"

#: What is asked with these callables; each gets the server's name on top, as its last argument (ELIC-19).
_CALLBACKS = (
    "on_elicit",
    "on_elicit_url",
    "on_sample",
    "on_roots",
    "on_log",
    "on_notification",
    "on_progress",
    "on_drift",
)

ItemT = TypeVar("ItemT", Tool, Prompt, Resource, ResourceTemplate)
ReturnT = TypeVar("ReturnT")
Kind = Literal["tools", "prompts"]


class ClientGroup:
    """Several servers: `async with ClientGroup({"files": "python files.py", "web": "https://host/mcp"}) as hosts`.

    `targets` maps names to what a Client takes, to a ServerEntry of a configuration, or to a Client. All are connected
    at once; one that can't be reached is tried again in the background, further and further apart, and `servers[name]`
    tells its `state` and `reason`. At most `concurrency` requests at once go to each.

    Names of tools and prompts that several servers have are written `server_name` (see `merging`), with
    `prefix="always"` all of them; the `_meta` of everything listed holds the server's name under "hinge/server".

    `options` are those of Client, for all of them. Each callback gets the name of the server as its last argument:
    `on_elicit(form, server)`, `on_roots(server)`. `on_change(change, server)`, sync or async, hears of changes of
    the servers' lists; of a server that came late or came back, with a ChangesLost.
    """

    @accepts(ClientGroupOptions)
    def __init__(self, targets: Mapping[str, Any], **options: Unpack[ClientGroupOptions]) -> None:
        check_option("targets", targets, instance(Mapping, 'ClientGroup({"name": target, …})'))
        settings = resolve(ClientGroupOptions, options, "ClientGroup")
        own = ("concurrency", "prefix", "on_change")
        of_clients = {name: value for name, value in options.items() if name not in own}
        concurrency, on_change = settings["concurrency"], settings["on_change"]
        #: The servers by name, in the order in which they were given.
        self.servers: dict[str, Member] = {
            name: Member(name, _client(name, target, of_clients), concurrency=concurrency, on_change=on_change)
            for name, target in targets.items()
        }
        self._prefix: Prefixing = settings["prefix"]
        #: What each server listed last, for the names; a server that is away for a while keeps its own.
        self._listed: dict[Kind, dict[str, list[str]]] = {"tools": {}, "prompts": {}}
        self._origins: dict[Kind, dict[str, Origin]] = {"tools": {}, "prompts": {}}

    @classmethod
    def from_config(cls, source: Source, **options: Unpack[ClientGroupOptions]) -> Self:
        """The servers of a configuration: a JSON file with `mcpServers`, or what it holds. Raises StartError."""
        return cls(read_config(source), **options)

    # ---------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect to all; returns when each is ready or has failed once, which raises nothing."""
        for member in self.servers.values():
            member.start()
        try:
            await asyncio.gather(*(member.settled() for member in self.servers.values()))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Leave all servers; twice is fine."""
        await asyncio.gather(*(member.close() for member in self.servers.values()))

    async def health(self, timeout: float = 5.0) -> dict[str, Health]:
        """How each server is, asked all at once for a sign of life within `timeout` seconds."""
        found = await asyncio.gather(*(member.health(timeout) for member in self.servers.values()))
        return dict(zip(self.servers, found, strict=True))

    # ---------------------------------------------------------------- lists

    async def list_tools(self, *, cache: CacheMode = "use") -> list[Tool]:
        """The tools of all servers that can be asked, with merged names."""
        return self._renamed("tools", await self._gather("tools", lambda client: client.list_tools(cache=cache)))

    async def list_prompts(self, *, cache: CacheMode = "use") -> list[Prompt]:
        """The prompts of all servers that can be asked, with merged names."""
        return self._renamed("prompts", await self._gather("prompts", lambda client: client.list_prompts(cache=cache)))

    async def list_resources(self, *, cache: CacheMode = "use") -> list[Resource]:
        """The resources of all servers that can be asked; a URI that several have stands there once for each."""
        found = await self._gather("resources", lambda client: client.list_resources(cache=cache))
        return [_of_server(server, item) for server, items in found.items() for item in items]

    async def list_resource_templates(self, *, cache: CacheMode = "use") -> list[ResourceTemplate]:
        """The resource templates of all servers that can be asked."""
        found = await self._gather("resources", lambda client: client.list_resource_templates(cache=cache))
        return [_of_server(server, item) for server, items in found.items() for item in items]

    async def _gather(self, feature: str, ask: Callable[[Client], Awaitable[list[ItemT]]]) -> dict[str, list[ItemT]]:
        async def one(member: Member) -> list[ItemT] | None:
            try:
                async with member.turn() as client:
                    if getattr(client.server_capabilities, feature) is None:
                        return []
                    return await ask(client)
            except CallError as exc:
                logger.warning("Server %r: its %s are not listed: %s", member.name, feature, shorten(str(exc)))
                return None

        asked = [member for member in self.servers.values() if member.available]
        found = await asyncio.gather(*(one(member) for member in asked))
        return {member.name: items for member, items in zip(asked, found, strict=True) if items is not None}

    def _renamed(self, kind: Kind, found: dict[str, list[ItemT]]) -> list[ItemT]:
        listed = {**self._listed[kind], **{server: [item.name for item in items] for server, items in found.items()}}
        self._listed[kind] = {server: listed[server] for server in self.servers if server in listed}
        self._origins[kind] = merge_names(self._listed[kind], self._prefix)
        items_of = {server: {item.name: item for item in items} for server, items in found.items()}
        return [
            _of_server(origin.server, items_of[origin.server][origin.name], name=merged)
            for merged, origin in self._origins[kind].items()
            if origin.server in items_of
        ]

    # ---------------------------------------------------------------- asking

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[ReturnT],
        server: str | None = None,
        **options: Any,
    ) -> ReturnT: ...

    @overload
    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, server: str | None = None, **options: Any
    ) -> CallToolResult: ...

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, server: str | None = None, **options: Any
    ) -> Any:
        """Call a tool by its merged name, or by its own with `server`; see `Client.call_tool` for the options and errors.

        Raises NotSent as well when no server has it, or its server can't be asked.
        """
        origin = await self._find("tools", name, server)
        async with self._member(origin.server).turn() as client:
            return await client.call_tool(origin.name, arguments, **options)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, server: str | None = None, **options: Any
    ) -> GetPromptResult:
        """The messages of a prompt, by its merged name, or by its own with `server`."""
        origin = await self._find("prompts", name, server)
        async with self._member(origin.server).turn() as client:
            return await client.get_prompt(origin.name, arguments, **options)

    async def read_resource(
        self, uri: str | Resource | ResourceLink, *, server: str | None = None, **options: Any
    ) -> ReadResourceResult:
        """What a resource holds: of the server that it was listed by, or the one that lists its URI or has a template for it;
        `server` says which otherwise."""
        if server is None and isinstance(uri, Resource):
            server = (uri.meta or {}).get(SERVER)
        uri = uri if isinstance(uri, str) else uri.uri
        async with self._member(server or await self._owner(uri)).turn() as client:
            return await client.read_resource(uri, **options)

    async def request(self, server: str, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Any request to one server; see `Client.request`."""
        async with self._member(server).turn() as client:
            return await client.request(method, params, **options)

    def origin(self, name: str, kind: Kind = "tools") -> Origin:
        """Which server a merged name is of, and what that calls it. Raises NotSent for a name that wasn't listed."""
        found = self._origins[kind].get(name)
        if found is None:
            raise NotSent(self._missing(kind, name))
        return found

    def _member(self, server: str) -> Member:
        if server not in self.servers:
            raise NotSent(f"There is no server {server!r}: there are {', '.join(map(repr, self.servers)) or 'none'}")
        return self.servers[server]

    async def _find(self, kind: Kind, name: str, server: str | None) -> Origin:
        """Names that were listed stay what they were until the next list: no server can slip in between."""
        if server is not None:
            return Origin(server, name)
        if name not in self._origins[kind]:
            await (self.list_tools(cache="refresh") if kind == "tools" else self.list_prompts(cache="refresh"))
        return self.origin(name, kind)

    def _missing(self, kind: Kind, name: str) -> str:
        origins = self._origins[kind]
        several = [merged for merged, origin in origins.items() if origin.name == name]
        if several:
            return f"Several servers have {name!r}: ask for {' or '.join(map(repr, several))}"
        import difflib

        close = difflib.get_close_matches(name, origins, 3)
        meant = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        away = [repr(one.name) for one in self.servers.values() if not one.available]
        unseen = f"; not asked: {', '.join(away)}" if away else ""
        return f"No server has {kind[:-1]} {shorten(name)!r}{meant}{unseen}"

    async def _owner(self, uri: str) -> str:
        listed = {_server_of(item) for item in await self.list_resources() if item.uri == uri}
        if not listed:
            listed = _best_prefix(uri, await self.list_resource_templates())
        if len(listed) == 1:
            return listed.pop()
        if listed:
            raise NotSent(f"Several servers have {shorten(uri)!r}: say server=…, one of {', '.join(sorted(listed))}")
        raise NotSent(f"No server lists {shorten(uri)!r} or has a template for it: say server=…")


def _client(name: str, target: Any, options: Mapping[str, Any]) -> Client | None:
    """The client of one server, whose callbacks know its name. None for a disabled one."""
    if isinstance(target, Client):
        return target
    bound = {key: _named(value, name) if key in _CALLBACKS else value for key, value in options.items()}
    if not isinstance(target, ServerEntry):
        return Client(target, **bound)
    if target.disabled:
        return None
    found, more = target.reach()
    return Client(found, **{**bound, **more})


def _named(callback: Any, server: str) -> Any:
    """The callback with the server's name as its last argument."""
    if not callable(callback):
        return callback
    return lambda *arguments: callback(*arguments, server)


def _of_server(server: str, item: ItemT, **changes: Any) -> ItemT:
    return msgspec.structs.replace(item, meta={**(item.meta or {}), SERVER: server}, **changes)


def _server_of(item: Resource | ResourceTemplate) -> str:
    return str((item.meta or {})[SERVER])


def _best_prefix(uri: str, templates: list[ResourceTemplate]) -> set[str]:
    """The servers whose template agrees with the URI for longest before its first variable."""
    best: tuple[int, set[str]] = (0, set())
    for template in templates:
        literal = template.uri_template.partition("{")[0]
        if not literal or not uri.startswith(literal) or len(literal) < best[0]:
            continue
        servers = best[1] if len(literal) == best[0] else set()
        best = len(literal), {*servers, _server_of(template)}
    return best[1]
