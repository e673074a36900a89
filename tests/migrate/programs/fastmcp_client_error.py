# prints: failed: too big
# prints: True
import asyncio

from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError

mcp = FastMCP("errors")


@mcp.tool
def check(n: int) -> int:
    if n > 9:
        raise ToolError("too big")
    return n


async def main() -> None:
    async with Client(mcp) as client:
        try:
            await client.call_tool("check", {"n": 10})
        except ToolError as error:
            print("failed:", error)
        result = await client.call_tool("check", {"n": 10}, raise_on_error=False)
        print(result.is_error)


if __name__ == "__main__":
    asyncio.run(main())
