# lists: open
from fastmcp import FastMCP

mcp = FastMCP("doors")


@mcp.tool
def open() -> str:
    return "open"


@mcp.tool(tags={"admin"})
def lock() -> str:
    return "locked"


mcp.disable(tags={"admin"})
