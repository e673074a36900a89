"""`hinge call`: call one tool with arguments from the command line and print what it answers."""

from __future__ import annotations

import argparse
import asyncio
import difflib
from typing import Any

from hinge.cli.connect import client_for
from hinge.cli.console import Console
from hinge.cli.values import parse_arguments
from hinge.client.display import escape_line
from hinge.errors import PeerError, StartError
from hinge.schema.prompts import Prompt
from hinge.schema.tools import Tool


def run(options: argparse.Namespace) -> int:
    """Print the result: text on stdout, progress and logs on stderr. Exit code 1 when the tool failed."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            tools = {tool.name: tool for tool in await client.list_tools()}
            tool = tools.get(options.name)
            arguments = parse_arguments(options.arguments, tool.input_schema if tool is not None else {})
            arguments = await completed(console, tool, arguments)
            limits: dict[str, Any] = (
                {} if options.timeout is None else {"idle": options.timeout, "total": options.timeout}
            )
            try:
                result = await client.call_tool(
                    options.name, arguments, on_progress=console.progress, raise_on_error=False, **limits
                )
            except PeerError as exc:
                if tool is not None or "Did you mean" in exc.message:
                    raise
                raise StartError(f"{exc.message}; {_what_there_is(options.name, list(tools))}") from exc
        console.result(result, options)
        return 1 if result.is_error else 0


def _what_there_is(name: str, known: list[str]) -> str:
    """Words for a name that the server's list lacks."""
    near = difflib.get_close_matches(name[:128], known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    more = ", …: hinge list shows all" if len(known) > 10 else ""
    return f"there are {', '.join(escape_line(one) for one in known[:10])}{more}" if known else "there are no tools"


async def completed(console: Console, of: Tool | Prompt | None, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments, and from whoever sits there those that are missing. Raises StartError when they don't answer."""
    if of is None or not console.asks:
        return given
    found = await console.terminal.complete_arguments(of, given)
    if found is None:
        raise StartError(f"{of.name} is not called: required arguments are missing")
    return found
