# lists: plus
# call: plus {"a": 2, "b": 2} = 4
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("added")


def add(a: int, b: int) -> int:
    return a + b


mcp.add_tool(add, "plus", description="Add")
