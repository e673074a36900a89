"""`CodeMode`: a server whose caller gets few tools, one of which runs scripts that call all others."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET

from gemel.code.catalogue import Catalogue, ModuleTool, OfferedTool
from gemel.code.sandbox import HostFunction, ScriptLimits, ScriptModule, check_sandbox, run_script
from gemel.code.tools import OWN, ListMode, own_tools
from gemel.errors import GemelError, InvalidRequest, ToolError, shorten
from gemel.loops import PerLoop
from gemel.options import Check, check_values, or_none, whole
from gemel.schema.content import TextContent
from gemel.schema.tools import WRAP_MARKERS, CallToolResult, ListToolsResult, Tool
from gemel.server.context import Context, served_call
from gemel.server.middleware.chain import CallNext
from gemel.server.middleware.result_limit import ResultLimit
from gemel.server.middleware.result_pages import Spill
from gemel.timeouts import PausableTimeout
from gemel.values.encoding import NotSerializable, plain_value

MODES: Final = tuple(OWN)
#: The parameter of the URL by which a client chooses.
_PARAMETER: Final = "tools"
_OPTIONS = {
    "mode": Check(lambda value: value in MODES, f"use one of {', '.join(MODES)}"),
    "by_url": Check(lambda value: isinstance(value, bool), "use True or False"),
    "always": Check(lambda value: not isinstance(value, str), "use a list of names of tools"),
    "trust_hints": Check(lambda value: not isinstance(value, str), "use a list of names of servers"),
    "limits": or_none(Check(lambda value: isinstance(value, ScriptLimits), "use ScriptLimits(…)")),
    "output": whole(2000),
    "spill": or_none(Check(lambda value: isinstance(value, Spill), "use Spill(…)")),
}
#: Lists of tools whose functions are remembered.
_CATALOGUES = 16
ArgumentsT = TypeVar("ArgumentsT")


class _Search(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `search_tools`."""

    query: str = ""
    names: list[str] = []


