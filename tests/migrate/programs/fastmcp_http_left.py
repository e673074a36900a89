# lists: ping
# notes: Server(stateless_http=True, port=9000) was left out
# packages: fastmcp-2
from fastmcp import FastMCP

mcp = FastMCP("left", stateless_http=True, port=9000)


@mcp.tool(
    name="ping",
    annotations=dict(
        readOnlyHint=True,
    ),
)
def ping() -> str:
    return "pong"
