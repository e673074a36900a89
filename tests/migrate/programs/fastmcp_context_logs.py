# call: work {"steps": 2} = "done"
# becomes: await ctx.log("warning", "nearly"
from fastmcp import Context, FastMCP

mcp = FastMCP("worker")


@mcp.tool
async def work(steps: int, ctx: Context) -> str:
    await ctx.info("begin")
    await ctx.debug(message="details", logger_name="work")
    for step in range(steps):
        await ctx.report_progress(progress=step + 1, total=steps)
    await ctx.log("nearly", level="warning")
    return "done"
