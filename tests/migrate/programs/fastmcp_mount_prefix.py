# packages: fastmcp-2
# lists: kids_count
# call: kids_count {} = 3
from fastmcp import FastMCP

kids = FastMCP("kids")


@kids.tool
def count() -> int:
    return 3


mcp = FastMCP("family")
mcp.mount(kids, prefix="kids")
