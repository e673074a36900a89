# call: pixel {} = image/png
from fastmcp import FastMCP
from fastmcp.utilities.types import Image

mcp = FastMCP("pixels")


@mcp.tool
def pixel() -> Image:
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")
