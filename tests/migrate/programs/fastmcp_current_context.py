# call: who {} = "resources/ok"
# becomes: current_context()
from fastmcp import Context, FastMCP
from fastmcp.server.dependencies import get_context

mcp = FastMCP("current")


async def helper() -> str:
    ctx: Context = get_context()
    await ctx.info("here")
    return "resources/ok"


@mcp.tool
async def who() -> str:
    return await helper()
