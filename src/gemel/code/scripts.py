"""Running a script of a caller: its functions are calls of this caller, its value becomes text."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from gemel.code.catalogue import Catalogue, ModuleTool
from gemel.code.sandbox import HostFunction, ScriptLimits, ScriptModule, run_script
from gemel.errors import GemelError
from gemel.schema.content import TextContent
from gemel.schema.tools import WRAP_MARKERS, CallToolResult, Tool
from gemel.server.context import Context, served_call
from gemel.timeouts import PausableTimeout


async def run_for(ctx: Context[Any], code: str, catalogue: Catalogue, limits: ScriptLimits, *, read_only: bool) -> str:
    """Run a script for a caller, and return what it reads: what was printed, and the value.

    Args:
        ctx: The context of the caller.
        code: The script.
        catalogue: The tools of the caller.
        limits: The bounds of the script.
        read_only: Whether only tools that read can be imported.

    Raises:
        ToolError: The script is wrong, failed or went beyond a limit; the text is for the model that wrote it.
        GemelError: What earlier rounds of the call have done can't be read.
    """
    within = ctx.replace()
    calls = _ScriptCalls(within)
    chosen = {name: module.chosen(read_only=read_only) for name, module in catalogue.modules.items()}
    modules = {
        name: ScriptModule(
            {one.function.name: calls.function(one) for one in tools}, catalogue.modules[name].source(tools)
        )
        for name, tools in chosen.items()
        if tools
    }
    at_work = served_call(ctx).input_requests.at_work
    result = await run_script(code, modules, limits, begun=partial(_pause_for_people, ctx, within), at_work=at_work)
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
            arguments = {wires[one]: value for one, value in given.items()}
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
    if not result.content:
        return None
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
    return msgspec.json.encode(value).decode()
