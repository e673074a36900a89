"""Several servers used as one: merged lists, and each call sent to the server that it is for.

A server that fails does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar, Unpack

import msgspec

from gemel.backends.patience import Outage
from gemel.client.cache import CacheMode
from gemel.client.call_options import CallOptions, RequestOptions
from gemel.client.client import Client
from gemel.client.group.config import ServerEntry, Source, read_config
from gemel.client.group.member import Health, Member
from gemel.client.group.names import NameOrigin, Prefixing, merge_names, name_for_models, prefixes_of
from gemel.client.methods import ResultT
from gemel.client.options import NAMED, ClientGroupOptions
from gemel.client.targets import fitting_options
from gemel.errors import CallError, ConnectFailed, DefinitionError, NotSent, StartError, shorten
from gemel.options import Check, accepts, check_option, resolve
from gemel.protocol.deviations import Deviation
from gemel.protocol.middleware import NamedMiddleware, PlacedMiddleware
from gemel.schema.content import ResourceLink, TextContent
from gemel.schema.methods import LISTS, ListName
from gemel.schema.prompts import GetPromptResult, Prompt
from gemel.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from gemel.schema.tools import CallToolResult, DataT, Tool
from gemel.timeouts import TimeLeft

logger = logging.getLogger("gemel")

#: The key in the `_meta` of everything listed that names the server it is from.
SERVER = "gemel/server"

ItemT = TypeVar("ItemT", Tool, Prompt, Resource, ResourceTemplate)
ListedT = TypeVar("ListedT")
NamedT = TypeVar("NamedT", Tool, Prompt, Resource, ResourceTemplate, ResourceLink)
Kind = Literal["tools", "prompts"]
#: The options that are not those of its clients.
_OWN = ("concurrency", "prefix", "model_names", "strict", "list_wait", "on_change")
_TARGETS = Check(
    lambda targets: isinstance(targets, Mapping) and all(isinstance(name, str) for name in targets),
    'write ClientGroup({"name": target, …}), or ClientGroup.from_config(…) for a configuration',
)


class Listing(list[ListedT], Generic[ListedT]):
    """What several servers list: a list that tells whose part is missing.

    Attributes:
        missing: The servers that could not be asked, and why, by name.
    """

    def __init__(self, items: Iterable[ListedT], missing: Mapping[str, str]) -> None:
        super().__init__(items)
        self.missing = dict(missing)


class ClientGroup:
    """Several servers: `async with ClientGroup({"files": "files.py", "web": "https://host/mcp"}) as group`.

    All servers are connected at the same time, and the group can be used as soon as the first one is there. One that can't be
    reached is tried again in the background, with backoff; `servers[name]` has its `state` and `reason`. Names of tools and
    prompts that several servers have are written `server_name`. Names of tools that models don't take are replaced by short
    ones. The `_meta` of everything listed holds the name of the server under "gemel/server".

    Args:
        targets: What each server is reached by: what a Client takes, or a Client, which keeps its own options and callbacks.
            `from_config` reads them from a file.
        **options: See `ClientGroupOptions`. Options of a transport, such as `auth`, are for the servers that have this transport.
            Each callback gets the name of the server as an additional last argument: `on_elicit(params, server)`,
            `on_change(change, server)`. `on_change` is also called, with `ChangesLost`, for a server that was reached late or
            again.

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
        check_option("targets", targets, _TARGETS)
        settings = resolve(ClientGroupOptions, options, "ClientGroup")
        of_clients = {name: value for name, value in options.items() if name not in _OWN}
        self.servers: dict[str, Member] = {}
        for name, target in targets.items():
            client, problem = _client(name, target, of_clients)
            if client is not None and client is not target:
                client.name_in_group = name
            self.servers[name] = Member(
                name,
                client,
                concurrency=settings["concurrency"],
                on_change=settings["on_change"],
                problem=problem,
            )
        self._strict: bool = settings["strict"]
        self._prefixing: Prefixing = settings["prefix"]
        self._prefixes = prefixes_of(self.servers)
        self._model_names: bool = settings["model_names"]
        self._list_wait: float = settings["list_wait"]
        self._connected_at = 0.0
        #: The names that each server listed last; one that is lost for a while keeps its own.
        self._listed: dict[Kind, dict[str, list[str]]] = {"tools": {}, "prompts": {}}
        #: The lists that servers fail to give.
        self._outages: dict[tuple[str, ListName], Outage] = {}
        #: The servers that were not in the last listing, and why.
        self._missing_lists: dict[Kind, dict[str, str]] = {"tools": {}, "prompts": {}}
        #: The origins of the merged names as they are listed, before they were changed for models, and with prefixes throughout.
        self._origins: dict[Kind, dict[str, NameOrigin]] = {"tools": {}, "prompts": {}}
        self._unchanged: dict[Kind, dict[str, NameOrigin]] = {"tools": {}, "prompts": {}}
        self._prefixed: dict[Kind, dict[str, NameOrigin]] = {"tools": {}, "prompts": {}}

    @classmethod
    def from_config(cls, source: Source, **options: Unpack[ClientGroupOptions]) -> Self:
        """Make a group of the servers of a configuration.

        An entry with a mistake is a failed server; all others work.

        Args:
            source: The path of a JSON file with `mcpServers`, or its content.
            **options: Options of the group. What an entry has itself takes their place; headers and environment variables are
                added to those of the entry.

        Returns:
            The group, not connected yet.

        Raises:
            StartError: The file can't be read, or has no servers.
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
        """Connect to all servers. Returns when the first one is ready, or each has failed once; of a `strict` group, all of them.

        A server that fails is logged, and is in `failures`.

        Raises:
            ConnectFailed: The group is `strict`, and a server failed.
        """
        self._connected_at = time.monotonic()
        for member in self.servers.values():
            member.start()
        try:
            await self._settled(lambda: not self._strict and any(one.available for one in self.servers.values()))
            failed = [one for one in self.servers.values() if one.state == "failed"]
            if failed and self._strict:
                raise ConnectFailed("; ".join(f"Server {one.name!r} failed: {one.reason}" for one in failed))
        except BaseException:
            await self.close()
            raise

    async def ready(self) -> None:
        """Wait until each server is ready or has failed once. Those that failed are in `failures`.

        Without this, a group can be used as soon as its first server is there.
        """
        await self._settled()

    async def _settled(self, is_enough: Callable[[], bool] = lambda: False, timeout: float | None = None) -> None:
        """Wait until no server is connecting for the first time, it is enough, or the time is over."""
        end = None if timeout is None else time.monotonic() + timeout
        waits = {asyncio.ensure_future(one.settled()) for one in self.servers.values() if one.is_connecting}
        pending = waits
        try:
            while pending and not is_enough():
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return
                _, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

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

    @property
    def failures(self) -> dict[str, str]:
        """The servers that could not be reached, were lost, or whose entry has a mistake, and why, by name."""
        return {name: one.reason for name, one in self.servers.items() if one.state in ("failed", "lost")}

    @property
    def warnings(self) -> dict[str, list[Deviation]]:
        """How servers deviated from the specification and were understood all the same, by name; see `Client.warnings`."""
        reports = {name: one.warnings for name, one in self.servers.items()}
        return {name: deviations for name, deviations in reports.items() if deviations}

    # ---------------------------------------------------------------- lists

    async def list_tools(self, *, cache: CacheMode = "use") -> Listing[Tool]:
        """List the tools of all available servers, with merged names.

        Servers that are connecting are waited for until `list_wait` seconds after `connect`; the other listings do the same.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The tools, in the order of the servers. `missing` has those that fail or are not there yet.
        """
        return self._renamed("tools", *await self._gather("tools", lambda client: client.list_tools(cache=cache)))

    async def list_prompts(self, *, cache: CacheMode = "use") -> Listing[Prompt]:
        """List the prompts of all available servers, with merged names.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The prompts, in the order of the servers. `missing` has those that fail or are not there yet.
        """
        return self._renamed("prompts", *await self._gather("prompts", lambda client: client.list_prompts(cache=cache)))

    async def list_resources(self, *, cache: CacheMode = "use") -> Listing[Resource]:
        """List the resources of all available servers. A URI that several servers have is listed once for each.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The resources, in the order of the servers. `missing` has those that fail or are not there yet.
        """
        lists, missing = await self._gather("resources", lambda client: client.list_resources(cache=cache))
        return Listing((_of_server(server, item) for server, items in lists.items() for item in items), missing)

    async def list_resource_templates(self, *, cache: CacheMode = "use") -> Listing[ResourceTemplate]:
        """List the resource templates of all available servers.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The resource templates, in the order of the servers. `missing` has those that fail or are not there yet.
        """
        lists, missing = await self._gather("templates", lambda client: client.list_resource_templates(cache=cache))
        return Listing((_of_server(server, item) for server, items in lists.items() for item in items), missing)

    async def _gather(
        self, name: ListName, list_items: Callable[[Client], Awaitable[list[ItemT]]]
    ) -> tuple[dict[str, list[ItemT]], dict[str, str]]:
        """The lists of the servers that are there, and why those of others are missing."""
        feature = LISTS[name].feature
        missing: dict[str, str] = {}

        async def fetch(member: Member) -> list[ItemT]:
            what = f"Server {member.name!r}: its {name} are"
            outage = self._outages.setdefault((member.name, name), Outage(f"{what} not listed", f"{what} listed again"))
            try:
                async with member.turn() as client:
                    offered = getattr(client.server_capabilities, feature) is not None
                    items = await list_items(client) if offered else []
            except CallError as exc:
                outage.failed(exc)
                missing[member.name] = str(exc)
                return []
            outage.ended()
            return items

        await self._settled(timeout=self._connected_at + self._list_wait - time.monotonic())
        for member in self.servers.values():
            if member.is_connecting:
                level = logging.DEBUG if member.is_late else logging.WARNING
                logger.log(level, "Server %r: its %s are not listed: %s", member.name, name, member.unsettled)
                missing[member.name] = member.unsettled
                member.is_late = True
            elif not member.available and member.state != "disabled":
                missing[member.name] = member.reason
        members = [member for member in self.servers.values() if member.available]
        lists = await asyncio.gather(*(fetch(member) for member in members))
        found = {member.name: items for member, items in zip(members, lists, strict=True) if member.name not in missing}
        return found, {name: missing[name] for name in self.servers if name in missing}

    def _renamed(self, kind: Kind, lists: dict[str, list[ItemT]], missing: dict[str, str]) -> Listing[ItemT]:
        listed = {**self._listed[kind], **{server: [item.name for item in items] for server, items in lists.items()}}
        self._listed[kind] = {server: listed[server] for server in self.servers if server in listed}
        self._missing_lists[kind] = missing
        fit = name_for_models if self._model_names and kind == "tools" else str  # models don't see names of prompts
        self._origins[kind] = self._merge(kind, self._prefixing, fit)
        self._unchanged[kind] = self._merge(kind, self._prefixing, str)
        self._prefixed[kind] = self._merge(kind, "always", fit)
        items_of = {server: {item.name: item for item in items} for server, items in lists.items()}
        renamed = (
            _of_server(origin.server, items_of[origin.server][origin.name], name=merged)
            for merged, origin in self._origins[kind].items()
            if origin.server in items_of
        )
        return Listing(renamed, missing)

    def _merge(self, kind: Kind, prefixing: Prefixing, fit: Callable[[str], str]) -> dict[str, NameOrigin]:
        return merge_names(self._listed[kind], prefixing, prefixes=self._prefixes, fit=fit)

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
            name: The merged name, also with the prefix of the server where the list has none, or as it was before it was
                changed for models; or with `server` the name that the server uses.
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
        async with self._member(origin.server).turn(clock) as client:
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
            name: The merged name, also with the prefix of the server where the list has none; or with `server` the name that
                the server uses.
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
        async with self._member(origin.server).turn(clock) as client:
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
        async with self._member(server).turn(clock) as client:
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
        async with self._member(server).turn(clock) as client:
            return await client.request(method, params, result=result, **clock.limited(options))

    def origin(self, name: str, kind: Kind = "tools") -> NameOrigin:
        """Find the server that a merged name belongs to.

        Args:
            name: The merged name: as it was listed, with the prefix of the server, or as it was before it was changed for models.
            kind: "tools" or "prompts".

        Returns:
            The name of the server, and the name that it uses.

        Raises:
            NotSent: The name was not listed.
        """
        origin = self._origin(kind, name)
        if origin is None:
            raise NotSent(self._missing(kind, name))
        return origin

    def _origin(self, kind: Kind, name: str) -> NameOrigin | None:
        named = self._origins[kind].get(name) or self._unchanged[kind].get(name)
        return named or self._prefixed[kind].get(name)

    def _member(self, server: str) -> Member:
        if server not in self.servers:
            raise NotSent(f"There is no server {server!r}: there are {', '.join(map(repr, self.servers)) or 'none'}")
        return self.servers[server]

    async def _find(self, kind: Kind, name: str, server: str | None) -> NameOrigin:
        """The origin of a name; names keep their meaning until the next list."""
        if server is not None:
            return NameOrigin(server, name)
        if self._origin(kind, name) is None:
            await (self.list_tools(cache="refresh") if kind == "tools" else self.list_prompts(cache="refresh"))
        return self.origin(name, kind)

    def _missing(self, kind: Kind, name: str) -> str:
        origins = self._origins[kind]
        several = [merged for merged, origin in origins.items() if origin.name == name]
        if several:
            whose = "Several servers have" if len(several) > 1 else "A server has"
            return f"{whose} {name!r}: ask for {' or '.join(map(repr, several))}"
        away = {one.name: one.reason for one in self.servers.values() if not one.available} | self._missing_lists[kind]
        for server, reason in away.items():
            if name.startswith(f"{self._prefixes[server]}_"):
                return f"Server {server!r}, which may have {kind[:-1]} {shorten(name)!r}, is not available: {reason}"
        import difflib

        close = difflib.get_close_matches(name, origins, 3, 0.75)
        reasons = [f"{server!r} ({reason})" for server, reason in away.items()]
        unseen = f"; not asked: {', '.join(reasons)}" if away else ""
        meant = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        return f"No server has {kind[:-1]} {shorten(name)!r}{unseen}{meant}"

    async def _owner(self, uri: str) -> str:
        listed = {_server_of(item) for item in await self.list_resources() if item.uri == uri}
        if not listed:
            listed = _best_prefix(uri, await self.list_resource_templates())
        if len(listed) == 1:
            return listed.pop()
        if listed:
            raise NotSent(f"Several servers have {shorten(uri)!r}: say server=…, one of {', '.join(sorted(listed))}")
        raise NotSent(f"No server lists {shorten(uri)!r} or has a template for it: say server=…")


def _client(name: str, target: object, options: Mapping[str, Any]) -> tuple[Client | None, str]:
    """The client of one server, whose callbacks get its name; none for a disabled one, or one whose entry has a problem."""
    if isinstance(target, Client):
        if options:
            unused = ", ".join(options)
            logger.warning("Server %r of the group is a Client, which keeps its own options: give it %s", name, unused)
        return target, ""
    bound = {key: _named(value, name) if key in NAMED else value for key, value in options.items()}
    if "middleware" in bound:
        bound["middleware"] = [
            NamedMiddleware(one, name) if isinstance(one, PlacedMiddleware) else one for one in bound["middleware"]
        ]
    if not isinstance(target, ServerEntry):
        return Client(target, **fitting_options(target, bound)), ""
    if target.disabled:
        return None, ""
    try:
        address, more = target.reach(bound)
        return Client(address, **more), ""
    except (DefinitionError, StartError) as exc:
        return None, str(exc)


def _named(callback: object, server: str) -> Any:
    """The callback with the server's name as its last argument."""
    if not callable(callback):
        return callback
    return lambda *arguments: callback(*arguments, server)


def _of_server(server: str, item: NamedT, **changes: object) -> NamedT:
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
