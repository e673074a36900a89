# read: config://version = 1.2
# read: data://all = {"a": 1}
import json

from fastmcp import FastMCP

mcp = FastMCP("settings")


@mcp.resource("config://version")
def version() -> str:
    return "1.2"


@mcp.resource("data://all", mime_type="application/json", name="all data")
async def everything() -> str:
    return json.dumps({"a": 1})
