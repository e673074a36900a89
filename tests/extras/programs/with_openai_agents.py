"""A server is an MCP server for agents of the OpenAI Agents SDK."""

import asyncio

from gemel import Client, Server
from gemel.adapters.openai_agents import AgentsServer

server = Server("shop")


@server.tool
def tea(kind: str) -> str:
    """Make tea."""
    return f"{kind} tea"


async def main() -> None:
    async with Client(server) as client:
        agents = AgentsServer(client)
        assert [tool.name for tool in await agents.list_tools()] == ["tea"]
        result = await agents.call_tool("tea", {"kind": "green"})
        assert result.content[0].text == "green tea"


asyncio.run(main())
