"""A store that is full for a while, or has lost its last write, loses no task and repeats no step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from gemel import BackendError, Client, Context, Overloaded, PeerError, Server, Tasks, ToolCallError
from gemel.backends import MemoryBackend, SqliteBackend
from gemel.backends.keys import make_key
from gemel.extensions.tasks.backend_engine import BackendEngine
from gemel.extensions.tasks.index import BUCKETS
from tests.backends.redis_server import needs_redis, redis_server

#: Seconds of the lease of a process. A third of it is more than the longest pause between two tries to record a result.
LEASE = 4.0

eras = pytest.mark.parametrize("era", ["2025", "2026"])
failures = pytest.mark.parametrize("failure", [Overloaded("the store is full"), BackendError("the store is away")])


class Troubled(MemoryBackend):
    """A store whose writes fail so many times from a moment on."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception = Overloaded("full")
        self.fails = 0

    def _fail(self) -> None:
        if self.fails:
            self.fails -= 1
            raise self.failure

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        self._fail()
        await super().set(key, value, ttl=ttl)

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        self._fail()
        return await super().replace(key, expected, value, ttl=ttl)

    async def append(self, log: str, entries: Any, *, ttl: float, most: int = 1000, after: int | None = None) -> int:
        self._fail()
        return await super().append(log, entries, ttl=ttl, most=most, after=after)


def paying(backend: Troubled, failure: Exception, begins: str, paid: list[str], *, retry: bool) -> Server[Any]:
    """A server whose task pays, and whose store fails from a moment on."""
    server: Server[Any] = Server("shop", backend=backend)
    server.add_extension(Tasks(poll_interval=0.05))

    def fail(moment: str) -> None:
        if moment == begins:
            backend.failure, backend.fails = failure, 3

    @server.tool(task=True)
    async def pay(ctx: Context) -> str:
        async def charge() -> str:
            paid.append(ctx.step.key)
            fail("in the step")
            return "paid"

        result = await ctx.step.options(retry=retry)(charge)
        fail("before the question")
        agreed = await ctx.elicit("Send a receipt?", bool)
        fail("at the end")
        return f"{result} {agreed}"

    return server


@eras
@failures
@pytest.mark.parametrize("retry", [True, False])
@pytest.mark.parametrize("begins", ["in the step", "before the question", "at the end"])
async def test_what_was_done_waits_for_a_store_that_is_full_or_away(
    era: Literal["2025", "2026"], failure: Exception, begins: str, retry: bool
) -> None:
    backend, paid = Troubled(), list[str]()
    server = paying(backend, failure, begins, paid, retry=retry)
    async with Client(server, era=era, on_elicit=lambda form: {"value": True}) as client:
        task = await client.call_tool("pay", task=True)
        assert (await task.result()).text == "paid True"
    assert len(paid) == 1
    assert not backend.fails


