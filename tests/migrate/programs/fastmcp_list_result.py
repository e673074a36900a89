# call: primes {"count": 3} = [2, 3, 5]
from fastmcp import FastMCP

mcp = FastMCP("primes")


@mcp.tool
def primes(count: int) -> list[int]:
    return [2, 3, 5, 7, 11][:count]
