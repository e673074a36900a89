# call: quick {} = "done"
from fastmcp import FastMCP

mcp = FastMCP("times")


@mcp.tool(timeout=5.0)
async def slow() -> str:
    return "slow"


@mcp.tool(run_in_thread=False)
def quick() -> str:
    return "done"
