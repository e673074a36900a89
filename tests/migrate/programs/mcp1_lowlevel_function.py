# prints: ['ping']
# prints: pong for Ann
import asyncio
from enum import Enum

from mcp import types
from mcp.server import Server
from mcp.shared.memory import create_connected_server_and_client_session


class Tools(str, Enum):
    PING = "ping"


def make() -> Server:
    server = Server("made")

    @server.list_tools()
    async def list_tools() -> list[types.Tool]:
        return [types.Tool(name=Tools.PING.value, description="Answer.", inputSchema={"type": "object"})]

    @server.call_tool()
    async def call_tool(name, arguments):
        match name:
            case Tools.PING.value:
                return [types.TextContent(type="text", text=f"pong for {arguments['who']}")]

    return server


async def main() -> None:
    async with create_connected_server_and_client_session(make()) as client:
        print([tool.name for tool in (await client.list_tools()).tools])
        print((await client.call_tool("ping", {"who": "Ann"})).content[0].text)


asyncio.run(main())
