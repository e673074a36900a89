"""`CodeMode`: a server whose caller gets few tools, one of which runs scripts that call all others."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeAlias, TypeVar, Unpack
from urllib.parse import parse_qs

import msgspec

from gemel.client.client import Client
from gemel.client.group.group import ClientGroup, Listing
from gemel.client.group.names import prefixes_of
from gemel.client.methods import ClientMethods
from gemel.client.options import ClientOptions
from gemel.code.catalogue import Catalogue, OfferedTool
from gemel.code.sandbox import ScriptLimits, ScriptPlaces, check_sandbox
from gemel.code.scripts import run_for
from gemel.code.tools import MODES, OWN, CodeCall, ListMode, ToolCall, ToolSearch, own_tools
from gemel.errors import (
    CallError,
    DefinitionError,
    MethodNotFound,
    Outcome,
    PeerError,
    ToolError,
    WrongUrl,
    relayed,
    shorten,
)
from gemel.loops import PerLoop
from gemel.options import Check, check_values, or_none, whole
from gemel.policies.conditions import Glob
from gemel.policies.request import NO_HINTS, hints_of
from gemel.proxy.translation import error_for
from gemel.schema.content import TextContent
from gemel.schema.methods import LISTS
from gemel.schema.tools import CallToolResult, ListToolsResult, Tool
from gemel.server.context import Context
from gemel.server.dispatch import CallNext
from gemel.server.middleware.result_limit import ResultLimit
from gemel.server.middleware.result_pages import Spill
from gemel.server.server import Server

#: The parameter of the URL by which a client chooses.
_PARAMETER: Final = "tools"
#: The lists by their methods.
_LISTS: Final = {one.method: one for one in LISTS.values()}
#: What a client in code mode passes on to the client or client group that it is over.
_PASSED_ON: Final[Mapping[str, Callable[[ClientMethods | ClientGroup, Mapping[str, Any]], Awaitable[Any]]]] = {
    "tools/list": lambda of, params: of.list_tools(),
    "tools/call": lambda of, params: of.call_tool(params["name"], params.get("arguments"), raise_on_error=False),
    "prompts/list": lambda of, params: of.list_prompts(),
    "prompts/get": lambda of, params: of.get_prompt(params["name"], params.get("arguments")),
    "resources/list": lambda of, params: of.list_resources(),
    "resources/read": lambda of, params: of.read_resource(params["uri"]),
    "resources/templates/list": lambda of, params: of.list_resource_templates(),
}
#: Lists of tools whose functions are remembered.
_CATALOGUES: Final = 16
ArgumentsT = TypeVar("ArgumentsT", bound=msgspec.Struct)
Locate: TypeAlias = Callable[[Context[Any], Tool], Awaitable[OfferedTool]]

_OPTIONS = {
    "mode": Check(lambda value: value in MODES, f"use one of {', '.join(MODES)}"),
    "by_url": Check(lambda value: isinstance(value, bool), "use True or False"),
    "always": Check(lambda value: not isinstance(value, str), "use a list of names of tools"),
    "trust_hints": Check(lambda value: not isinstance(value, str), "use a list of names of servers"),
    "limits": or_none(Check(lambda value: isinstance(value, ScriptLimits), "use ScriptLimits(…)")),
    "output": whole(2000),
    "spill": or_none(Check(lambda value: isinstance(value, Spill), "use Spill(…)")),
}


class CodeMode:
    """Middleware by which callers get a few tools in place of all: `Server.from_config("mcp.json", middleware=[CodeMode()])`.

    A caller's list has the tools of `always`, `search_tools`, which finds the others, and in the mode "code" `run_code`, which
    runs a Python script that calls them, and `query_code`, whose scripts can only call tools that read; in the mode "search"
    `call_tool`. Tools that are not listed can be called by name as before. Each call of a script is a call of its caller:
    visibility, scopes, all middleware, limits, questions to the user and cancellation are those of any other. In the stateless
    era a script runs from its start in each round; calls that ended aren't repeated.

    Make it the first middleware: policies and receipts after it see the calls of scripts, and not the scripts. Results of
    scripts that are too long are kept in pages, as by `ResultLimit(…, spill=True)`.

    Args:
        mode: What a caller's list has: "code", "search", or "all" for every tool.
        by_url: Whether a client may choose another mode by its URL: `https://host/mcp?tools=search`. It changes what is
            listed, never what is allowed.
        always: Names of tools that are listed besides.
        trust_hints: The servers elsewhere whose `readOnlyHint` is believed, as globs: prefixes of mounts, which are the names
            in a configuration, and names in a client group. Tools that are registered in this process are always believed.
        limits: Bounds of scripts; `ScriptLimits()` by default.
        output: The bytes of a script's result, 2000 or more.
        spill: How long results that are too long are kept, and how many.

    Raises:
        DefinitionError: A value is out of range.
    """

    def __init__(
        self,
        mode: ListMode = "code",
        *,
        by_url: bool = True,
        always: Collection[str] = (),
        trust_hints: Collection[str] = (),
        limits: ScriptLimits | None = None,
        output: int = 20_000,
        spill: Spill | None = None,
    ) -> None:
        check_values({name: value for name, value in locals().items() if name in _OPTIONS}, _OPTIONS)
        self.mode: ListMode = mode
        self.by_url = by_url
        self.always = frozenset(always)
        self.limits = limits or ScriptLimits()
        self.output = output
        self.spill = spill or Spill()
        self._trusted = Glob(list(trust_hints))

    def _offered(self, server: str, name: str, tool: Tool, *, is_own: bool = False) -> OfferedTool:
        """Return a tool of a server, by its prefix or name, whose hints count if that is this process or is trusted."""
        is_trusted = is_own or self._trusted.matches(server)
        return OfferedTool(server, name, tool, hints_of(tool.annotations) if is_trusted else NO_HINTS)

    def placed_in(self, owner: Any, name: str | None = None, /) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return what runs around one server, which calls this.

        Args:
            owner: The server.
            name: Not used.

        Returns:
            The middleware.

        Raises:
            DefinitionError: It is a client.
        """
        if isinstance(owner, ClientMethods):
            raise DefinitionError("CodeMode is not a middleware of a client: use CodeMode().client(client)")

        async def locate(ctx: Context[Any], tool: Tool) -> OfferedTool:
            found = await owner.catalog.locate_tool(ctx, tool.name, behind=around)
            server = found.server or owner.name
            return self._offered(server, tool.name.removeprefix(f"{server}_"), tool, is_own=found.tool is not None)

        around = CodeModeAround(self, locate, lambda: owner.catalog.missing)
        return around

    def client(self, of: ClientMethods | ClientGroup, **options: Unpack[ClientOptions]) -> Client:
        """Return a client with these few tools over the tools of another client or of a client group.

        Whatever takes a client takes it, such as the adapters for agents. Its resources, resource templates and prompts are
        those of `of`. Questions of the servers go to the callbacks of `of`.

        Args:
            of: A connected client or client group.
            **options: Those of the client that is returned; see `ClientOptions`.

        Returns:
            A client to be entered: `async with group, CodeMode().client(group) as client: …`.

        Raises:
            DefinitionError: An option is not allowed, or `of` is not an async client or client group.
        """
        if not isinstance(of, ClientMethods | ClientGroup):
            raise DefinitionError(
                f"of={type(of).__module__}.{type(of).__name__} is not possible: give a gemel.Client or gemel.ClientGroup; without "
                'async write gemel.sync.Client(Server.from_config("mcp.json", middleware=[CodeMode()]))'
            )

        prefixes = prefixes_of(of.servers) if isinstance(of, ClientGroup) else {}
        missing: dict[str, str] = {}

        async def locate(ctx: Context[Any], tool: Tool) -> OfferedTool:
            if isinstance(of, ClientGroup):
                server, name = of.origin(tool.name)
                return self._offered(prefixes[server], name, tool)
            info = of.discovery.server_info
            return self._offered(info.name if info is not None else "server", tool.name, tool)

        async def forward(ctx: Context[Any], call_next: CallNext) -> Any:
            if ctx.method not in _PASSED_ON:
                return await call_next(ctx)
            params = ctx.decoded_params
            try:
                result: Any = await _PASSED_ON[ctx.method](of, params)
            except CallError as exc:
                if ctx.method == "tools/call" and exc.outcome is Outcome.ANSWERED:
                    raise ToolError(str(exc)) from exc
                if not isinstance(exc, PeerError):
                    raise relayed(str(exc), exc.outcome) from exc
                if exc.code == MethodNotFound.code and ctx.method in _LISTS:
                    return await call_next(ctx)  # the server has none
                raise error_for(exc, "tools", ctx.protocol_version, params.get("uri")) from exc
            if ctx.method not in _LISTS:
                return result
            if ctx.method == "tools/list" and isinstance(result, Listing):
                missing.clear()
                missing.update({prefixes[server]: reason for server, reason in result.missing.items()})
            members: dict[str, Any] = {_LISTS[ctx.method].field: list(result)}
            return _LISTS[ctx.method].result(**members)

        return Client(Server("tools", middleware=[CodeModeAround(self, locate, lambda: missing), forward]), **options)

    async def __call__(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Raise DefinitionError: what runs is made for the server that this is added to.

        Args:
            ctx: The context of a message.
            call_next: The rest of the chain.
        """
        raise DefinitionError("CodeMode has to be added to a server: Server(…, middleware=[CodeMode()])")


class CodeModeAround(ResultLimit):
    """Code mode in the middleware of one server. Its own results have a limit, and what is too long is kept in pages.

    Args:
        settings: What the operator says.
        locate: Finds a listed tool.
        missing: Returns the servers whose tools the last list left out because they failed: the reason by prefix or name.
    """

    _keeper = "CodeMode"

    def __init__(self, settings: CodeMode, locate: Locate, missing: Callable[[], Mapping[str, str]] = dict) -> None:
        super().__init__(settings.output, spill=settings.spill)
        self._settings = settings
        self._locate = locate
        self._missing = missing
        self._places = PerLoop(lambda: ScriptPlaces(settings.limits))
        self._catalogues: OrderedDict[bytes, Catalogue] = OrderedDict()

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Serve the request. Raises WrongUrl if the URL names a mode that there isn't, whatever is requested."""
        if ctx.depth:
            return await call_next(ctx)
        mode = self._mode_for(ctx)
        if ctx.method.startswith("resources/"):
            return await super().__call__(ctx, call_next)
        if ctx.method not in ("tools/list", "tools/call") or mode == "all":
            return await call_next(ctx)
        if ctx.method == "tools/list":
            return ListToolsResult(tools=await self._listed(ctx, mode))
        name = ctx.decoded_params.get("name")
        if name not in OWN[mode]:
            return await call_next(ctx)
        return await super().__call__(ctx, self._serve)

    def _mode_for(self, ctx: Context[Any]) -> ListMode:
        """The mode that the operator or the URL says."""
        if not self._settings.by_url or ctx.http_scope is None:
            return self._settings.mode
        asked = parse_qs(ctx.http_scope["query_string"].decode("latin-1"), keep_blank_values=True).get(_PARAMETER)
        if asked is None:
            return self._settings.mode
        for mode in MODES:
            if asked == [mode]:
                return mode
        raise WrongUrl(f"The URL has {_PARAMETER}={shorten(','.join(asked))}: use one of {', '.join(MODES)}")

    # ---------------------------------------------------------------- what there is

    async def _offered(self, ctx: Context[Any]) -> tuple[Catalogue, list[Tool]]:
        """The tools of the caller, as functions and as they are listed."""
        tools = await ctx.list_tools()
        missing = dict(self._missing())
        key = hashlib.sha256(msgspec.json.encode([tools, missing])).digest()
        catalogue = self._catalogues.pop(key, None)
        if catalogue is None:
            offered = [await self._locate(ctx, tool) for tool in tools]
            catalogue = await asyncio.to_thread(Catalogue, offered, missing)
        self._catalogues[key] = catalogue
        if len(self._catalogues) > _CATALOGUES:
            self._catalogues.popitem(last=False)
        return catalogue, tools

    async def _listed(self, ctx: Context[Any], mode: ListMode) -> list[Tool]:
        """The list of a caller."""
        catalogue, tools = await self._offered(ctx)
        listed = [tool for tool in tools if tool.name in self._settings.always]
        return [*listed, *own_tools(catalogue, mode)]

    # ---------------------------------------------------------------- the tools of this mode

    async def _serve(self, ctx: Context[Any]) -> CallToolResult:
        """Serve a call of a tool of this mode."""
        params = ctx.decoded_params
        name, arguments = params["name"], params.get("arguments") or {}
        try:
            catalogue, _ = await self._offered(ctx)
            if name == "search_tools":
                search = _read(arguments, ToolSearch)
                return _text(catalogue.answer(search.query, search.names))
            if name == "call_tool":
                call = _read(arguments, ToolCall)
                tool = catalogue.tool(call.name)
                return await ctx.call_tool(tool.offered.tool.name, tool.function.named(call.arguments))
            code = _read(arguments, CodeCall).code
            check_sandbox()
            return _text(await run_for(ctx, code, catalogue, self._places.here(), read_only=name == "query_code"))
        except (DefinitionError, ToolError) as exc:
            return CallToolResult(content=[TextContent(text=str(exc))], is_error=True)


def _read(arguments: object, kind: type[ArgumentsT]) -> ArgumentsT:
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as exc:
        names = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise ToolError(f"The arguments don't fit: {exc}. They are: {names}") from None


def _text(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)])
