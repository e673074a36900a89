# call: work {} = "done"
from mcp.server.mcpserver import Context, MCPServer

mcp = MCPServer("context")


@mcp.tool()
async def work(ctx: Context) -> str:
    await ctx.report_progress(1, 2)
    return "done"
