# era: 2025
# answers: {"again": true, "day": "Monday"}
# call: book {} = "Monday"
# call: book_early {} = "no"
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

mcp = MCPServer("booking")


class Again(BaseModel):
    again: bool
    day: str


@mcp.tool()
async def book(ctx: Context) -> str:
    result = await ctx.elicit("Full. Try again?", schema=Again)
    if result.action == "accept" and result.data.again:
        return result.data.day
    return "no"


@mcp.tool()
async def book_early(ctx: Context) -> str:
    result = await ctx.elicit("Full. Try again?", schema=Again)
    if result.action == "accept" and result.data.again and result.data.day == "Sunday":
        return result.data.day
    return "no"
