# lists: ping
# call: ping {} = "pong"
# becomes: from gemel import Server as MCP
from fastmcp import FastMCP as MCP

mcp = MCP("pinger")


@mcp.tool
def ping() -> str:
    return "pong"
