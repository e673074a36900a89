"""`hinge stubs`: a typed Python module for a server, on standard output."""

from __future__ import annotations

import argparse
import sys

from hinge.cli.connect import client_for
from hinge.client.terminal.display import write
from hinge.stubs.module import ServerLists, module_text


async def run(options: argparse.Namespace) -> int:
    """Print the module."""
    async with client_for(options) as client:
        offers = client.server_capabilities
        lists = ServerLists(
            server=client.server_info,
            instructions=client.instructions,
            tools=await client.list_tools() if offers.tools is not None else (),
            prompts=await client.list_prompts() if offers.prompts is not None else (),
            templates=await client.list_resource_templates() if offers.resources is not None else (),
        )
    write(sys.stdout, module_text(lists, blocking=options.sync, name=options.name))
    return 0
