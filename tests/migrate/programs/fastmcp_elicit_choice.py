# era: 2025
# answers: {"value": "red"}
# call: colour {} = "red it is"
from fastmcp import Context, FastMCP
from fastmcp.server.elicitation import AcceptedElicitation

mcp = FastMCP("colours")


@mcp.tool
async def colour(ctx: Context) -> str:
    result = await ctx.elicit("Which colour?", response_type=["red", "blue"])
    if isinstance(result, AcceptedElicitation):
        return f"{result.data} it is"
    return "none"
