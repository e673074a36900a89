# lists: first second
# call: second {} = 2
from fastmcp import FastMCP

mcp = FastMCP("registered")


def register(server: FastMCP) -> None:
    @server.tool()
    def first() -> int:
        return 1

    @server.tool(name="second")
    def other() -> int:
        return 2


register(mcp)
