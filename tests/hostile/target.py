"""The server that the hostile cases are made for: `python -m tests.hostile.target`, or with `--http` or `--socket`.

Another server can be a target, too: cases that use one of these tools are skipped if it does not have them.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from gemel import Context, Limits, Server, ToolError

_LISTS = {"type": "array", "items": {"$ref": "#/$defs/lists"}}
#: Keywords whose errors are expensive to explain: each item, each word of an enum, alternatives at each level.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "values": {"items": {"type": "integer"}},
        "words": {"items": {"enum": [f"word {number}" for number in range(500)]}},
        "lists": {"$ref": "#/$defs/lists"},
    },
    "additionalProperties": False,
    "$defs": {"lists": {"anyOf": [_LISTS, {**_LISTS, "minItems": 1}]}},
}


#: Limits that the cases exceed with little effort.
LIMITS = Limits(body=1024 * 1024, line=2 * 1024 * 1024)


def build(limits: Limits = LIMITS) -> Server[Any]:
    """Return the server."""
    server: Server[Any] = Server("target", version="1", limits=limits)
    server.tool("add")(add)
    server.tool("echo")(echo)
    server.tool("fail")(fail)
    server.tool("crash")(crash)
    server.tool("wait")(wait)
    server.tool("ask")(ask)
    server.tool("count")(count)
    server.tool("by_schema", input_schema=SCHEMA)(by_schema)
    prompt = server.prompt("greet")(greet)
    server.resource("test://text")(text)
    server.resource("test://item/{number}")(item)
    prompt.complete("who")(names)
    return server


def add(a: int, b: int) -> int:
    return a + b


def echo(text: str) -> str:
    return text


def fail() -> str:
    raise ToolError("it failed")


def crash() -> str:
    raise RuntimeError("the password is 1234")


async def wait() -> str:
    await asyncio.Event().wait()
    return ""


async def count(ctx: Context[Any], upto: int) -> int:
    for number in range(upto):
        await ctx.report_progress(number, upto)
    return upto


def by_schema(arguments: dict[str, Any]) -> int:
    return len(arguments)


async def ask(ctx: Context[Any]) -> str:
    return f"row {await ctx.elicit('Which row?', int)}"


def greet(who: str) -> str:
    return f"Greet {who}"


def text() -> str:
    return "some text"


def item(number: int) -> str:
    return f"item {number}"


def names(value: str) -> list[str]:
    return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]


def main(arguments: list[str]) -> None:
    """Run with the default limits."""
    if arguments[0] == "stdio":
        build(Limits()).run()
    else:
        build(Limits()).run("http", port=int(arguments[1]))


if __name__ == "__main__":
    if "--http" in sys.argv:
        build().run("http", port=int(sys.argv[-1]))
    elif "--socket" in sys.argv:
        build().run("socket", port=int(sys.argv[-1]))
    elif len(sys.argv) > 1:
        main(sys.argv[1:])
    else:
        build().run()
