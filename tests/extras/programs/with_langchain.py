"""A tool of a server is a tool for agents of LangChain."""

import asyncio

from gemel import Client, Server
from gemel.adapters import langchain

server = Server("shop")


@server.tool
def tea(kind: str) -> str:
    """Make tea."""
    return f"{kind} tea"


async def main() -> None:
    async with Client(server) as client:
        (tool,) = await langchain.tools(client)
        assert "green tea" in str(await tool.ainvoke({"kind": "green"}))


asyncio.run(main())
