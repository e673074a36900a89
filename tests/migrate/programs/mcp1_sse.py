# lists: ping
# becomes: mcp.run("http", sse_path="/sse")
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("sse", log_level="ERROR")


@mcp.tool()
def ping() -> str:
    return "pong"


if __name__ == "__main__":
    mcp.run("sse")
