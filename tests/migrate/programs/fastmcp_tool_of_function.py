# lists: plus
# call: plus {"a": 2, "b": 3} = 5
from fastmcp import FastMCP

mcp = FastMCP("functions")


def add(a: int, b: int) -> int:
    return a + b


mcp.tool(add, name="plus")
