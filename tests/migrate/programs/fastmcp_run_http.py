# lists: ping
# becomes: mcp.run("http", host="127.0.0.1", port=9000, path="/mcp/")
from fastmcp import FastMCP

mcp = FastMCP("over-http")


@mcp.tool
def ping() -> str:
    return "pong"


if __name__ == "__main__":
    mcp.run(transport="http", host="127.0.0.1", port=9000, path="/mcp/", show_banner=False)
