# lists: around lend summary
# answers: {"days": 3}
# sampled: A book.
# call: lend {"title": "Emma"} = Emma for 3 days
# call: summary {"title": "Emma"} = A book.
# becomes: async def ask_days(title: str, ctx: Context) -> Days:
# becomes: return await ctx.elicit(f"How many days for {title}?", form=Days)
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel

mcp = MCPServer("library")


class Days(BaseModel):
    days: int


def ask_days(title: str) -> Days | Elicit[Days]:
    if title == "Atlas":
        return Days(days=1)
    return Elicit(f"How many days for {title}?", schema=Days)


async def ask_model(context: Context, title: str) -> Sample:
    question = TextContent(type="text", text=f"What is {title}?")
    return Sample([SamplingMessage(role="user", content=question)], max_tokens=20)


def folders() -> ListRoots:
    return ListRoots()


@mcp.tool()
def lend(title: str, days: Annotated[Days, Resolve(ask_days)]) -> str:
    return f"{title} for {days.days} days"


@mcp.tool()
def summary(title: str, answer: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    return answer.content.text


@mcp.tool()
def around(found: Annotated[ListRootsResult, Resolve(folders)]) -> int:
    return len(found.roots)
