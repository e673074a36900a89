# era: 2025
# answers: {}
# call: delete {} = "deleted"
# packages: fastmcp-2
from fastmcp import Context, FastMCP

mcp = FastMCP("files")


@mcp.tool
async def delete(ctx: Context) -> str:
    result = await ctx.elicit("Delete all files?")
    if result.action == "accept":
        return "deleted"
    return "kept"
