"""`hinge read`: read one resource and print what it holds."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from hinge.cli.connect import client_for
from hinge.cli.console import Console
from hinge.client.display import is_terminal


def run(options: argparse.Namespace) -> int:
    """Print the text; bytes go as they are into a file or pipe, and are only named on a terminal."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            limits: dict[str, Any] = (
                {} if options.timeout is None else {"idle": options.timeout, "total": options.timeout}
            )
            result = await client.read_resource(options.name, **limits)
        binary = any(item.blob is not None for item in result.contents)
        if binary and not options.json and options.save is None and not is_terminal(sys.stdout):
            for item in result.contents:
                sys.stdout.buffer.write(item.decoded)
            sys.stdout.flush()
            return 0
        console.result(result, options)
        if binary and not options.json and options.save is None:
            console.note("Save it with --save DIRECTORY, or send it to a file.")
        return 0
