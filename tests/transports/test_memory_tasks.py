"""A call in memory is a task of its own, with a context of its own, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import Client, ConnectionLost, PeerError, Server
from tests.transports.loops import on_both_loops, until

MARK: contextvars.ContextVar[str] = contextvars.ContextVar("MARK", default="unset")


@asynccontextmanager
async def called(tool: Any) -> AsyncIterator[Client]:
    """A client of a server with this tool, which has served another one."""
    server: Server[Any] = Server("tasks")
    server.tool("it")(tool)

    @server.tool
    async def nothing() -> None:
        """Do nothing."""

    async with Client(server) as client:
        await client.call_tool("nothing")
        await asyncio.sleep(0)
        yield client


@on_both_loops
async def test_a_call_has_a_task_and_a_context_of_its_own() -> None:
    tasks: list[object] = []

    async def it() -> str:
        tasks.append(asyncio.current_task())
        before = MARK.get()
        MARK.set("handler")
        return before

    async with called(it) as client:
        MARK.set("caller")
        assert [(await client.call_tool("it")).data for _ in range(3)] == ["unset"] * 3
        assert MARK.get() == "caller"
    assert len(set(tasks)) == 3
    assert asyncio.current_task() not in tasks


@on_both_loops
async def test_a_call_that_waits_goes_on_in_its_context_with_its_own_time_limit() -> None:
    async def it() -> str:
        MARK.set("handler")
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            assert asyncio.current_task() is task
            await asyncio.sleep(0)
        return MARK.get()

    async with called(it) as client:
        for _ in range(3):
            assert (await client.call_tool("it")).data == "handler"


@on_both_loops
async def test_calls_wait_for_the_same_future() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def it() -> int:
        return await future

    async with called(it) as client:
        calls = [asyncio.create_task(client.call_tool("it")) for _ in range(3)]
        await asyncio.sleep(0.01)
        future.set_result(7)
        assert [result.data for result in await asyncio.gather(*calls)] == [7, 7, 7]


@on_both_loops
async def test_a_caller_that_gives_up_cancels_what_the_call_waits_for() -> None:
    inner: list[asyncio.Task[Any]] = []

    async def it() -> None:
        inner.append(asyncio.create_task(asyncio.Event().wait()))
        await inner[0]

    async with called(it) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.call_tool("it")
        await until(lambda: inner[0].cancelled())
        await client.call_tool("nothing")


@on_both_loops
async def test_a_call_that_is_cancelled_before_its_task_has_taken_over_cancels_what_it_waits_for() -> None:
    inner: list[asyncio.Task[Any]] = []

    async def it() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        inner.append(asyncio.create_task(asyncio.Event().wait()))
        await inner[0]

    async with called(it) as client:
        with pytest.raises(PeerError, match="cancelled"):
            await client.call_tool("it")
        assert inner[0].cancelled()
        await client.call_tool("nothing")


@on_both_loops
@pytest.mark.parametrize("waits", [False, True])
async def test_a_call_that_cancels_its_own_task_does_not_touch_its_caller_or_the_next_call(waits: bool) -> None:
    async def it() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if waits:
            await asyncio.sleep(0)
        return "over"

    async with called(it) as client:
        for _ in range(3):
            if waits:
                with pytest.raises(PeerError, match="cancelled"):
                    await client.call_tool("it")
            else:
                assert (await client.call_tool("it")).data == "over"
            await client.call_tool("nothing")
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()


@on_both_loops
async def test_the_task_of_a_call_ends_with_it_where_somebody_waits_for_that() -> None:
    ended: list[object] = []

    async def it() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(ended.append)

    async with called(it) as client:
        await client.call_tool("it")
        await until(lambda: len(ended) == 1)


@on_both_loops
async def test_a_loop_of_calls_lets_others_run() -> None:
    async def it() -> None:
        pass

    async with called(it) as client:
        other = asyncio.create_task(asyncio.sleep(0))
        for _ in range(100_000):
            if other.done():
                break
            await client.call_tool("it")
        assert other.done()


async def test_callers_in_loops_let_others_run_however_many_they_are() -> None:
    between: list[int] = []
    begun = 0

    async def it() -> None:
        nonlocal begun
        begun += 1

    async def calls(client: Client) -> None:
        for _ in range(200):
            await client.call_tool("it")

    async def others() -> None:
        nonlocal begun
        while True:
            between.append(begun)
            begun = 0
            await asyncio.sleep(0)

    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(called(it)) for _ in range(20)]
        ticking = asyncio.create_task(others())
        await asyncio.gather(*map(calls, clients))
        ticking.cancel()
    assert sum(between) + begun == 20 * 200
    assert max(between) <= len(clients)


async def test_a_call_does_not_see_the_exception_that_its_caller_handles() -> None:
    async def it() -> str:
        return repr(sys.exception())

    async with called(it) as client:
        try:
            raise KeyError("of the client")
        except KeyError:
            assert (await client.call_tool("it")).data == "None"


async def test_the_task_of_a_call_is_made_by_the_factory_of_the_loop() -> None:
    class Mine(asyncio.Task[Any]):
        pass

    def factory(loop: Any, work: Any, **options: Any) -> Mine:
        return Mine(work, loop=loop, **options)

    async def it() -> str:
        return type(asyncio.current_task()).__name__

    own: Any = factory
    asyncio.get_running_loop().set_task_factory(own)
    async with called(it) as client:
        assert (await client.call_tool("it")).data == "Mine"


async def test_calls_within_calls_need_no_more_stack_than_one() -> None:
    depth = sys.getrecursionlimit() // 10
    async with contextlib.AsyncExitStack() as stack:
        inner: Client | None = None
        for _ in range(depth):
            inner = await stack.enter_async_context(called(_asking(inner)))
        assert inner is not None
        assert (await inner.call_tool("it")).data == depth


def _asking(client: Client | None) -> Any:
    async def it() -> int:
        return 1 if client is None else 1 + int((await client.call_tool("it")).data)

    return it


async def test_a_call_may_close_the_connection() -> None:
    async def it() -> None:
        await client.close()

    async with called(it) as client:
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionLost):
                await client.call_tool("it")
