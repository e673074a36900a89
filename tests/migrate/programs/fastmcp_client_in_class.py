# prints: 5
import asyncio

from fastmcp import Client, FastMCP

mcp = FastMCP("sums")


@mcp.tool
def add(a: int, b: int) -> int:
    return a + b


class Calculator:
    def __init__(self) -> None:
        self.client = Client(mcp)

    async def add(self, a: int, b: int) -> int:
        async with self.client:
            return (await self.client.call_tool("add", {"a": a, "b": b})).data


if __name__ == "__main__":
    print(asyncio.run(Calculator().add(2, 3)))
