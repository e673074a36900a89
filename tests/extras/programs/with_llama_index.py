"""A tool of a server is a tool for agents of LlamaIndex."""

import asyncio

from gemel import Client, Server
from gemel.adapters import llama_index

server = Server("shop")


@server.tool
def tea(kind: str) -> str:
    """Make tea."""
    return f"{kind} tea"


async def main() -> None:
    async with Client(server) as client:
        (tool,) = await llama_index.tools(client)
        assert (await tool.acall(kind="green")).content == "green tea"


asyncio.run(main())
