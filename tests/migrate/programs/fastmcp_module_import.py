# lists: ping
# call: ping {} = "pong"
# becomes: from gemel import Server
import fastmcp

mcp = fastmcp.FastMCP("pinger")


@mcp.tool
def ping() -> str:
    return "pong"
