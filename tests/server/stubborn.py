"""A server as a program, with tools that go on although they were cancelled: `stubborn.py http`, a socket's path, or stdio.

With `embedded` in front of the path, the program runs the event loop itself; with `thread`, it serves stdio in a thread.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gemel import Context, Limits, Server

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


@server.tool
async def stop_the_server(ctx: Context, obedient: bool, stream: bool) -> str:
    """Runs until the server ends it, and not even then if it isn't obedient."""
    if stream:
        await ctx.report_progress(1)
    os.kill(os.getpid(), signal.SIGTERM)
    if not obedient:
        await go_on()
    await asyncio.sleep(3600)
    return "never"


@server.tool(blocking=False)
def block(until: str) -> str:
    """Holds the event loop until a file exists."""
    print("begun", file=sys.stderr, flush=True)
    while not Path(until).exists():
        time.sleep(0.01)
    return "done"


kept: set[asyncio.Task[str]] = set()

if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run(server.run_async("socket", path=sys.argv[2]))
    elif sys.argv[1:] == ["thread"]:
        serving = threading.Thread(target=server.run)
        serving.start()
        serving.join()
    elif len(sys.argv) > 1 and sys.argv[1] != "http":
        server.run("socket", path=sys.argv[1])
    elif len(sys.argv) > 1:
        server.run("http", port=0)
    else:
        server.run()
