# call: hello {} = "hello"
# becomes: TextContent(text="hello")
import mcp.types as types
from fastmcp import FastMCP

mcp = FastMCP("blocks")


@mcp.tool
def hello() -> list[types.TextContent]:
    return [types.TextContent(type="text", text="hello")]
