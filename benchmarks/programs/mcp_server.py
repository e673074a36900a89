"""The official SDK's server, by its own means: `http`, `http-json` or `stdio`."""

import sys

from mcp.server import MCPServer

server = MCPServer("bench", log_level="WARNING")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def add_in_thread(a: int, b: int) -> int:
    """Add two numbers in a thread."""
    return a + b


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        from benchmarks.programs.http_main import serve

        serve(server.streamable_http_app(json_response=sys.argv[1] == "http-json"))
