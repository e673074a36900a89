# call: read {} = "milk"
# becomes: [contents] = (await ctx.read_resource("note://today")).contents
# becomes: return str(contents.text)
from mcp.server.mcpserver import Context, MCPServer

mcp = MCPServer("shelf")


@mcp.tool()
async def read(ctx: Context) -> str:
    [contents] = await ctx.read_resource("note://today")
    return str(contents.content)


@mcp.resource("note://today")
def today() -> str:
    return "milk"
