"""`gemel prompt`: get the messages of a prompt, with arguments from the command line."""

from __future__ import annotations

import argparse

from gemel.cli.commands.call import complete_arguments
from gemel.cli.connect import client_for, time_limits
from gemel.cli.console import Console
from gemel.cli.values import parse_strings


async def run(options: argparse.Namespace) -> int:
    """Print the messages, each with its role."""
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            arguments = parse_strings(options.arguments)
            if console.asks:
                prompts = await client.list_prompts()
                prompt = next((prompt for prompt in prompts if prompt.name == options.name), None)
                arguments = await complete_arguments(console, prompt, arguments)
            result = await client.get_prompt(options.name, arguments, **time_limits(options))
        console.result(result, options)
    return 0
