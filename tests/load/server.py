"""The server under load: `python -m tests.load.server --http PORT`. Its tool `figures` says what it holds."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from hinge import Changed, Context, Limits, Server

LIMITS = Limits(
    calls=20_000,
    all_calls=20_000,
    streams=20_000,
    connections=20_000,
    sessions=20_000,
    body=32 * 1024 * 1024,
    stream_wait=2.0,
)


def build() -> Server[Any]:
    """Return the server."""
    server: Server[Any] = Server("load", limits=LIMITS, log_level=None)
    gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @server.tool
    async def wait(gate: str) -> str:
        await gates[gate].wait()
        return gate

    @server.tool
    async def release(gate: str) -> str:
        gates.pop(gate).set()
        return gate

    @server.tool
    async def big(ctx: Context[Any], size: int) -> str:
        await ctx.report_progress(1, 1)
        return "x" * size

    @server.tool
    async def count(ctx: Context[Any], upto: int) -> int:
        for number in range(upto):
            await ctx.report_progress(number, upto)
        return upto

    @server.tool
    async def change(first: int, number: int) -> int:
        for place in range(first, first + number):
            server.notify(Changed("resource", f"load://item/{place}"))
            if place % 100 == 0:
                await asyncio.sleep(0)
        return number

    @server.tool
    async def figures() -> str:
        return json.dumps(measured())

    @server.resource("load://item/{number}")
    async def item(number: int) -> str:
        return str(number)

    return server


def measured() -> dict[str, int]:
    """Return what this process holds: bytes of memory, open files, tasks."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "files": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
    }


if __name__ == "__main__":
    build().run("http", port=int(sys.argv[-1]), host="127.0.0.1")
