"""Running a script of a caller: its functions are calls of this caller, its value becomes text."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET

from gemel.code.catalogue import Catalogue, ModuleTool
from gemel.code.sandbox import HostFunction, ScriptPlaces, run_script
from gemel.errors import GemelError
from gemel.schema.content import TextContent
from gemel.schema.tools import CallToolResult, Tool, wraps_result
from gemel.server.context import Context, served_call
from gemel.timeouts import PausableTimeout


async def run_for(ctx: Context[Any], code: str, catalogue: Catalogue, places: ScriptPlaces, *, read_only: bool) -> str:
    """Run a script for a caller, and return what it reads: what was printed, and the value.

    Args:
        ctx: The context of the caller.
        code: The script.
        catalogue: The tools of the caller.
        places: The processes that there are, with the bounds of scripts.
        read_only: Whether only tools that read can be imported.

    Raises:
        ToolError: The script is wrong, failed or went beyond a limit; the text is for the model that wrote it.
        GemelError: What earlier rounds of the call have done can't be read, or there is no place for the script.
    """
    within, numbers = ctx.replace(), count(1)

    def pause_for_people(limit: asyncio.Timeout) -> None:
        served_call(within).timeout = PausableTimeout(limit, served_call(ctx).timeout)

    def function(tool: ModuleTool) -> HostFunction:
        async def call(**given: object) -> object:
            await within.report_progress(next(numbers), message=tool.path)
            done = await within.step(call_tool, tool.offered.tool.name, tool.function.arguments(given))
            if "error" in done:
                raise RuntimeError(done["error"])
            return done["value"]

        async def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            try:
                return {"value": value_of(await within.call_tool(name, arguments), tool.offered.tool)}
            except GemelError as exc:
                return {"error": str(exc)}

        return call

    result = await run_script(
        code,
        catalogue.script_modules(function, read_only=read_only),
        places,
        advise=partial(catalogue.advice, read_only=read_only),
        begun=pause_for_people,
        at_work=served_call(ctx).input_requests.at_work,
    )
    text = "\n".join(part for part in (result.printed.rstrip(), _as_text(result.value)) if part)
    value = "None" if result.value is None else "an empty text"
    return text or f"The script has run. Nothing was printed, and the value of its last line is {value}."


def value_of(result: CallToolResult, tool: Tool) -> object:
    """Return a result as a script gets it: structured content, else its text, read if that is a JSON object or array.

    Content besides text becomes dictionaries as the protocol has them.

    Args:
        result: The result.
        tool: The tool, whose schema says whether structured content is wrapped.
    """
    structured = result.structured_content
    if structured is not UNSET:
        is_inner = isinstance(structured, dict) and wraps_result(tool.output_schema)
        return structured.get("result") if is_inner else structured
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
