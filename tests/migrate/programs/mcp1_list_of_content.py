# lists: blocks data mixed numbers
# differs: tool numbers: it had no outputSchema before
# becomes: def mixed() -> list[str | Image]:
# becomes: def blocks() -> list[str | TextContent]:
# becomes: def data() -> list[Any]:
# becomes: def numbers() -> list:
# call: mixed {} = "image/png"
# call: blocks {} = "one"
from typing import Any

from mcp.server.fastmcp import FastMCP, Image
from mcp.types import TextContent

mcp = FastMCP("content")


@mcp.tool()
def mixed() -> list:
    return [Image(data=b"x", format="png"), "hi"]


@mcp.tool()
def blocks() -> list:
    return [TextContent(type="text", text=text) for text in ("one", "two")]


@mcp.tool()
def data() -> list[Any]:
    return [TextContent(type="text", text="data")]


@mcp.tool()
def numbers() -> list:
    return [1, 2]
