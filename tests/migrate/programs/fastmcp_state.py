# lists: forget take visit
# call: visit {} = 1
# call: visit {} = 2
# call: take {"item": "pen"} = ["pen"]
# call: take {"item": "ink"} = ["pen","ink"]
# call: forget {} = null
# call: visit {} = 1
# becomes: visits = (await ctx.session_state.get("visits") or 0) + 1
# becomes: await ctx.session_state.set("visits", visits)
# becomes: await ctx.session_state.delete("visits")
# notes: ctx.session_state keeps JSON values for the session
# era: 2025
# only: 2025
from fastmcp import Context, FastMCP

mcp = FastMCP("shop")


@mcp.tool
async def visit(ctx: Context) -> int:
    visits = (await ctx.get_state("visits") or 0) + 1
    await ctx.set_state("visits", visits)
    return visits


@mcp.tool
async def take(item: str, ctx: Context) -> list[str]:
    await ctx.set_state(key="cart", value=[*(await ctx.get_state("cart") or []), item])
    return await ctx.get_state("cart")


@mcp.tool
async def forget(ctx: Context) -> None:
    await ctx.delete_state("visits")
