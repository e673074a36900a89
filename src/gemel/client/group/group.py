"""Several servers used as one: merged lists, and each call sent to the server that it is for.

A server that fails does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, Unpack

import msgspec

from gemel.client.cache import CacheMode
from gemel.client.call_options import CallOptions, RequestOptions
from gemel.client.client import Client
from gemel.client.group.config import ServerEntry, Source, read_config
from gemel.client.group.member import Health, Member
from gemel.client.group.names import NameOrigin, Prefixing, merge_names
from gemel.client.methods import ResultT
from gemel.client.options import CALLBACKS, ClientGroupOptions
from gemel.errors import CallError, ConnectFailed, NotSent, shorten
from gemel.options import accepts, check_option, instance, resolve
from gemel.schema.content import ResourceLink, TextContent
from gemel.schema.prompts import GetPromptResult, Prompt
from gemel.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from gemel.schema.tools import CallToolResult, DataT, Tool
from gemel.timeouts import TimeLeft

logger = logging.getLogger("gemel")

#: The key in the `_meta` of everything listed that names the server it is from.
SERVER = "gemel/server"

ItemT = TypeVar("ItemT", Tool, Prompt, Resource, ResourceTemplate)
NamedT = TypeVar("NamedT", Tool, Prompt, Resource, ResourceTemplate, ResourceLink)
Kind = Literal["tools", "prompts"]


class ClientGroup:
    """Several servers: `async with ClientGroup({"files": "files.py", "web": "https://host/mcp"}) as group`.

    All servers are connected at the same time. One that can't be reached is tried again in the background, with backoff;
    `servers[name]` has its `state` and `reason`. Names of tools and prompts that several servers have are written
    `server_name`. The `_meta` of everything listed holds the name of the server under "gemel/server".

    Args:
        targets: What each server is reached by: what a Client takes, a ServerEntry of a configuration, or a Client.
        **options: See `ClientGroupOptions`. Each callback gets the name of the server as an additional last argument:
            `on_elicit(params, server)`, `on_change(change, server)`. `on_change` is also called, with `ChangesLost`, for a
            server that was reached late or again.

    Attributes:
        servers: The servers by name, in their order.

    Raises:
        DefinitionError: An option is unknown, or its value is not allowed.

    Example:
        >>> async with ClientGroup.from_config("mcp.json") as group:
        ...     tools = await group.list_tools()
    """

    @accepts(ClientGroupOptions)
    def __init__(self, targets: Mapping[str, Any], **options: Unpack[ClientGroupOptions]) -> None:
        check_option("targets", targets, instance(Mapping, 'ClientGroup({"name": target, …})'))
        settings = resolve(ClientGroupOptions, options, "ClientGroup")
        own = ("concurrency", "prefix", "strict", "on_change")
        of_clients = {name: value for name, value in options.items() if name not in own}
        concurrency, on_change = settings["concurrency"], settings["on_change"]
        self.servers: dict[str, Member] = {
            name: Member(
                name,
                _client(name, target, of_clients),
                concurrency=concurrency,
                on_change=on_change,
                problem=target.problem if isinstance(target, ServerEntry) else "",
            )
            for name, target in targets.items()
        }
        self._strict: bool = settings["strict"]
        self._prefix: Prefixing = settings["prefix"]
        #: The names that each server listed last; one that is lost for a while keeps its own.
        self._listed: dict[Kind, dict[str, list[str]]] = {"tools": {}, "prompts": {}}
        self._origins: dict[Kind, dict[str, NameOrigin]] = {"tools": {}, "prompts": {}}

    @classmethod
    def from_config(cls, source: Source, **options: Unpack[ClientGroupOptions]) -> Self:
        """Make a group of the servers of a configuration.

        Args:
            source: The path of a JSON file with `mcpServers`, or its content.
            **options: Options of the group.

        Returns:
            The group, not connected yet.

        Raises:
            StartError: The configuration is invalid.
        """
        return cls(read_config(source), **options)

    # ---------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    if not TYPE_CHECKING:  # type checkers report it themselves

        def __enter__(self) -> NoReturn:
            raise TypeError(
                "A ClientGroup is opened by `async with ClientGroup(…)`; without async use gemel.sync.ClientGroup"
            )

        __exit__ = __aexit__

    async def connect(self) -> None:
        """Connect to all servers. Returns when each is ready or has failed once.

        A server that fails is logged, and is in `servers` with its reason.

        Raises:
            ConnectFailed: The group is `strict`, and a server failed.
        """
        for member in self.servers.values():
            member.start()
        try:
            await asyncio.gather(*(member.settled() for member in self.servers.values()))
            failed = [member for member in self.servers.values() if member.state == "failed"]
            if failed and self._strict:
                raise ConnectFailed("; ".join(f"Server {one.name!r} failed: {one.reason}" for one in failed))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all connections. Closing twice is harmless."""
        await asyncio.gather(*(member.close() for member in self.servers.values()))

    async def health(self, timeout: float = 5.0) -> dict[str, Health]:
        """Check all servers at the same time.

        Args:
            timeout: Seconds to wait for an answer.

        Returns:
            The health of each server, by name.
        """
        reports = await asyncio.gather(*(member.health(timeout) for member in self.servers.values()))
        return dict(zip(self.servers, reports, strict=True))

    # ---------------------------------------------------------------- lists

    async def list_tools(self, *, cache: CacheMode = "use") -> list[Tool]:
        """List the tools of all available servers, with merged names.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The tools, in the order of the servers. Servers that fail are left out and logged.
        """
        return self._renamed("tools", await self._gather("tools", lambda client: client.list_tools(cache=cache)))

    async def list_prompts(self, *, cache: CacheMode = "use") -> list[Prompt]:
        """List the prompts of all available servers, with merged names.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The prompts, in the order of the servers. Servers that fail are left out and logged.
        """
        return self._renamed("prompts", await self._gather("prompts", lambda client: client.list_prompts(cache=cache)))

    async def list_resources(self, *, cache: CacheMode = "use") -> list[Resource]:
        """List the resources of all available servers. A URI that several servers have is listed once for each.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The resources, in the order of the servers. Servers that fail are left out and logged.
        """
        lists = await self._gather("resources", lambda client: client.list_resources(cache=cache))
        return [_of_server(server, item) for server, items in lists.items() for item in items]

    async def list_resource_templates(self, *, cache: CacheMode = "use") -> list[ResourceTemplate]:
        """List the resource templates of all available servers.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The resource templates, in the order of the servers. Servers that fail are left out and logged.
        """
        lists = await self._gather("resources", lambda client: client.list_resource_templates(cache=cache))
        return [_of_server(server, item) for server, items in lists.items() for item in items]

    async def _gather(
        self, feature: str, list_items: Callable[[Client], Awaitable[list[ItemT]]]
    ) -> dict[str, list[ItemT]]:
        async def fetch(member: Member) -> list[ItemT] | None:
            try:
                async with member.turn() as client:
                    if getattr(client.server_capabilities, feature) is None:
                        return []
                    return await list_items(client)
            except CallError as exc:
                logger.warning("Server %r: its %s are not listed: %s", member.name, feature, shorten(str(exc)))
                return None

        members = [member for member in self.servers.values() if member.available]
        lists = await asyncio.gather(*(fetch(member) for member in members))
        return {member.name: items for member, items in zip(members, lists, strict=True) if items is not None}

    def _renamed(self, kind: Kind, lists: dict[str, list[ItemT]]) -> list[ItemT]:
        listed = {**self._listed[kind], **{server: [item.name for item in items] for server, items in lists.items()}}
        self._listed[kind] = {server: listed[server] for server in self.servers if server in listed}
        self._origins[kind] = merge_names(self._listed[kind], self._prefix)
        items_of = {server: {item.name: item for item in items} for server, items in lists.items()}
        return [
            _of_server(origin.server, items_of[origin.server][origin.name], name=merged)
            for merged, origin in self._origins[kind].items()
            if origin.server in items_of
        ]

    # ---------------------------------------------------------------- requests

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
        server: str | None = None,
        **options: Unpack[CallOptions],
    ) -> CallToolResult[DataT]:
        """Call a tool; see `Client.call_tool`.

        Args:
            name: The merged name, or with `server` the name that the server uses.
            arguments: The arguments, by name.
            returns: The type of `data` of the result.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError. Otherwise a tool that no server
                has gives such a result, too.
            server: The name of the server.
            **options: See `CallOptions`.

        Returns:
            The result.

        Raises:
            NotSent: No server has the tool, or its server is not available.
            ToolCallError: The tool reported an error.
            CallError: There is no result for another reason.
        """
        clock = TimeLeft(options.get("total"))
        missing = f"the server of {shorten(name)!r} was not found"
        try:
            origin = await clock.spend(self._find("tools", name, server), missing)
        except NotSent as exc:
            if raise_on_error:
                raise
            return CallToolResult(content=[TextContent(text=str(exc))], is_error=True)
        async with self._member(origin.server).turn(clock.left) as client:
            result = await client.call_tool(
                origin.name, arguments, returns=returns, raise_on_error=raise_on_error, **clock.limited(options)
            )
        result.content = [
            _of_server(origin.server, block) if isinstance(block, ResourceLink) else block for block in result.content
        ]
        return result

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        server: str | None = None,
        **options: Unpack[CallOptions],
    ) -> GetPromptResult:
        """Get the messages of a prompt; see `Client.get_prompt`.

        Args:
            name: The merged name, or with `server` the name that the server uses.
            arguments: The arguments, by name.
            server: The name of the server.
            **options: See `CallOptions`.

        Returns:
            The messages.

        Raises:
            NotSent: No server has the prompt, or its server is not available.
            CallError: There is no result for another reason.
        """
        clock = TimeLeft(options.get("total"))
        origin = await clock.spend(
            self._find("prompts", name, server), f"the server of {shorten(name)!r} was not found"
        )
        async with self._member(origin.server).turn(clock.left) as client:
            return await client.get_prompt(origin.name, arguments, **clock.limited(options))

    async def read_resource(
        self,
        uri: str | Resource | ResourceLink,
        *,
        server: str | None = None,
        cache: CacheMode = "use",
        **options: Unpack[CallOptions],
    ) -> ReadResourceResult:
        """Read a resource; see `Client.read_resource`.

        Args:
            uri: The URI, a listed resource, or a link from a result.
            server: The name of the server; by default the one that listed the resource or sent the link, that lists its
                URI, or that has a template for it.
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The contents.

        Raises:
            NotSent: No server or several servers list the URI, or the server is not available.
            CallError: There is no result for another reason.
        """
        if server is None and isinstance(uri, Resource | ResourceLink):
            server = (uri.meta or {}).get(SERVER)
        uri, clock = uri if isinstance(uri, str) else uri.uri, TimeLeft(options.get("total"))
        if not server:
            server = await clock.spend(self._owner(uri), f"the server of {shorten(uri)!r} was not found")
        async with self._member(server).turn(clock.left) as client:
            return await client.read_resource(uri, cache=cache, **clock.limited(options))

    async def request(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[ResultT] | None = None,
        **options: Unpack[RequestOptions],
    ) -> ResultT:
        """Send any request to one server; see `Client.request`.

        Args:
            server: The name of the server.
            method: The method.
            params: The params.
            result: The type that the result is read into; a dict by default.
            **options: See `RequestOptions`.

        Returns:
            The result.

        Raises:
            NotSent: There is no such server, or it is not available.
            CallError: There is no result for another reason.
        """
        clock = TimeLeft(options.get("total"))
        async with self._member(server).turn(clock.left) as client:
            return await client.request(method, params, result=result, **clock.limited(options))

    def origin(self, name: str, kind: Kind = "tools") -> NameOrigin:
        """Find the server that a merged name belongs to.

        Args:
            name: The merged name, as it was listed.
            kind: "tools" or "prompts".

        Returns:
            The name of the server, and the name that it uses.

        Raises:
            NotSent: The name was not listed.
        """
        origin = self._origins[kind].get(name)
        if origin is None:
            raise NotSent(self._missing(kind, name))
        return origin

    def _member(self, server: str) -> Member:
        if server not in self.servers:
            raise NotSent(f"There is no server {server!r}: there are {', '.join(map(repr, self.servers)) or 'none'}")
        return self.servers[server]

    async def _find(self, kind: Kind, name: str, server: str | None) -> NameOrigin:
        """The origin of a name; names keep their meaning until the next list."""
        if server is not None:
            return NameOrigin(server, name)
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
        away = [repr(member.name) for member in self.servers.values() if not member.available]
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
    """The client of one server, whose callbacks get its name; None for a disabled one."""
    if isinstance(target, Client):
        return target
    bound = {key: _named(value, name) if key in CALLBACKS else value for key, value in options.items()}
    if not isinstance(target, ServerEntry):
        return Client(target, **bound)
    if target.disabled or target.problem:
        return None
    address, more = target.reach()
    return Client(address, **{**bound, **more})


def _named(callback: Any, server: str) -> Any:
    """The callback with the server's name as its last argument."""
    if not callable(callback):
        return callback
    return lambda *arguments: callback(*arguments, server)


def _of_server(server: str, item: NamedT, **changes: Any) -> NamedT:
    return msgspec.structs.replace(item, meta={**(item.meta or {}), SERVER: server}, **changes)


def _server_of(item: Resource | ResourceTemplate) -> str:
    return str((item.meta or {})[SERVER])


def _best_prefix(uri: str, templates: list[ResourceTemplate]) -> set[str]:
    """The servers whose template has the longest literal prefix in common with the URI."""
    best: tuple[int, set[str]] = (0, set())
    for template in templates:
        literal = template.uri_template.partition("{")[0]
        if not literal or not uri.startswith(literal) or len(literal) < best[0]:
            continue
        servers = best[1] if len(literal) == best[0] else set()
        best = len(literal), {*servers, _server_of(template)}
    return best[1]
