"""`gemel read`: read a resource and print its contents."""

from __future__ import annotations

import argparse
import sys

from gemel.cli.connect import client_for, time_limits
from gemel.cli.console import Console
from gemel.client.terminal.display import is_terminal


async def run(options: argparse.Namespace) -> int:
    """Print text; write binary contents unchanged to a file or pipe, and only describe them on a terminal."""
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            result = await client.read_resource(options.name, **time_limits(options))
        is_raw = any(item.blob is not None for item in result.contents) and not options.json and options.save is None
        if is_raw and not is_terminal(sys.stdout):
            for item in result.contents:
                sys.stdout.buffer.write(item.decoded)
            sys.stdout.flush()
            return 0
        console.result(result, options)
        if is_raw:
            console.note("Save it with --save DIR, or redirect it to a file.")
    return 0
