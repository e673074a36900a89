# packages: fastmcp-2
# lists: kids_count
# call: kids_count {} = 3
import asyncio

from fastmcp import FastMCP

kids = FastMCP("kids")


@kids.tool
def count() -> int:
    return 3


mcp = FastMCP("family")


async def setup() -> None:
    await mcp.import_server(kids, prefix="kids")


asyncio.run(setup())
