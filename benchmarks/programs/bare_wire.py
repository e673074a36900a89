"""The least that decodes the call, runs the tool and encodes its answer: the floor under everybody."""

from collections.abc import Awaitable, Callable

import msgspec

#: As long as `TOOLS` of `wire.py` expects, whose imports would count as a part of the start.
TEXT = "0123456789" * 100_000
Add = Callable[[int, int], Awaitable[int]]


class Arguments(msgspec.Struct):
    a: int
    b: int


class Params(msgspec.Struct):
    name: str
    arguments: Arguments


class Request(msgspec.Struct):
    id: int | str
    method: str
    params: Params


decode = msgspec.json.Decoder(Request).decode
encode = msgspec.json.Encoder().encode


async def add(a: int, b: int) -> int:
    return a + b


async def answer(body: bytes, tool: Add = add) -> bytes:
    """The encoded response to an encoded call."""
    request = decode(body)
    value = await tool(request.params.arguments.a, request.params.arguments.b)
    return encode(
        {
            "jsonrpc": "2.0",
            "id": request.id,
            "result": {
                "resultType": "complete",
                "content": [{"type": "text", "text": str(value)}],
                "structuredContent": {"result": value},
                "isError": False,
            },
        }
    )


async def text(a: int, b: int) -> str:
    return TEXT


async def answer_text(body: bytes) -> bytes:
    """The same for a tool that returns a text of a megabyte."""
    request = decode(body)
    value = await text(request.params.arguments.a, request.params.arguments.b)
    result = {"resultType": "complete", "content": [{"type": "text", "text": value}], "isError": False}
    return encode({"jsonrpc": "2.0", "id": request.id, "result": result})
