# lists: ping
# call: ping {} = 2
# becomes: on_duplicate="replace"
# only: 2025
from fastmcp import FastMCP

mcp = FastMCP("twice")


@mcp.tool
def ping() -> int:
    return 1


@mcp.tool
def ping() -> int:
    return 2
