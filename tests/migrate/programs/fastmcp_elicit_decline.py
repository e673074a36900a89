# era: 2025
# answers: decline
# call: name {} = "no name"
from fastmcp import Context, FastMCP

mcp = FastMCP("asker")


@mcp.tool
async def name(ctx: Context) -> str:
    result = await ctx.elicit("What is your name?", response_type=str)
    if result.action == "accept":
        return f"hello {result.data}"
    elif result.action == "decline":
        return "no name"
    else:
        return "cancelled"
