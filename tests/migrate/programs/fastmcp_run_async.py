# lists: ping
# becomes: await mcp.run_async("http", port=9000)
import asyncio

from fastmcp import FastMCP

mcp = FastMCP("over-http")


@mcp.tool
def ping() -> str:
    return "pong"


async def main() -> None:
    await mcp.run_http_async(port=9000)


if __name__ == "__main__":
    asyncio.run(main())
