"""A tool of a server is a tool for agents of smolagents."""

from gemel import Server
from gemel.adapters import smolagents
from gemel.sync import Client

server = Server("shop")


@server.tool
def tea(kind: str) -> str:
    """Make tea."""
    return f"{kind} tea"


with Client(server) as client:
    (tool,) = smolagents.tools(client)
    assert tool(kind="green") == "green tea"
