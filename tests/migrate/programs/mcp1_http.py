# lists: ping
# becomes: mcp.run("http", host="0.0.0.0", port=8100, sessions=False)
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("http", host="0.0.0.0", port=8100, stateless_http=True, json_response=True)


@mcp.tool()
def ping() -> str:
    return "pong"


if __name__ == "__main__":
    mcp.run(transport="streamable-http")
