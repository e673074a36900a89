"""The library of examples/policy, served by the official Python SDK over stdio."""

import mcp_types as types
from mcp.server import MCPServer

server = MCPServer("library")


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
def search(word: str) -> str:
    """Books about something."""
    return f"A short history of {word}"


@server.tool()
def discard(title: str) -> str:
    """Throw a book away."""
    return f"{title} is gone"


if __name__ == "__main__":
    server.run("stdio")
