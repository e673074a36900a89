"""`gemel call`: call one tool with arguments from the command line and print the result."""

from __future__ import annotations

import argparse
import difflib
from typing import Any

from gemel.cli.commands.tasks import print_result
from gemel.cli.connect import client_for, time_limits
from gemel.cli.console import Console, as_json
from gemel.cli.errors import HOW_TO_ANSWER, NO_ELICITATION
from gemel.cli.values import parse_arguments
from gemel.client.client import Client
from gemel.errors import PeerError, StartError, ToolCallError
from gemel.schema.prompts import Prompt
from gemel.schema.tools import Tool
from gemel.visible import escape_line


async def run(options: argparse.Namespace) -> int:
    """Print the result to stdout, progress and logs to stderr. The exit code is 1 if the tool failed."""
    if options.no_wait and not options.task:
        raise StartError("--no-wait needs --task")
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            tools = {tool.name: tool for tool in await client.list_tools()}
            tool = tools.get(options.name)
            arguments = parse_arguments(options.arguments, tool.input_schema if tool is not None else {})
            arguments = await complete_arguments(console, tool, arguments)
            limits = time_limits(options)
            options.calls_tool = True
            try:
                if options.task:
                    return await _call_as_task(console, client, arguments, options)
                result = await client.call_tool(options.name, arguments, on_progress=console.progress, **limits)
            except ToolCallError as exc:
                result = exc.result
            except PeerError as exc:
                if tool is not None or "Did you mean" in exc.message:
                    raise
                raise StartError(f"{exc.message}; {suggest_tool(options.name, list(tools))}") from exc
        console.result(result, options)
        if result.is_error and result.text.startswith(NO_ELICITATION):
            console.note(HOW_TO_ANSWER)
        return 1 if result.is_error else 0


async def _call_as_task(
    console: Console, client: Client, arguments: dict[str, Any], options: argparse.Namespace
) -> int:
    """Start a task and wait for it, unless nobody wants to. What is called plainly has its result already."""
    task = await client.call_tool(options.name, arguments, task=True)
    if task.id is not None and options.no_wait:
        console.print(as_json(task.info) if options.json else task.id)
        return 0
    if task.id is not None:
        console.note(f"task {escape_line(task.id)}")
    return await print_result(console, task, options)


def suggest_tool(name: str, tools: list[str]) -> str:
    """Suggest a tool for a name that the server does not have."""
    if near := difflib.get_close_matches(name[:128], tools, n=1, cutoff=0.75):  # a typing error, as servers suggest
        return f"did you mean {near[0]}?"
    more = ", …: gemel list shows all" if len(tools) > 10 else ""
    return f"there are {', '.join(map(escape_line, tools[:10]))}{more}" if tools else "there are no tools"


async def complete_arguments(console: Console, item: Tool | Prompt | None, given: dict[str, Any]) -> dict[str, Any]:
    """Ask the user for missing arguments. Raises StartError if they are not given."""
    if item is None or not console.asks:
        return given
    arguments = await console.terminal.complete_arguments(item, given)
    if arguments is None:
        raise StartError(f"{item.name} is not called: required arguments are missing")
    return arguments
