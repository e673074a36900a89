# fails: buy {"item": "moon"} = not for sale
# call: buy {"item": "tea"} = "tea"
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError

mcp = FastMCP("shop")


@mcp.tool()
def buy(item: str) -> str:
    if item == "moon":
        raise ToolError("The moon is not for sale")
    return item
