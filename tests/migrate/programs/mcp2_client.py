# prints: ['add']
# prints: 3
# prints: True
import asyncio

from mcp import Client
from mcp.server import MCPServer

mcp = MCPServer("sums")


@mcp.tool()
def add(a: int, b: int) -> int:
    return a + b


async def main() -> None:
    async with Client(mcp) as client:
        page = await client.list_tools()
        print([tool.name for tool in page.tools])
        result = await client.call_tool("add", {"a": 1, "b": 2})
        print(result.content[0].text)
        print((await client.call_tool("add", {"a": "x", "b": 2})).is_error)


if __name__ == "__main__":
    asyncio.run(main())
