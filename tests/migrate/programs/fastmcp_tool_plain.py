# lists: add
# call: add {"a": 1, "b": 2} = 3
from fastmcp import FastMCP

mcp = FastMCP("sums")


@mcp.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    mcp.run()
