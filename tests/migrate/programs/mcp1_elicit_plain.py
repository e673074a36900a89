# era: 2025
# answers: {"again": false}
# call: book {} = "again: False"
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

mcp = FastMCP("booking")


class Again(BaseModel):
    again: bool


@mcp.tool()
async def book(ctx: Context) -> str:
    result = await ctx.elicit("Full. Try again?", Again)
    if result.action == "accept":
        return f"again: {result.data.again}"
    return "no"
