"""What a task and a step cost: `hinge_tasks.py memory|sqlite|redis task|step`. A call is one task without steps, or one step.

The client asks for the state of a task when its tool has ended. Its share is included, the process of Redis is not.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.programs.memory_main import on_command
from hinge import Client, Context, Server
from hinge.client.extensions import ClientExtension
from hinge.extensions.tasks import Tasks

STEPS = 50


class Poll(ClientExtension):
    """Waits for the results of tasks."""

    id = "io.modelcontextprotocol/tasks"
    eras = ("2026",)
    result_types = ("task",)

    def attach(self, client: Any) -> None:
        self.client = client
        self.ended = asyncio.Event()

    async def resolve(self, ctx: Any, result: dict[str, Any]) -> Any:
        await self.ended.wait()
        self.ended.clear()
        while True:
            task = await self.client.request("tasks/get", {"taskId": result["taskId"]})
            if task["status"] == "completed":
                return task["result"]
            assert task["status"] == "working", task
            await asyncio.sleep(0.0005)


@contextmanager
def backend_url(kind: str) -> Iterator[str]:
    """The URL of a store of its own."""
    if kind == "memory":
        yield "memory://"
        return
    with tempfile.TemporaryDirectory() as directory:
        if kind == "sqlite":
            yield f"sqlite:///{Path(directory) / 'state.db'}"
            return
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        assert program is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--appendonly", "yes", "--save", ""]
        with open(os.devnull, "wb") as nothing:
            redis = subprocess.Popen([program, *options], stdin=subprocess.DEVNULL, stdout=nothing)
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert redis.poll() is None
            yield f"redis://127.0.0.1:{port}"
        finally:
            redis.terminate()
            redis.wait()


async def main(url: str, what: str) -> None:
    """Run on command."""
    server: Server[Any] = Server("bench", backend=url)
    server.add_extension(Tasks(ttl=5.0, most=10_000_000))
    poll = Poll()

    def same(number: int) -> int:
        return number

    @server.tool(task="required")
    async def add(a: int, steps: int, ctx: Context[Any]) -> int:
        """Add 7, after some steps."""
        for number in range(steps):
            await ctx.step(same, number)
        poll.ended.set()
        return a + 7

    client = Client(server)
    client.add_extension(poll)
    async with server.running(), client:

        async def call(number: int) -> int:
            if what == "step" and number % STEPS:
                return number + 7  # a task of so many steps counts as so many calls
            result = await client.call_tool("add", {"a": number, "steps": STEPS if what == "step" else 0})
            return int(result.content[0].text)

        await on_command(call)


with backend_url(sys.argv[1]) as address:
    asyncio.run(main(address, sys.argv[2]))
