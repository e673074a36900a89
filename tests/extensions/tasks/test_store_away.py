"""A store of tasks that can't be used now: an error with a retry delay, and never one that hides that a task may run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from hinge import BackendError, Client, PeerError, Server, Tasks
from hinge.backends import MemoryBackend, SqliteBackend


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
