# call: root {"n": 9} = 3
# fails: root {"n": -1} = negative
# becomes: error_details=True
from fastmcp import FastMCP

mcp = FastMCP("roots", on_duplicate="error")


@mcp.tool
def root(n: int) -> int:
    if n < 0:
        raise ValueError("negative")
    return int(n**0.5)
