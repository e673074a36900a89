# prints: Emma for 3 days, says A book.
# prints: Emma for 3 days, says A book.
# becomes: async def fill_in(params: ElicitFormParams) -> ElicitResult:
# becomes: Client(mcp, on_elicit=fill_in, on_sample=say, era="2025")
import asyncio

from mcp import Client
from mcp.client import ClientRequestContext
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

mcp = MCPServer("library")


class Days(BaseModel):
    days: int


@mcp.tool()
async def lend(title: str, ctx: Context) -> str:
    answer = await ctx.elicit(f"How many days for {title}?", schema=Days)
    if answer.action != "accept":
        return "no"
    question = SamplingMessage(role="user", content=TextContent(type="text", text=title))
    said = await ctx.session.create_message(messages=[question], max_tokens=10)
    return f"{title} for {answer.data.days} days, says {said.content.text}"


async def fill_in(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"days": 3 if "Emma" in params.message else 1})


async def say(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text="A book."))


async def main() -> None:
    async with Client(mcp, elicitation_callback=fill_in, sampling_callback=say, mode="legacy") as client:
        print((await client.call_tool("lend", {"title": "Emma"})).content[0].text)
    async with Client(mcp, mode="legacy", elicitation_callback=fill_in, sampling_callback=say) as client:
        print((await client.call_tool("lend", {"title": "Emma"})).content[0].text)


if __name__ == "__main__":
    asyncio.run(main())
