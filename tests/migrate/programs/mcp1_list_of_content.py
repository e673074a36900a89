# lists: blocks mixed numbers
# becomes: def mixed() -> list[str | Image]:
# becomes: def numbers() -> list:
# call: mixed {} = "image/png"
# call: blocks {} = "one"
# call: numbers {} = [1, 2]
from typing import Any

from mcp.server.fastmcp import FastMCP, Image
from mcp.types import TextContent

mcp = FastMCP("content")


@mcp.tool()
def mixed() -> list:
    return [Image(data=b"x", format="png"), "hi"]


@mcp.tool()
def blocks() -> list[Any]:
    return [TextContent(type="text", text=text) for text in ("one", "two")]


@mcp.tool()
def numbers() -> list:
    return [1, 2]
