# lists: ping
# becomes: mcp.http_app(path="/api", sessions=False)
from fastmcp import FastMCP

mcp = FastMCP("app")


@mcp.tool
def ping() -> str:
    return "pong"


app = mcp.http_app(path="/api", stateless_http=True)
