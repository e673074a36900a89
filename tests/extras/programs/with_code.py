"""A script calls tools of a server, in the sandbox."""

from gemel import Server
from gemel.code import CodeMode
from gemel.sync import Client

server = Server("shop", middleware=[CodeMode()])


@server.tool
def price(item: str) -> int:
    """Return the price of an item."""
    return len(item)


with Client(server) as client:
    code = "import asyncio\nfrom shop import price\nsum(await asyncio.gather(price(item='tea'), price(item='coffee')))"
    assert client.call_tool("run_code", {"code": code}).text == "9"
