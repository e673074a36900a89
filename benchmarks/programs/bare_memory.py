"""Encode the call, decode it, run it, encode the answer, decode it: what any wire costs even without one."""

import asyncio
from typing import Any

import msgspec

from benchmarks.programs.bare_wire import Arguments, Params, Request, answer, encode
from benchmarks.programs.memory_main import on_command

decode_answer = msgspec.json.Decoder().decode


async def call(number: int) -> int:
    request = encode(Request(id=number, method="tools/call", params=Params(name="add", arguments=Arguments(number, 7))))
    result: Any = decode_answer(await answer(request))
    return int(result["result"]["structuredContent"]["result"])


asyncio.run(on_command(call))
