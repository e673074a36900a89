"""A tool of a server is a tool for agents of Google ADK."""

import asyncio
from typing import Any

from gemel import Client, Server
from gemel.adapters.google_adk import AdkToolset

server = Server("shop")


@server.tool
def tea(kind: str) -> str:
    """Make tea."""
    return f"{kind} tea"


async def main() -> None:
    context: Any = None
    async with Client(server) as client:
        (tool,) = await AdkToolset(client).get_tools()
        assert await tool.run_async(args={"kind": "green"}, tool_context=context) == {"result": "green tea"}


asyncio.run(main())
