"""`gemel stubs`: a typed Python module for a server, on standard output."""

from __future__ import annotations

import argparse
import sys

from gemel.cli.commands.list import fetch_lists
from gemel.cli.connect import client_for
from gemel.cli.console import Console
from gemel.client.terminal.display import write
from gemel.stubs.module import ServerLists, module_text


async def run(options: argparse.Namespace) -> int:
    """Print the module."""
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            listed = await fetch_lists(client, ("tools", "prompts", "resourceTemplates"))
            lists = ServerLists(
                server=client.server_info,
                instructions=client.instructions,
                tools=listed.get("tools", ()),
                prompts=listed.get("prompts", ()),
                templates=listed.get("resourceTemplates", ()),
            )
    write(sys.stdout, module_text(lists, blocking=options.sync, name=options.name))
    return 0
