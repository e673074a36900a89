# era: 2025
# answers: {"value": "Ada"}
# call: greet {} = "Hello Ada"
# call: seats {} = "accept"
# becomes: case str() as name:
# becomes: case Declined(action="cancel"):
from fastmcp import Context, FastMCP
from fastmcp.server.elicitation import AcceptedElicitation, CancelledElicitation, DeclinedElicitation

mcp = FastMCP("hall")


@mcp.tool
async def greet(ctx: Context) -> str:
    result = await ctx.elicit("Who are you?", response_type=str)
    match result:
        case AcceptedElicitation(data=name):
            return f"Hello {name}"
        case DeclinedElicitation():
            return "no name"
        case CancelledElicitation():
            return "cancelled"


@mcp.tool
async def seats(ctx: Context) -> str:
    result = await ctx.elicit("Who are you?", str)
    done = result.action
    return done
