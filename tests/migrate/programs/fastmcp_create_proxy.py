# lists: count
# call: count {} = 3
from fastmcp import FastMCP
from fastmcp.server import create_proxy

backend = FastMCP("backend")


@backend.tool
def count() -> int:
    return 3


mcp = create_proxy(backend, name="front")
