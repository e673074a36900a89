"""The server of the hostile cases, made with FastMCP: the tools, prompts and resources of `tests/hostile/target.py`.

Runs in the environment of FastMCP's server. Arguments: `stdio`, or `http PORT`. Options of FastMCP have their defaults.
"""

import asyncio
import sys
from typing import Any

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.elicitation import AcceptedElicitation

server = FastMCP("target", version="1")
FORM = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def echo(text: str) -> str:
    return text


@server.tool
def fail() -> str:
    raise ToolError("it failed")


@server.tool
def crash() -> str:
    raise RuntimeError("the password is 1234")


@server.tool
async def wait() -> str:
    await asyncio.Event().wait()
    return ""


@server.tool
async def count(ctx: Context, upto: int) -> int:
    for number in range(upto):
        await ctx.report_progress(number, upto)
    return upto


@server.tool(output_schema=None)
async def ask(ctx: Context) -> Any:
    if ctx.session.can_send_request:
        answer = await ctx.elicit("Which row?", int)
        if not isinstance(answer, AcceptedElicitation):
            raise ToolError("not answered")
        return f"row {answer.data}"
    said = (ctx.input_responses or {}).get("row")
    if said is None:
        form = types.ElicitRequestFormParams(message="Which row?", requested_schema=FORM)
        request = types.ElicitRequest(method="elicitation/create", params=form)
        return types.InputRequiredResult(result_type="input_required", input_requests={"row": request})
    if said.action != "accept":
        raise ToolError("not answered")
    return f"row {said.content['value']}"


@server.prompt
def greet(who: str) -> str:
    return f"Greet {who}"


@server.resource("test://text")
def text() -> str:
    return "some text"


@server.resource("test://item/{number}")
def item(number: int) -> str:
    return f"item {number}"


@server.completion
async def complete(reference: Any, argument: Any, context: Any) -> types.Completion:
    values = [name for name in ("Ada", "Alan", "Grace") if name.startswith(argument.value)]
    return types.Completion(values=values, total=len(values), has_more=False)


def main(arguments: list[str]) -> None:
    if arguments[0] == "stdio":
        server.run("stdio", show_banner=False)
    else:
        server.run("http", host="127.0.0.1", port=int(arguments[1]), show_banner=False)


if __name__ == "__main__":
    main(sys.argv[1:])
