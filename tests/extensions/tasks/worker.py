"""A server with tasks as one process of several: `python -m tests.extensions.tasks.worker BACKEND PORT NOTES`.

Its tools note what they do in a file that all processes append to: the order of its lines is the order of what happened.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from gemel import Context, Server
from gemel.backends import backend_for
from gemel.extensions.tasks import Tasks
from gemel.extensions.tasks.backend_engine import BackendEngine

#: Seconds of the lease of a process.
LEASE = 2.0


def serve(url: str, port: int, notes: str) -> None:
    """Serve until a signal."""
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(*words: object) -> None:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())

    backend = backend_for(url)
    server: Server[Any] = Server("durable", backend=backend)
    server.add_extension(Tasks(poll_interval=0.05, engine=BackendEngine(backend, lease=LEASE, tries=3, grace=2.0)))

    @server.tool(task="required")
    async def work(name: str, steps: int, pause: float, ctx: Context[Any], retry: bool = True) -> list[int]:
        """Take some steps."""

        async def step(number: int, beside: object) -> int:
            note("begin", name, number, ctx.step.key, os.getpid())
            await asyncio.sleep(pause)
            note("end", name, number, ctx.step.key, os.getpid())
            return number * number

        return [await ctx.step.options(retry=retry)(step, number, ctx) for number in range(steps)]

    @server.tool(task="required")
    async def ask(name: str, ctx: Context[Any]) -> str:
        """Take a step, ask, take another one."""

        async def step(number: int) -> int:
            note("begin", name, number, ctx.step.key, os.getpid())
            return number

        first = await ctx.step(step, 1)
        answer = await ctx.elicit("Go on?", str)
        return f"{first} {answer} {await ctx.step(step, 2)}"

    @server.tool(task="required")
    async def die(name: str) -> None:
        """End the process."""
        note("begin", name, 0, "", os.getpid())
        os._exit(9)

    server.run("http", port=port)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
