# lists: ping
# becomes: app = mcp.http_app()
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("app")


@mcp.tool()
def ping() -> str:
    return "pong"


app = mcp.streamable_http_app()
