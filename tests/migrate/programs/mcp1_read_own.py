# call: shown {} = "the text"
from mcp.server.fastmcp import Context, FastMCP

mcp = FastMCP("reader")


@mcp.resource("notes://one")
def one() -> str:
    return "the text"


@mcp.tool()
async def shown(ctx: Context) -> str:
    contents = list(await ctx.read_resource("notes://one"))
    return contents[0].content
