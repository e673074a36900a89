"""Several processes on one port: all serve, the dead are replaced, all end together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import StartError
from gemel.transports.http.server.workers.run import run_workers
from tests.transports.http_rig import Log, Site, make_server, process, text_of

PROGRAM = """
import os, sys
from gemel import Limits
from gemel.transports.http.server.app import HttpApp
from gemel.transports.http.server.workers.run import run_workers
from tests.transports.http_rig import Log, make_server

server = make_server(Log(), limits=Limits(drain=0.5))

@server.tool
async def pid() -> int:
    return os.getpid()

@server.tool
async def die() -> None:
    os._exit(9)

async def on_start() -> None:
    if FAILS:
        raise OSError("no database")

run_workers(HttpApp(lambda: server.serve, sessions=False, limits=server.limits, on_start=on_start), workers=2, port=0)
"""


@asynccontextmanager
async def workers(tmp_path: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Site]]:
    async with process(tmp_path, PROGRAM.replace("FAILS", "False")) as running:
        assert running.stderr is not None
        line = (await running.stderr.readline()).decode()
        site = Site(int(line.rsplit(":", 1)[1].split("/")[0]))
        try:
            yield running, site
        finally:
            site.close()


async def pids(site: Site, count: int) -> set[int]:
    """Call until so many processes have answered."""
    found: set[int] = set()
    async with asyncio.timeout(20):
        while len(found) < count:
            reply = await (await site.tool("pid")).reply()
            found.add(int(text_of(reply.json())))
    return found


async def gone(pid: int) -> None:
    """Wait until there is no such process."""
    async with asyncio.timeout(10):
        while os.path.exists(f"/proc/{pid}"):  # noqa: ASYNC110, ASYNC240 - nothing tells of it
            await asyncio.sleep(0.05)


async def test_all_workers_serve_and_end_with_the_parent(tmp_path: Path) -> None:
    async with workers(tmp_path) as (running, site):
        found = await pids(site, 2)
        assert running.pid not in found
        running.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.wait(), 5) == 0
        for pid in found:
            await gone(pid)


async def test_open_streams_do_not_hold_the_end(tmp_path: Path) -> None:
    async with workers(tmp_path) as (running, site):
        stream = await site.tool("stream", count=1)
        await stream.head()
        running.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(running.wait(), 5) == 0
        assert "progress" in (await stream.message())["method"]
        assert "stopping" in (await stream.message())["error"]["message"]


async def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    async with workers(tmp_path) as (_, site):
        before = await pids(site, 2)
        await asyncio.sleep(2.1)  # an early death counts as a failed start
        dying = await site.tool("die")
        with contextlib.suppress(ConnectionError):
            assert await dying.reader.read() == b""
        after = await pids(site, 2)
        while len(after | before) < 3:
            after |= await pids(site, 1)
        assert len(before - after) <= 1


async def test_workers_do_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    async with workers(tmp_path) as (running, site):
        found = await pids(site, 2)
        running.kill()
        await running.wait()
        for pid in found:
            await gone(pid)


async def test_workers_that_can_not_start_end_the_server_with_words(tmp_path: Path) -> None:
    async with process(tmp_path, PROGRAM.replace("FAILS", "True")) as running:
        _, errors = await asyncio.wait_for(running.communicate(), 20)
        assert running.returncode == 1
        assert b"no database" in errors
        assert b"StartError" in errors


def test_handshake_sessions_and_several_workers_exclude_each_other() -> None:
    app: Any = make_server(Log()).http_app()
    with pytest.raises(StartError, match="sessions=False"):
        run_workers(app, workers=2, port=0)


@pytest.mark.parametrize("backend", [None, "sqlite:///state.db"])
async def test_http_with_sse_and_several_workers_exclude_each_other(tmp_path: Path, backend: str | None) -> None:
    """Its clients send to the process that has their stream. That is said in one line."""
    program = (
        f"from gemel import Server\nServer('x', backend={backend!r}).run('http', port=0, workers=2, sse_path='/sse')"
    )
    async with process(tmp_path, program) as running:
        _, errors = await asyncio.wait_for(running.communicate(), 20)
        assert running.returncode == 1
        assert errors.decode().splitlines()[-1].startswith("gemel: sse_path needs one worker: ")
