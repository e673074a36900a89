# answers: decline
# call: lend {"title": "Emma"} = "Emma: declined"
# call: lend {"title": "Atlas"} = "Atlas: 1"
# call: longest {"title": "Emma"} = "decline"
# becomes: days: Annotated[Days | Declined, Depends(ask_days)]
# becomes: async def ask_days(title: str, ctx: Context) -> Days | Declined:
# becomes: case Declined(action="decline"):
from typing import Annotated

from mcp.server.mcpserver import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Elicit,
    ElicitationResult,
    MCPServer,
    Resolve,
)
from pydantic import BaseModel

mcp = MCPServer("library")


class Days(BaseModel):
    days: int


async def ask_days(title: str) -> Days | Elicit[Days]:
    if title == "Atlas":
        return Days(days=1)
    return Elicit(f"How many days for {title}?", Days)


@mcp.tool()
async def lend(title: str, days: Annotated[ElicitationResult[Days], Resolve(ask_days)]) -> str:
    match days:
        case AcceptedElicitation(data=Days(days=0)):
            return f"{title}: not at all"
        case AcceptedElicitation():
            return f"{title}: {days.data.days}"
        case DeclinedElicitation():
            return f"{title}: declined"
        case CancelledElicitation():
            return f"{title}: cancelled"


@mcp.tool()
async def longest(title: str, days: Annotated[ElicitationResult[Days], Resolve(ask_days)]) -> str:
    if not isinstance(days, AcceptedElicitation):
        return days.action
    return str(days.data.days)
