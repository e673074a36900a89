# lists: kids_count own
# call: kids_count {} = 3
from fastmcp import FastMCP

kids = FastMCP("kids")


@kids.tool
def count() -> int:
    return 3


mcp = FastMCP("family")
mcp.mount(kids, namespace="kids")


@mcp.tool
def own() -> int:
    return 1
