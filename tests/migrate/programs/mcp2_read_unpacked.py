# only: rewrite
# notes: ctx.read_resource() returns a result
from mcp.server.mcpserver import Context, MCPServer

mcp = MCPServer("shelf")


@mcp.tool()
async def read(ctx: Context) -> str:
    [contents] = await ctx.read_resource("note://today")
    return str(contents.content)
