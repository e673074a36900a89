# packages: fastmcp-2
# lists: count
# call: count {} = 3
# becomes: Server.from_client(backend, name="front")
from fastmcp import FastMCP

backend = FastMCP("backend")


@backend.tool
def count() -> int:
    return 3


mcp = FastMCP.as_proxy(backend, name="front")
