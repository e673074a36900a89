# prints: add
# prints: 3
# prints: 3
import asyncio

from fastmcp import Client, FastMCP

mcp = FastMCP("sums")


@mcp.tool
def add(a: int, b: int) -> int:
    return a + b


async def main() -> None:
    async with Client(mcp) as client:
        for tool in await client.list_tools():
            print(tool.name)
        result = await client.call_tool("add", {"a": 1, "b": 2})
        print(result.data)
        print(result.content[0].text)


if __name__ == "__main__":
    asyncio.run(main())
