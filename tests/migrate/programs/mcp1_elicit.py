# era: 2025
# answers: {"again": true}
# call: book {} = "again: True"
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel, Field

mcp = FastMCP("booking")


class Again(BaseModel):
    again: bool = Field(description="Try again?")


@mcp.tool()
async def book(ctx: Context) -> str:
    result = await ctx.elicit(message="Full. Try again?", schema=Again)
    if result.action == "accept" and result.data:
        return f"again: {result.data.again}"
    return "no"
