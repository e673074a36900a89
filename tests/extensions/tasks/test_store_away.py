"""A store of tasks that can't be used now: an error with a retry delay, and never one that hides that a task may run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from gemel import BackendError, Client, Context, PeerError, Server, Tasks, ToolCallError
from gemel.backends import MemoryBackend, SqliteBackend


class Failing(MemoryBackend):
    """Fails as told, as a store does that is restarted."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: Callable[[str], bool] = lambda key: False

    def _check(self, key: str) -> None:
        if self.fails(key):
            raise BackendError("away", retry_after_ms=1500)

    async def get(self, key: str) -> bytes | None:
        self._check(key)
        return await super().get(key)

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        self._check(key)
        return await super().replace(key, expected, value, ttl=ttl)


def make_server(backend: Any) -> Server[Any]:
    server: Server[Any] = Server("jobs", backend=backend)
    server.add_extension(Tasks())

    @server.tool(task=True)
    async def work() -> str:
        return "done"

    return server


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_locked_file_is_told_with_a_delay(tmp_path: Path, era: Literal["2025", "2026"]) -> None:
    backend = SqliteBackend(tmp_path / "state.db", busy_timeout=0.05)
    async with Client(make_server(backend), era=era) as client:
        await (await client.call_tool("work", task=True)).result()
        blocker = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(PeerError) as caught:
            await client.call_tool("work", task=True)
        blocker.execute("ROLLBACK")
        blocker.close()
        assert caught.value.code == 429
        assert caught.value.data["retryAfterMs"] >= 1
        assert (await (await client.call_tool("work", task=True)).result()).text == "done"
    await backend.close()


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_the_state_of_a_task_is_asked_for_again(era: Literal["2025", "2026"]) -> None:
    backend = Failing()
    async with Client(make_server(backend), era=era) as client:
        task = await client.call_tool("work", task=True)
        await task.result()
        backend.fails = lambda key: True
        with pytest.raises(PeerError) as caught:
            await task.refresh()
        assert (caught.value.code, caught.value.data) == (429, {"retryAfterMs": 1500})
        backend.fails = lambda key: False
        assert (await task.refresh()).status == "completed"


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("as_task", [False, True])
async def test_a_tool_whose_own_store_is_away_says_when_that_may_be_back(
    era: Literal["2025", "2026"], as_task: bool
) -> None:
    """Not that it may be repeated: it may have run in part."""
    server = make_server(MemoryBackend())

    @server.tool(task=True)
    async def read() -> str:
        raise BackendError("redis://secret@host is away", retry_after_ms=1500)

    @server.resource("store://value")
    async def value() -> str:
        raise BackendError("redis://secret@host is away", retry_after_ms=1500)

    async with Client(server, era=era) as client:
        task = await client.call_tool("read", task=True) if as_task else None
        with pytest.raises(ToolCallError) as failed:
            await (client.call_tool("read") if task is None else task.result())
        assert "1.5 seconds" in str(failed.value)
        assert "secret" not in str(failed.value)
        with pytest.raises(PeerError) as refused:
            await client.read_resource("store://value")
        assert (refused.value.code, refused.value.data) == (-32603, {"retryAfterMs": 1500})
        assert "secret" not in str(refused.value)


async def test_a_task_whose_middleware_lost_its_store_says_when_that_may_be_back() -> None:
    server = make_server(MemoryBackend())

    methods: list[str] = []

    async def read(ctx: Context[Any], call_next: Any) -> Any:
        methods.append(ctx.method)
        if methods.count("tools/call") == 2:  # first the request that makes the task, then the task
            raise BackendError("away", retry_after_ms=1500)
        return await call_next(ctx)

    server.add_middleware(read)
    async with Client(server) as client:
        task = await client.call_tool("work", task=True)
        with pytest.raises(PeerError) as failed:
            await task.result()
        assert (failed.value.code, failed.value.data) == (-32603, {"retryAfterMs": 1500})
