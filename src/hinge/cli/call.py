"""`hinge call`: call one tool with arguments from the command line and print what it answers."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from hinge.cli.connect import client_for
from hinge.cli.console import Console
from hinge.cli.values import missing, parse_arguments
from hinge.errors import StartError
from hinge.schema.elicitation import ElicitFormParams


def run(options: argparse.Namespace) -> int:
    """Print the result: text on stdout, progress and logs on stderr. Exit code 1 when the tool failed."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    console = Console(options)
    async with client_for(options, **console.client_options(options.target)) as client:
        tool = next((tool for tool in await client.list_tools() if tool.name == options.name), None)
        arguments = parse_arguments(options.arguments, tool.input_schema if tool is not None else {})
        if tool is not None and console.asks:
            arguments |= await ask_for_missing(console, tool.name, tool.description, tool.input_schema, arguments)
        limits: dict[str, Any] = {} if options.timeout is None else {"idle": options.timeout, "total": options.timeout}
        result = await client.call_tool(
            options.name, arguments, on_progress=console.progress, raise_on_error=False, **limits
        )
    console.result(result, options)
    return 1 if result.is_error else 0


async def ask_for_missing(
    console: Console, name: str, description: str | None, schema: dict[str, Any], given: dict[str, Any]
) -> dict[str, Any]:
    """The required arguments that nobody gave, from whoever sits there. Raises StartError when they don't answer."""
    names = missing(schema, given)
    properties = schema.get("properties")
    if not names or not isinstance(properties, dict) or not all(name in properties for name in names):
        return {}
    form = {**schema, "properties": {name: properties[name] for name in names}, "required": names}
    answer = await console.terminal.elicit(
        ElicitFormParams(message=description or "", requested_schema=form), f"The call of {name}"
    )
    if answer.content is None:
        raise StartError(f"{name!r} is not called: it needs {', '.join(names)}")
    return answer.content
