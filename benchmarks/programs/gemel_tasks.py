"""What a task and a step cost: `gemel_tasks.py URL task|step`. A call is one task without steps, or one step.

The client asks for the state of a task when its tool has ended. Its share is included, the process of Redis is not.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from benchmarks.programs.memory_main import on_command
from gemel import Client, Context, Server
from gemel.client.extensions import ClientExtension
from gemel.extensions.tasks import TaskLimits, Tasks

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


async def main(url: str, what: str) -> None:
    """Run on command."""
    server: Server[Any] = Server("bench", backend=url)
    server.add_extension(Tasks(ttl=5.0, limits=TaskLimits(tasks=10_000_000, tasks_per_caller=10_000_000)))
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


asyncio.run(main(*sys.argv[1:]))
