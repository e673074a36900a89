# lists: mixed
# becomes: def mixed() -> list[str | Image]:
# call: mixed {} = "image/png"
from typing import Any

from fastmcp import FastMCP
from fastmcp.utilities.types import Image

mcp = FastMCP("content")


@mcp.tool
def mixed() -> list[Any]:
    return [Image(data=b"x", format="png"), "hi"]
