# answers: {"days": 3}
# sampled: A book.
# call: lend {"title": "Emma"} = "Emma for 3 days"
# call: both {"title": "Emma"} = "3 days, A book., asked"
# call: twice {"title": "Emma"} = "3 and 3"
# prompt: review {} = Review 3 books.
# becomes: async def lend(title: str, ctx: Context) -> str:
# becomes: return await in_rounds(ctx, run)
# notes: what must not happen twice belongs in ctx.step
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)

mcp = MCPServer("library")

FORM = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}


def question(message: str) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=FORM))


ASK = question("How many days?")


@mcp.tool()
async def lend(title: str, ctx: Context) -> str | InputRequiredResult:
    """Lend a book."""
    if ctx.input_responses is None:
        return InputRequiredResult(input_requests={"days": ASK}, request_state=f"lend:{title}")
    answer = (ctx.input_responses or {}).get("days")
    if not isinstance(answer, ElicitResult) or answer.action != "accept" or answer.content is None:
        return "declined"
    return f"{title} for {answer.content['days']} days"


@mcp.tool()
async def both(title: str, ctx: Context) -> str | InputRequiredResult:
    responses = ctx.input_responses
    if not responses:
        about = SamplingMessage(role="user", content=TextContent(type="text", text=title))
        model = CreateMessageRequest(params=CreateMessageRequestParams(messages=[about], max_tokens=10))
        return InputRequiredResult(input_requests={"days": ASK, "model": model}, request_state="asked")
    return f"{responses['days'].content['days']} days, {responses['model'].content.text}, {ctx.request_state}"


@mcp.tool()
async def twice(title: str, ctx: Context) -> str | InputRequiredResult:
    responses = ctx.input_responses or {}
    if ctx.request_state is None:
        return InputRequiredResult(input_requests={"days": ASK}, request_state="first")
    if ctx.request_state == "first":
        days = responses["days"].content["days"]
        return InputRequiredResult(input_requests={"days": ASK}, request_state=str(days))
    return f"{ctx.request_state} and {responses['days'].content['days']}"


@mcp.prompt()
async def review(ctx: Context) -> list[UserMessage] | InputRequiredResult:
    answer = (ctx.input_responses or {}).get("days")
    if not isinstance(answer, ElicitResult) or answer.content is None:
        return InputRequiredResult(input_requests={"days": ASK})
    return [UserMessage(f"Review {answer.content['days']} books.")]
