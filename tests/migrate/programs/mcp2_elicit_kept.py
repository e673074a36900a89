# era: 2025
# answers: {"days": 3}
# call: lend {} = "accept {\"days\":3}"
# call: keep {} = "3 days"
# call: name {} = "3"
# becomes: except Declined as declined:
# becomes: result = declined
# becomes: if not isinstance(result, Declined):
from mcp.server.mcpserver import AcceptedElicitation, CancelledElicitation, Context, DeclinedElicitation, MCPServer
from pydantic import BaseModel

mcp = MCPServer("library")


class Days(BaseModel):
    days: int


@mcp.tool()
async def lend(ctx: Context) -> str:
    result = await ctx.elicit("How many days?", schema=Days)
    if result.action == "accept":
        content = result.data.model_dump_json()
    else:
        content = "{}"
    return f"{result.action} {content}"


@mcp.tool()
async def keep(ctx: Context) -> str:
    result = await ctx.elicit("How many days?", schema=Days)
    if isinstance(result, (DeclinedElicitation, CancelledElicitation)):
        text = "none"
    elif isinstance(result, AcceptedElicitation):
        text = f"{result.data.days} days"
    return text


@mcp.tool()
async def name(ctx: Context) -> str:
    result = await ctx.elicit("How many days?", schema=Days)
    match result:
        case AcceptedElicitation(data=given):
            text = str(given.days)
        case DeclinedElicitation() | CancelledElicitation():
            text = "none"
    return text
