# lists: ping
# becomes: mcp.run("http", port=8100, sessions=False)
from mcp.server.mcpserver import MCPServer

mcp = MCPServer("http")


@mcp.tool()
def ping() -> str:
    return "pong"


if __name__ == "__main__":
    mcp.run(transport="streamable-http", port=8100, stateless_http=True)
