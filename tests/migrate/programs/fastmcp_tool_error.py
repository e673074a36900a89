# call: half {"n": 4} = 2
# fails: half {"n": 3} = 3 is odd
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError

mcp = FastMCP("halves", mask_error_details=True)


@mcp.tool
def half(n: int) -> int:
    if n % 2:
        raise ToolError(f"{n} is odd")
    return n // 2
