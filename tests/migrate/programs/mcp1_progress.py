# call: work {"steps": 3} = "done"
from mcp.server.fastmcp import Context, FastMCP

mcp = FastMCP("progress")


@mcp.tool()
async def work(steps: int, ctx: Context) -> str:
    await ctx.info("starting")
    for step in range(steps):
        await ctx.report_progress(progress=(step + 1) / steps, total=1.0, message=f"step {step}")
    await ctx.log("debug", "finished")
    return "done"
