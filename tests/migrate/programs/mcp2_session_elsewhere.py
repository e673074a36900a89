# notes: ctx.session: ctx.sample(), ctx.elicit()
# only: rewrite
from mcp.server.mcpserver import Context, MCPServer


def make() -> MCPServer:
    mcp = MCPServer("books")

    @mcp.tool()
    async def enable(ctx: Context) -> str:
        await ctx.session.send_tool_list_changed()
        return "enabled"

    return mcp
