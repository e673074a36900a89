# call: shown {} = "the text"
from fastmcp import Context, FastMCP

mcp = FastMCP("reader")


@mcp.resource("notes://one")
def one() -> str:
    return "the text"


@mcp.tool
async def shown(ctx: Context) -> str:
    result = await ctx.read_resource("notes://one")
    return result.contents[0].content
