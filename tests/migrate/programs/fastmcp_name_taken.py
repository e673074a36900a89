# lists: where
# call: where {} = "rack 7"
# becomes: from gemel import Server as FastMCP
from fastmcp import FastMCP

mcp = FastMCP("racks")


class Server:
    rack = 7


@mcp.tool
def where() -> str:
    return f"rack {Server.rack}"
