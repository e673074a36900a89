# lists: plus
# call: plus {"a": 2, "b": 3} = 5
from fastmcp import FastMCP

mcp = FastMCP("named", "Instructions as the second argument")


@mcp.tool("plus", annotations={"readOnlyHint": True, "title": "Plus"})
def add(a: int, b: int = 1) -> int:
    return a + b
