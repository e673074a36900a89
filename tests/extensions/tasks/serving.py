"""A server with tools that become tasks, and ends of conversations that use tasks in either form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gemel import Context, InvalidParams, Server, ToolError
from gemel.extensions.tasks import Tasks
from tests.server.bare_end import Answer, BareEnd, Era
from tests.support import Origin

TASKS = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
DECLARED: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {}, "sampling": {}, "roots": {}}
ASKED: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


class Log:
    """What the tools did."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        #: Set when the tool `wait` has begun.
        self.started = asyncio.Event()
        self.ended: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    def stamp(self) -> int:
        """Note that it was called, and how often."""
        self.begun.append("stamped")
        return len(self.begun)

    def gate(self, name: str) -> asyncio.Event:
        """What the tool `wait` waits for."""
        return self.gates.setdefault(name, asyncio.Event())


def serving(log: Log | None = None, **options: Any) -> Server[Any]:
    """A server with tools of all kinds; `options` are those of Tasks, with `server` for those of the server."""
    log = log or Log()
    server: Server[Any] = Server("tasks", **options.pop("server", {}))
    tasks = server.add_extension(Tasks(**{"poll_interval": 0.01, **options}))

    @server.tool
    async def plain(name: str) -> str:
        return f"Hello, {name}!"

    @server.tool(task=True)
    async def wait(name: str, ctx: Context[Any]) -> str:
        log.begun.append(name)
        log.started.set()
        try:
            await ctx.report_progress(1, 2, "half")
            await log.gate(name).wait()
        except asyncio.CancelledError:
            log.ended.append(name)
            raise
        return f"{name} is done"

    @server.tool(task="required")
    async def fail() -> str:
        raise ToolError("no luck")

    @server.tool(task=True)
    async def refuse() -> str:
        raise InvalidParams("not like this", {"why": "because"})

    @server.tool(task=True)
    async def ask(ctx: Context[Any]) -> str:
        first, second = await asyncio.gather(ctx.elicit("First?", str), ctx.elicit("Second?", str))
        return f"{first} {second}"

    @server.tool(task=True)
    async def think(ctx: Context[Any]) -> str:
        roots = await ctx.list_roots()
        return f"{(await ctx.sample('Hm?')).text} in {roots[0].uri}"

    @server.tool(task="required", task_start="handler")
    async def late(ctx: Context[Any]) -> str:
        name = await ctx.elicit("Your name?", str)
        stamp = await ctx.step(log.stamp)
        tasks.begin(ctx)
        return f"{name} {stamp}"

    return server


@asynccontextmanager
async def conversation(
    server: Server[Any], era: Era, *, origin: Origin | None = None, answer: Answer | None = None, **options: Any
) -> AsyncIterator[BareEnd]:
    """A client of either form, while the server serves."""
    capabilities = options.pop("capabilities", DECLARED if era == "2026" else ASKED)
    async with server.running(), BareEnd(server, era, capabilities=capabilities, origin=origin, answer=answer) as end:
        yield end


async def start(end: BareEnd, name: str, arguments: dict[str, Any] | None = None, **task: Any) -> dict[str, Any]:
    """Call a tool as a task; the task as it was answered, in the names of either form."""
    params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
    if end.era == "2025":
        params["task"] = task
    result = await end.ask("tools/call", params)
    return result["task"] if end.era == "2025" else result


async def until(end: BareEnd, task_id: str, *states: str) -> dict[str, Any]:
    """Ask for a task until it has one of these states."""
    task: dict[str, Any] = {}
    for _ in range(500):
        task = await end.ask("tasks/get", {"taskId": task_id})
        if task["status"] in states:
            return task
        await asyncio.sleep(0.01)
    raise AssertionError(f"the task is still {task['status']}, not {states}")
