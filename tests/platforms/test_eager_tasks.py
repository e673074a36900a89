"""A host may let all tasks of its loop begin at once, as `asyncio.eager_task_factory` of Python 3.12 does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import Client, Context, Server
from tests.support import EraName
from tests.transports.http_rig import serving


def eager(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    """That of asyncio, or what Python 3.11 has instead of it: the first step of a task, run before its time."""
    if sys.version_info >= (3, 12):
        return asyncio.eager_task_factory(loop, work, **options)
    task = asyncio.Task(work, loop=loop, **options)
    if not loop.is_running():
        return task
    tasks: Any = vars(asyncio.tasks)["_current_tasks"]
    step, caller = vars(loop)["_ready"].pop(), tasks.pop(loop, None)
    try:
        step._run()
    finally:
        if caller is not None:
            tasks[loop] = caller
    return task


def build() -> Server[Any]:
    server: Server[Any] = Server("eager")

    @server.tool
    async def quick(ctx: Context, n: int) -> int:
        await ctx.report_progress(1, 2)
        await ctx.info("on the way")
        return n

    @server.tool
    async def slow(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    @server.tool
    def in_thread(n: int) -> int:
        return n

    @server.tool
    async def asks(ctx: Context) -> str:
        return await ctx.elicit("Who?")

    return server


@asynccontextmanager
async def connected(kind: str, era: EraName) -> AsyncIterator[Client]:
    async def who(*_: object) -> dict[str, str]:
        return {"value": "Ada"}

    options: dict[str, Any] = {"era": era, "on_elicit": who}
    if kind == "http":
        async with serving(build()) as site, Client(f"http://127.0.0.1:{site.port}/mcp", **options) as client:
            yield client
    else:
        program = "from tests.platforms.test_eager_tasks import build; build().run()"
        target: Any = build() if kind == "memory" else [sys.executable, "-c", program]
        async with Client(target, **options) as client:
            yield client


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("kind", ["memory", "stdio", "http"])
async def test_everything_works_where_tasks_begin_at_once(kind: str, era: EraName) -> None:
    factory: Any = eager
    asyncio.get_running_loop().set_task_factory(factory)
    async with asyncio.timeout(20), connected(kind, era) as client:
        await client.list_tools()
        seen: list[float] = []
        for tool in ("quick", "slow", "in_thread"):
            calls = [client.call_tool(tool, {"n": n}, on_progress=lambda p: seen.append(p.progress)) for n in range(5)]
            assert [result.data for result in await asyncio.gather(*calls)] == list(range(5))
        assert seen == [1] * 5
        assert (await client.call_tool("asks")).data == "Ada"
        given_up = asyncio.create_task(client.call_tool("slow", {"n": 1}))
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert (await client.call_tool("quick", {"n": 1})).data == 1
