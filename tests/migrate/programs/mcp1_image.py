# call: pixel {} = image/png
from mcp.server.fastmcp import FastMCP, Image

mcp = FastMCP("images")


@mcp.tool()
def pixel() -> Image:
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")
