# lists: add
# call: add {"a": "2", "b": 3} = 5
# becomes: coerce=True
from fastmcp import FastMCP

mcp = FastMCP("lax", strict_input_validation=False)


@mcp.tool
def add(a: int, b: int) -> int:
    return a + b