async def test_a_store_that_stays_full_does_not_end_a_task_whose_step_was_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried again, as after the death of a process: with `retry=False` the outcome is unknown, and said to be."""
    monkeypatch.setattr("gemel.extensions.tasks.stored_tasks.PATIENCE", 0.0)
    backend, paid = Troubled(), list[str]()
    server = paying(backend, Overloaded("the store is full"), "in the step", paid, retry=False)
    async with Client(server, era="2026") as client:
        task = await client.call_tool("pay", task=True)
        with pytest.raises(PeerError, match="outcome is unknown"):
            await task.result()
    assert len(paid) == 1


async def test_an_error_of_the_store_of_a_step_is_that_of_its_task() -> None:
    """Not one of the store of tasks, for which the task would be run again."""
    server: Server[Any] = Server("shop")
    server.add_extension(Tasks(poll_interval=0.05))

    @server.tool(task=True)
    async def read(ctx: Context) -> str:
        async def query() -> str:
            raise BackendError("the store of the tool is away")

        return await ctx.step(query)

    async with Client(server, era="2026") as client:
        task = await client.call_tool("read", task=True)
        with pytest.raises(ToolCallError):
            await task.result()


async def forget_index(backend: SqliteBackend, server: Server[Any]) -> None:
    """What a replica of the store does not know that takes over before it got the last writes."""
    part = server.backend.part_of(backend)
    for number in range(BUCKETS):
        await part.delete(make_key("task-engine", str(number)))


@eras
async def test_a_task_that_the_index_has_lost_is_run_when_it_is_asked_for(
    era: Literal["2025", "2026"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gemel.extensions.tasks.tasks._LOST", 0.1)
    store = SqliteBackend(tmp_path / "state.db")

    def process(work: Callable[[], Any]) -> Server[Any]:
        server: Server[Any] = Server("jobs", backend=store)
        server.add_extension(Tasks(poll_interval=0.05))

        @server.tool(name="job", task=True)
        async def job() -> str:
            return str(await work())

        return server

    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    first = process(hang)
    async with Client(first, era=era) as client:
        task = await client.call_tool("job", task=True)
        await begun.wait()
    await forget_index(store, first)

    async def end() -> str:
        return "done"

    async with Client(process(end), era=era) as client:
        again = await client.tasks.resume(str(task.id), tool="job")
        assert (await again.result()).text == "done"
    assert f"The task {task.id} was lost by the backend" in caplog.text
    await store.close()


@needs_redis
async def test_a_task_that_runs_while_the_store_loses_its_last_writes_ends(tmp_path: Path) -> None:
    """As in a failover to a replica that did not get them: the task is run again from what is there."""
    ran: list[str] = []
    with redis_server(tmp_path, {"appendonly": "no"}) as redis:
        server: Server[Any] = Server("shop", backend=redis.url)
        server.add_extension(Tasks(poll_interval=0.05))

        async def first() -> str:
            if not ran:
                await asyncio.to_thread(redis.ask, "SAVE")
            ran.append("first")
            return "one"

        async def second() -> str:
            if ran == ["first"]:  # which is recorded
                redis.kill()
                await asyncio.to_thread(redis.start)
            ran.append("second")
            return "two"

        @server.tool(task=True)
        async def job(ctx: Context) -> str:
            return f"{await ctx.step(first)} {await ctx.step(second)}"

        async with Client(server, era="2026") as client:
            task = await client.call_tool("job", {}, task=True)
            assert (await task.result(total=30)).text == "one two"
    assert ran == ["first", "second", "first", "second"]


@needs_redis
@pytest.mark.long
@pytest.mark.parametrize("in_step", [True, False])
async def test_a_result_is_kept_though_the_store_hangs_for_longer_than_the_lease(tmp_path: Path, in_step: bool) -> None:
    """Whatever process goes on with the task, what has its result does not run again."""
    began, paid, runs = asyncio.Event(), asyncio.Event(), list[str]()

    async def charge() -> str:
        runs.append("charge")
        began.set()
        await paid.wait()
        return "paid"

    def make_server(url: str) -> Server[Any]:
        server: Server[Any] = Server("shop", backend=url)
        server.add_extension(Tasks(poll_interval=0.05, engine=BackendEngine(server.backend, lease=LEASE)))

        @server.tool(task=True)
        async def pay(ctx: Context) -> str:
            return await (ctx.step(charge) if in_step else charge())

        return server

    with redis_server(tmp_path / "redis") as redis:
        servers = [make_server(f"{redis.url}/0?timeout=1") for _ in range(2)]
        async with Client(servers[0], era="2026") as client, Client(servers[1], era="2026") as other:
            task = await client.call_tool("pay", task=True)
            await began.wait()
            redis.pause()
            paid.set()
            await asyncio.sleep(LEASE + 1.0)
            redis.resume()
            async with asyncio.timeout(60):
                while True:
                    with suppress(PeerError):
                        assert (await (await other.tasks.resume(str(task.id))).result()).text == "paid"
                        break
                    await asyncio.sleep(0.1)
        for server in servers:
            await server.backend.close()
    assert runs == ["charge"]
