# lists: read
# becomes: mcp.disable(*OFF)
from fastmcp import FastMCP

mcp = FastMCP("notes")
OFF = {"wipe"}


@mcp.tool
def read() -> str:
    return "text"


@mcp.tool
def wipe() -> str:
    return "gone"


mcp.disable(names=OFF)
