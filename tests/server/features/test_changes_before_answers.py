"""What a call publishes has reached the shared backend before its answer is sent, unless the backend is gone for too long."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from gemel import Changed, ChangesLost, Client, Server, ToolError
from gemel.backends import Backend, ServerBackend, SqliteBackend, backend_for
from gemel.backends.base import Event
from gemel.backends.memory import MemoryBackend
from tests.backends.redis_server import needs_redis, redis_server, until

EDITED = Changed("resource", "note://1")

#: Ends without any clean-up when its call is answered.
PROGRAM = """
import asyncio, os, sys
from gemel import Changed, Client, Server

async def main():
    server = Server("notes", backend=sys.argv[1])

    @server.tool
    async def edit() -> None:
        server.notify(Changed("resource", "note://1"))

    async with Client(server) as client:
        await client.call_tool("edit")
        os._exit(0)

asyncio.run(main())
"""


def make_server(backend: Backend) -> Server[Any]:
    server: Server[Any] = Server("notes", backend=backend)

    @server.tool
    async def edit() -> str:
        server.notify(EDITED)
        return "edited"

    @server.tool
    def edit_in_a_thread() -> str:
        server.notify(EDITED)
        return "edited"

    @server.tool
    async def edit_and_fail() -> None:
        server.notify(EDITED)
        raise ToolError("failed")

    @server.tool
    async def read() -> str:
        return "read"

    @server.tool
    async def add() -> str:
        server.tool("more")(lambda: "more")
        return "added"

    return server


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Another program writes to the file: nobody else can."""
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        blocker.execute("ROLLBACK")
        blocker.close()


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[SqliteBackend]:
    backend = SqliteBackend(tmp_path / "state.db")
    await backend.set("makes", b"the file")
    yield backend
    await backend.close()


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("tool", ["edit", "edit_in_a_thread", "edit_and_fail", "add"])
async def test_an_answer_waits_until_the_change_is_stored(
    tmp_path: Path, backend: SqliteBackend, era: Literal["2025", "2026"], tool: str
) -> None:
    async with Client(make_server(backend), era=era) as client:
        async with locked(tmp_path / "state.db"):
            call = asyncio.ensure_future(client.call_tool(tool, raise_on_error=False))
            assert (await client.call_tool("read")).text == "read", "a call that publishes nothing waits for nothing"
            done, _ = await asyncio.wait([call], timeout=0.3)
            assert not done
        await call
    with sqlite3.connect(tmp_path / "state.db") as db:
        assert len(db.execute("SELECT * FROM changes").fetchall()) >= 1
    db.close()


async def test_the_wait_is_bounded(tmp_path: Path, backend: SqliteBackend, caplog: pytest.LogCaptureFixture) -> None:
    async with Client(make_server(backend)) as client, locked(tmp_path / "state.db"):
        assert (await client.call_tool("edit")).text == "edited"
    assert "answered before other processes are told" in caplog.text


@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=needs_redis)])
async def test_a_process_that_is_killed_after_its_answer_has_told_the_others(tmp_path: Path, store: str) -> None:
    if store == "sqlite":
        await told_after_the_death_of(backend_for(f"sqlite:///{tmp_path}/state.db"), f"sqlite:///{tmp_path}/state.db")
    else:
        with redis_server(tmp_path / "redis") as running:
            await told_after_the_death_of(backend_for(running.url), running.url)


async def told_after_the_death_of(backend: Backend, url: str) -> None:
    heard: list[Event] = []
    stop = ServerBackend(backend, "notes").subscribe(heard.append)
    await backend.set("makes", b"the file")
    if url.startswith("redis"):
        await until(lambda: any(isinstance(event, ChangesLost) for event in heard))  # it is connected
    heard.clear()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for number in range(1, 4):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, url, env=environment)
        assert await process.wait() == 0
        await until(partial(lambda count: len(heard) >= count, number))
    assert heard == [EDITED] * 3
    stop()
    await backend.close()


async def test_a_backend_in_memory_is_not_waited_for() -> None:
    class Counting(MemoryBackend):
        flushed = 0

        async def flush(self) -> None:
            self.flushed += 1

    backend = Counting()
    async with Client(make_server(backend)) as client:
        await client.call_tool("edit")
    assert backend.flushed == 0
