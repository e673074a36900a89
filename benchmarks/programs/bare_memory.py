"""Encode the call, decode it, run it, encode the answer, decode it: what any wire costs even without one.

With an argument the tool runs in a thread of asyncio's executor, and the event loop is uvloop's.
"""

import asyncio
import operator
import sys
from functools import partial
from typing import Any

import msgspec
import uvloop

from benchmarks.programs.bare_wire import Add, Arguments, Params, Request, add, answer, encode
from benchmarks.programs.memory_main import on_command

decode_answer = msgspec.json.Decoder().decode


async def add_in_thread(a: int, b: int) -> int:
    return await asyncio.get_running_loop().run_in_executor(None, operator.add, a, b)


async def call(tool: Add, number: int) -> int:
    request = encode(Request(id=number, method="tools/call", params=Params(name="add", arguments=Arguments(number, 7))))
    result: Any = decode_answer(await answer(request, tool))
    return int(result["result"]["structuredContent"]["result"])


if sys.argv[1:]:
    uvloop.run(on_command(partial(call, add_in_thread)))
else:
    asyncio.run(on_command(partial(call, add)))