class _Code(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `run_code` and `query_code`."""

    code: str


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `call_tool`."""

    name: str
    arguments: dict[str, Any] = {}


class CodeMode(ResultLimit):
    """Middleware by which callers get a few tools in place of all: `Server.from_config("mcp.json", middleware=[CodeMode()])`.

    A caller's list has the tools of `always`, `search_tools`, which finds the others, and in the mode "code" `run_code`, which
    runs a Python script that calls them, and `query_code`, whose scripts can only call tools that read; in the mode "search"
    `call_tool`. Tools that are not listed can be called by name as before. Each call of a script is a call of its caller:
    visibility, scopes, all middleware, limits, questions to the user and cancellation are those of any other. In the stateless
    era a script runs from its start in each round; calls that ended aren't repeated.

    Results of scripts that are too long are kept in pages, as by `ResultLimit(…, spill=True)`.

    Args:
        mode: What a caller's list has: "code", "search", or "all" for every tool.
        by_url: Whether a client may choose another mode by its URL: `https://host/mcp?tools=search`. It changes what is
            listed, never what is allowed.
        always: Names of tools that are listed besides.
        trust_hints: The servers elsewhere whose `readOnlyHint` is believed, by the prefix that they are mounted with, which is
            their name in a configuration. Servers in this process are believed.
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
        super().__init__(output, spill=spill or Spill())
        self._mode: ListMode = mode
        self._by_url = by_url
        self._always = frozenset(always)
        self._trusted = frozenset(trust_hints)
        self._limits = limits or ScriptLimits()
        self._scripts = PerLoop(lambda: asyncio.Semaphore(self._limits.scripts))
        self._catalogues: OrderedDict[bytes, Catalogue] = OrderedDict()

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Serve the request.

        Args:
            ctx: The context of the request.
            call_next: The rest of the chain.

        Returns:
            The result.

        Raises:
            InvalidRequest: The URL names a mode that there isn't.
        """
        if ctx.depth:
            return await call_next(ctx)
        if ctx.method.startswith("resources/"):
            return await super().__call__(ctx, call_next)
        if ctx.method not in ("tools/list", "tools/call") or (mode := self._mode_for(ctx)) == "all":
            return await call_next(ctx)
        if ctx.method == "tools/list":
            return ListToolsResult(tools=await self._listed(ctx, mode))
        name = ctx.decoded_params.get("name")
        if name not in OWN[mode]:
            return await call_next(ctx)
        return await super().__call__(ctx, self._serve)

    def _mode_for(self, ctx: Context[Any]) -> ListMode:
        """The mode that the operator or the URL says."""
        if not self._by_url or ctx.http_scope is None:
            return self._mode
        asked = parse_qs(ctx.http_scope["query_string"].decode("latin-1"), keep_blank_values=True).get(_PARAMETER)
        if asked is None:
            return self._mode
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
            catalogue = await asyncio.to_thread(Catalogue, [self._offer(ctx, tool) for tool in tools])
        self._catalogues[key] = catalogue
        if len(self._catalogues) > _CATALOGUES:
            self._catalogues.popitem(last=False)
        return catalogue, tools

    def _offer(self, ctx: Context[Any], tool: Tool) -> OfferedTool:
        hint = tool.annotations is not None and tool.annotations.read_only_hint is True
        return OfferedTool("tools", tool.name, tool, hint)

    async def _listed(self, ctx: Context[Any], mode: ListMode) -> list[Tool]:
        """The list of a caller."""
        catalogue, tools = await self._offered(ctx)
        listed = [tool for tool in tools if tool.name in self._always]
        return [*listed, *own_tools(catalogue, mode)]

    # ---------------------------------------------------------------- the tools of this mode

    async def _serve(self, ctx: Context[Any]) -> CallToolResult:
        """Serve a call of a tool of this mode."""
        params = ctx.decoded_params
        name, arguments = params["name"], params.get("arguments") or {}
        try:
            if name == "search_tools":
                search = _read(arguments, _Search)
                return _text((await self._offered(ctx))[0].answer(search.query, search.names))
            if name == "call_tool":
                return await self._call_tool(ctx, _read(arguments, _Call))
            return _text(await self._run(ctx, _read(arguments, _Code).code, read_only=name == "query_code"))
        except ToolError as exc:
            return CallToolResult(content=[TextContent(text=str(exc))], is_error=True)

    async def _call_tool(self, ctx: Context[Any], call: _Call) -> CallToolResult:
        found = (await self._offered(ctx))[0].called(call.name)
        if len(found) != 1:
            what = f"{len(found)} tools have the name" if found else "There is no tool"
            raise ToolError(f"{what} {shorten(call.name)!r}: take a name from search_tools, as `module.function`")
        wires = found[0].function.wires
        arguments = {wires.get(name, name): value for name, value in call.arguments.items()}
        return await ctx.call_tool(found[0].offered.tool.name, arguments)

    async def _run(self, ctx: Context[Any], code: str, *, read_only: bool) -> str:
        """Run a script, and return what its caller reads."""
        check_sandbox()
        catalogue, _ = await self._offered(ctx)
        within = ctx.replace()
        calls = _ScriptCalls(within)
        modules = {
            name: ScriptModule({one.function.name: calls.function(one) for one in chosen}, module.stubs(chosen))
            for name, module in catalogue.modules.items()
            if (chosen := [one for one in module.tools if one.offered.read_only or not read_only])
        }
        async with self._scripts.here():
            result = await run_script(code, modules, self._limits, begun=partial(_pause_for_people, ctx, within))
        value = _as_text(result.value)
        return f"{result.printed.rstrip()}\n{value}".strip() if result.printed else value


def _pause_for_people(ctx: Context[Any], within: Context[Any], limit: asyncio.Timeout) -> None:
    """Let the time limit of a script stand still while one of its calls asks a person, with that of the whole call."""
    served_call(within).timeout = PausableTimeout(limit, served_call(ctx).timeout)


class _ScriptCalls:
    """The calls of one script."""

    def __init__(self, ctx: Context[Any]) -> None:
        self._ctx = ctx
        self._begun = 0

    def function(self, tool: ModuleTool) -> HostFunction:
        """A tool as a function that a script calls."""
        wires, name = tool.function.wires, tool.offered.tool.name

        async def call(**given: object) -> object:
            unknown = given.keys() - wires.keys()
            if unknown:
                raise TypeError(f"{tool.path} has no argument {sorted(unknown)[0]!r}")
            self._begun += 1
            await self._ctx.report_progress(self._begun, message=tool.path)
            try:
                arguments = {wires[one]: plain_value(value) for one, value in given.items()}
            except (NotSerializable, RecursionError) as exc:
                raise TypeError(f"{tool.path} can't be given these arguments: {shorten(str(exc))}") from None
            done = await self._ctx.step(call_tool, name, arguments)
            if "error" in done:
                raise RuntimeError(done["error"])
            return done["value"]

        async def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            try:
                return {"value": value_of(await self._ctx.call_tool(name, arguments), tool.offered.tool)}
            except GemelError as exc:
                return {"error": str(exc)}

        return call


def value_of(result: CallToolResult, tool: Tool) -> object:
    """Return a result as a script gets it: structured content, else its text, read if that is a JSON object or array.

    Content besides text becomes dictionaries as the protocol has them.

    Args:
        result: The result.
        tool: The tool, whose schema says whether structured content is wrapped.
    """
    structured = result.structured_content
    if structured is not UNSET:
        schema = tool.output_schema if isinstance(tool.output_schema, dict) else {}
        if isinstance(structured, dict) and any(schema.get(marker) is True for marker in WRAP_MARKERS):
            return structured.get("result")
        return structured
    if not all(isinstance(block, TextContent) for block in result.content):
        return msgspec.to_builtins(result.content)
    if result.text.lstrip()[:1] in ("{", "["):
        try:
            return msgspec.json.decode(result.text)
        except (msgspec.DecodeError, RecursionError):
            return result.text
    return result.text


def _as_text(value: object) -> str:
    """The value of a script as text: text as it is, otherwise JSON; nothing for None."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return msgspec.json.encode(value, enc_hook=_other).decode()
    except (TypeError, ValueError, RecursionError) as exc:
        reason = "it is nested too deep" if isinstance(exc, RecursionError) else str(exc)
        raise ToolError(f"The script ended, but its value can't be sent as JSON: {reason}") from None


def _other(value: object) -> object:
    """What JSON has no form for: an object of a class of the script as its attributes, all else as text."""
    attributes = getattr(value, "attributes", None)
    return attributes if isinstance(attributes, Mapping) else str(value)


def _read(arguments: object, kind: type[ArgumentsT]) -> ArgumentsT:
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as exc:
        raise ToolError(f"The arguments don't fit: {exc}") from None


def _text(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)])
