# packages: fastmcp-2
# call: double {"n": 4} = 8
# becomes: return add(n, n)
from fastmcp import FastMCP

mcp = FastMCP("fns")


@mcp.tool
def add(a: int, b: int) -> int:
    return a + b


@mcp.tool
def double(n: int) -> int:
    return add.fn(n, n)
