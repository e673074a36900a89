"""`hinge call`: call one tool with arguments from the command line and print what it answers."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from hinge.cli.connect import client_for
from hinge.cli.console import Console
from hinge.cli.values import parse_arguments
from hinge.errors import StartError
from hinge.schema.prompts import Prompt
from hinge.schema.tools import Tool


def run(options: argparse.Namespace) -> int:
    """Print the result: text on stdout, progress and logs on stderr. Exit code 1 when the tool failed."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    console = Console(options)
    async with client_for(options, **console.client_options(options.target)) as client:
        tool = next((tool for tool in await client.list_tools() if tool.name == options.name), None)
        arguments = parse_arguments(options.arguments, tool.input_schema if tool is not None else {})
        arguments = await completed(console, tool, arguments)
        limits: dict[str, Any] = {} if options.timeout is None else {"idle": options.timeout, "total": options.timeout}
        result = await client.call_tool(
            options.name, arguments, on_progress=console.progress, raise_on_error=False, **limits
        )
    console.result(result, options)
    return 1 if result.is_error else 0


async def completed(console: Console, of: Tool | Prompt | None, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments, and from whoever sits there those that are missing. Raises StartError when they don't answer."""
    if of is None or not console.asks:
        return given
    found = await console.terminal.arguments(of, given)
    if found is None:
        raise StartError(f"{of.name} is not asked for: it needs more arguments")
    return found
