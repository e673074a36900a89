# era: 2025
# answers: {"again": true}
# call: book {} = "again: True"
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

mcp = FastMCP("booking")


class Again(BaseModel):
    again: bool


@mcp.tool()
async def book(ctx: Context) -> str:
    result = await ctx.elicit(message="Full. Try again?", schema=Again)
    match result.action:
        case "accept":
            return f"again: {result.data.again}"
    return "no"
