"""The server of the hostile cases, made with the official Python SDK: it has what `tests/hostile/target.py` has.

Runs in the peers environment. Arguments: `stdio`, or `http PORT`. Options of the SDK have their defaults.
"""

import sys
from typing import Annotated, Any

import anyio
import mcp_types as types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

server = MCPServer("target", version="1")


class Row(BaseModel):
    value: int


def ask_row() -> Elicit[Row]:
    return Elicit("Which row?", Row)


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def echo(text: str) -> str:
    return text


@server.tool()
def fail() -> str:
    raise ToolError("it failed")


@server.tool()
def crash() -> str:
    raise RuntimeError("the password is 1234")


@server.tool()
async def wait() -> str:
    await anyio.Event().wait()
    return ""


@server.tool()
async def count(ctx: Context, upto: int) -> int:
    for number in range(upto):
        await ctx.report_progress(number, upto)
    return upto


@server.tool(structured_output=False)
async def ask(row: Annotated[Row, Resolve(ask_row)]) -> str:
    return f"row {row.value}"


@server.prompt()
def greet(who: str) -> str:
    return f"Greet {who}"


@server.resource("test://text")
def text() -> str:
    return "some text"


@server.resource("test://item/{number}")
def item(number: int) -> str:
    return f"item {number}"


@server.completion()
async def complete(reference: Any, argument: Any, context: Any) -> types.Completion:
    values = [name for name in ("Ada", "Alan", "Grace") if name.startswith(argument.value)]
    return types.Completion(values=values, total=len(values), has_more=False)


def main(arguments: list[str]) -> None:
    if arguments[0] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
