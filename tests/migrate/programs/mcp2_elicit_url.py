# era: 2025
# answers: {}
# call: deposit {"booking": "a"} = "paying"
# notes: ctx.elicit_url(elicitation_id=…) was left out: Gemel makes the id
from mcp.server.mcpserver import Context, MCPServer

mcp = MCPServer("booking")


@mcp.tool()
async def deposit(booking: str, ctx: Context) -> str:
    result = await ctx.elicit_url(
        message="A deposit confirms your booking.",
        url=f"https://pay.example.com/deposit/{booking}",
        elicitation_id=f"deposit-{booking}",
    )
    if result.action == "accept":
        return "paying"
    return "no deposit"
