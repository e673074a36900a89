"""The least that decodes the call, runs the tool and encodes its answer: the floor under everybody."""

from collections.abc import Awaitable, Callable

import msgspec

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
