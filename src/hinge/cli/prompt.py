"""`hinge prompt`: get the messages of a prompt, with arguments from the command line."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from hinge.cli.call import ask_for_missing
from hinge.cli.connect import client_for
from hinge.cli.console import Console
from hinge.cli.values import parse_texts
from hinge.schema.prompts import Prompt


def run(options: argparse.Namespace) -> int:
    """Print the messages, each with who says it."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    console = Console(options)
    async with client_for(options, **console.client_options(options.target)) as client:
        arguments = parse_texts(options.arguments)
        if console.asks:
            found = next((prompt for prompt in await client.list_prompts() if prompt.name == options.name), None)
            if found is not None:
                arguments |= await ask_for_missing(
                    console, found.name, found.description, _schema(found), dict(arguments)
                )
        limits: dict[str, Any] = {} if options.timeout is None else {"idle": options.timeout, "total": options.timeout}
        result = await client.get_prompt(options.name, arguments, **limits)
    console.result(result, options)
    return 0


def _schema(prompt: Prompt) -> dict[str, Any]:
    """A prompt's arguments as the schema of a form: all of them are texts (PRM-03)."""
    arguments = prompt.arguments or []
    properties = {one.name: {"type": "string", "description": one.description or ""} for one in arguments}
    return {"type": "object", "properties": properties, "required": [one.name for one in arguments if one.required]}
