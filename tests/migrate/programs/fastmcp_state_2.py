# lists: visit wait
# call: visit {} = 3
# call: wait {} = 6
# becomes: await ctx.session_state.set("visits", 2)
# becomes: return (await ctx.session_state.get("visits")) + 1
# becomes: visits = await ctx.session_state.get("visits")
# becomes: ctx.sync.session_state.set("visits", 5)
# becomes: return ctx.sync.session_state.get("visits") + 1
# notes: ctx.session_state keeps JSON values for the session
# packages: fastmcp-2
# era: 2025
# only: 2025
from fastmcp import Context, FastMCP

mcp = FastMCP("shop")


@mcp.tool
async def visit(ctx: Context) -> int:
    ctx.set_state("visits", 2)
    visits = ctx.get_state("visits")
    assert visits == 2
    return ctx.get_state("visits") + 1


@mcp.tool
def wait(ctx: Context) -> int:
    ctx.set_state("visits", 5)
    return ctx.get_state("visits") + 1
