"""A server as a program, with tools that go on although they were cancelled: `stubborn.py http`, or stdio."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Any

from hinge import Limits, Server

server: Server[Any] = Server("stubborn", limits=Limits(drain=0.2, teardown=0.2))


@server.tool
async def go_on() -> str:
    """Not to be stopped."""
    print("begun", file=sys.stderr, flush=True)
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@server.tool
async def leave_a_task() -> str:
    """Answers, but what it began goes on."""
    kept.add(asyncio.create_task(go_on()))
    return "left"


kept: set[asyncio.Task[str]] = set()

if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("http", port=0)
    else:
        server.run()
