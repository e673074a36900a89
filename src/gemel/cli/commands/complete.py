"""`gemel complete`: ask a server for the values of an argument of a prompt or of a variable of a resource template."""

from __future__ import annotations

import argparse

from gemel.cli.connect import client_for, time_limits
from gemel.cli.console import Console, as_json
from gemel.cli.values import parse_strings


async def run(options: argparse.Namespace) -> int:
    """Print a line for each suggestion; on standard error whether there are more."""
    context = parse_strings(options.context) if options.context else None
    is_template = "{" in options.name or "://" in options.name
    prompt, resource = (None, options.name) if is_template else (options.name, None)
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            completion = await client.complete(
                argument=options.argument,
                value=options.prefix,
                prompt=prompt,
                resource=resource,
                given=context,
                **time_limits(options),
            )
        if options.json:
            console.print(as_json(completion))
            return 0
        if completion.values:
            console.print("\n".join(completion.values))
        if completion.has_more or (completion.total or 0) > len(completion.values):
            total = "" if completion.total is None else f" of {completion.total}"
            console.note(f"These are {len(completion.values)}{total}; a longer PREFIX gives others.")
    return 0
