# lists: ping
# call: ping {} = "pong"
from fastmcp import FastMCP

mcp = FastMCP("quoted")


def register(server: "FastMCP") -> None:
    @server.tool
    def never() -> str:
        return "never"


@mcp.tool
def ping() -> str:
    return "pong"
