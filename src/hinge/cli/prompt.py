"""`hinge prompt`: get the messages of a prompt, with arguments from the command line."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from hinge.cli.call import completed
from hinge.cli.connect import client_for
from hinge.cli.console import Console
from hinge.cli.values import parse_texts


def run(options: argparse.Namespace) -> int:
    """Print the messages, each with its role."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            arguments = parse_texts(options.arguments)
            if console.asks:
                prompts = await client.list_prompts()
                prompt = next((prompt for prompt in prompts if prompt.name == options.name), None)
                arguments = await completed(console, prompt, arguments)
            limits: dict[str, Any] = {}
            if options.timeout is not None:
                limits = {"idle": options.timeout, "total": options.timeout}
            result = await client.get_prompt(options.name, arguments, **limits)
        console.result(result, options)
    return 0
