"""Code mode around one server: what its callers list, and the tools that they have in place of all."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qs

import msgspec

from gemel.code.catalogue import Catalogue, OfferedTool
from gemel.code.sandbox import ScriptLimits, check_sandbox
from gemel.code.scripts import run_for
from gemel.code.tools import MODES, OWN, ListMode, own_tools
from gemel.errors import DefinitionError, InvalidRequest, ToolError, shorten
from gemel.loops import PerLoop
from gemel.policies.request import NO_HINTS, hints_of
from gemel.schema.content import TextContent
from gemel.schema.tools import CallToolResult, ListToolsResult, Tool
from gemel.server.context import Context
from gemel.server.middleware.chain import CallNext
from gemel.server.middleware.result_limit import ResultLimit
from gemel.server.middleware.result_pages import Spill

#: The parameter of the URL by which a client chooses.
_PARAMETER: Final = "tools"
#: Lists of tools whose functions are remembered.
_CATALOGUES: Final = 16
ArgumentsT = TypeVar("ArgumentsT")


class ToolOrigin(NamedTuple):
    """Where a tool is: the server, its name there, and whether its hints are believed."""

    server: str
    name: str
    is_trusted: bool


Locate: TypeAlias = Callable[[Context[Any], str], Awaitable[ToolOrigin]]


class CodeSettings(Protocol):
    """What an operator says; see `CodeMode`."""

    mode: ListMode
    by_url: bool
    always: frozenset[str]
    limits: ScriptLimits
    output: int
    spill: Spill


class _ToolSearch(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `search_tools`."""

    query: str = ""
    names: list[str] = []


class _CodeArguments(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `run_code` and `query_code`."""

    code: str


class _ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `call_tool`."""

    name: str
    arguments: dict[str, Any] = {}


class CodeModeAround(ResultLimit):
    """Code mode in the middleware of one server. Its own results have a limit, and what is too long is kept in pages.

    Args:
        settings: What the operator says.
        locate: Finds a listed tool.
    """

    _keeper = "CodeMode"

    def __init__(self, settings: CodeSettings, locate: Locate) -> None:
        super().__init__(settings.output, spill=settings.spill)
        self._settings = settings
        self._locate = locate
        self._scripts = PerLoop(lambda: asyncio.Semaphore(settings.limits.scripts))
        self._catalogues: OrderedDict[bytes, Catalogue] = OrderedDict()

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Serve the request. Raises InvalidRequest if the URL names a mode that there isn't, whatever is requested."""
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
        raise InvalidRequest(f"The URL has {_PARAMETER}={shorten(','.join(asked))}: use one of {', '.join(MODES)}")

    # ---------------------------------------------------------------- what there is

    async def _offered(self, ctx: Context[Any]) -> tuple[Catalogue, list[Tool]]:
        """The tools of the caller, as functions and as they are listed."""
        tools = await ctx.list_tools()
        key = hashlib.sha256(msgspec.json.encode(tools)).digest()
        catalogue = self._catalogues.pop(key, None)
        if catalogue is None:
            offered = [await self._offer(ctx, tool) for tool in tools]
            catalogue = await asyncio.to_thread(Catalogue, offered)
        self._catalogues[key] = catalogue
        if len(self._catalogues) > _CATALOGUES:
            self._catalogues.popitem(last=False)
        return catalogue, tools

    async def _offer(self, ctx: Context[Any], tool: Tool) -> OfferedTool:
        server, name, is_trusted = await self._locate(ctx, tool.name)
        return OfferedTool(server, name, tool, hints_of(tool.annotations) if is_trusted else NO_HINTS)

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
            if name == "search_tools":
                search = _read(arguments, _ToolSearch)
                return _text((await self._offered(ctx))[0].answer(search.query, search.names))
            if name == "call_tool":
                return await self._call_tool(ctx, _read(arguments, _ToolCall))
            return _text(await self._run(ctx, _read(arguments, _CodeArguments).code, read_only=name == "query_code"))
        except (DefinitionError, ToolError) as exc:
            return CallToolResult(content=[TextContent(text=str(exc))], is_error=True)

    async def _call_tool(self, ctx: Context[Any], call: _ToolCall) -> CallToolResult:
        found = (await self._offered(ctx))[0].called(call.name)
        if len(found) != 1:
            what = f"{len(found)} tools have the name" if found else "There is no tool"
            raise ToolError(f"{what} {shorten(call.name)!r}: take a name from search_tools, as `module.function`")
        wires = found[0].function.wires
        arguments = {wires.get(name, name): value for name, value in call.arguments.items()}
        return await ctx.call_tool(found[0].offered.tool.name, arguments)

    async def _run(self, ctx: Context[Any], code: str, *, read_only: bool) -> str:
        check_sandbox()
        catalogue, _ = await self._offered(ctx)
        try:
            async with self._scripts.here():
                return await run_for(ctx, code, catalogue, self._settings.limits, read_only=read_only)
        except ToolError as exc:
            if read_only and "[unresolved-import]" in str(exc):
                raise ToolError(
                    f"{exc}\nOnly tools that change nothing can be imported here: use run_code for others"
                ) from None
            raise


def _read(arguments: object, kind: type[ArgumentsT]) -> ArgumentsT:
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as exc:
        raise ToolError(f"The arguments don't fit: {exc}") from None


def _text(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)])
