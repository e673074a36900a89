"""`hinge stubs`: a typed Python module for a server, on standard output."""

from __future__ import annotations

import argparse
import asyncio
import sys

from hinge.cli.connect import client_for
from hinge.client.display import write
from hinge.stubs.module import Offered, module_text


def run(options: argparse.Namespace) -> int:
    """Print the module."""
    offered = asyncio.run(_offered(options))
    write(sys.stdout, module_text(offered, blocking=options.sync, name=options.name))
    return 0


async def _offered(options: argparse.Namespace) -> Offered:
    async with client_for(options) as client:
        offers = client.server_capabilities
        return Offered(
            server=client.server_info,
            instructions=client.instructions,
            tools=await client.list_tools() if offers.tools is not None else (),
            prompts=await client.list_prompts() if offers.prompts is not None else (),
            templates=await client.list_resource_templates() if offers.resources is not None else (),
        )
