"""Servers that stop or load their code anew while clients call: no call is lost, and none runs twice."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from gemel import Client
from tests.cluster.processes import ROOT, Program, until_ready
from tests.cluster.round_robin import RoundRobin
from tests.ports import free_port
from tests.transports.http.server.workers.rig import exists, kill, several, until

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

PROGRAM = """
import asyncio, os
from typing import Any
from gemel import Context, Server

server = Server("stopping", backend="sqlite:///state.db")

def log(key: str) -> None:
    journal = os.open("journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, f"{key}\\n".encode())
    os.close(journal)

@server.tool
async def note(key: str, seconds: float = 0.0) -> int:
    log(key)
    await asyncio.sleep(seconds)
    return os.getpid()

@server.tool
async def ask(ctx: Context[Any], key: str) -> str:
    answer = await ctx.elicit("Well?", str)
    log(key)
    return answer
"""
ERAS: tuple[Literal["2025", "2026"], ...] = ("2025", "2026")


class Callers:
    """Clients of both eras that call tools which change something, until they are told to stop."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._journal = directory / "journal"
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.made = 0
        self.answered: list[str] = []
        self.failures: list[str] = []

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[Callers]:
        """Call while the block runs, and let the last calls end."""
        async with AsyncExitStack() as stack:
            for era in ERAS:
                for _ in range(3):
                    client = Client(self._url, era=era, on_elicit=_answer)
                    await stack.enter_async_context(client)
                    self._tasks += [
                        asyncio.ensure_future(self._repeat(client, tool, pause))
                        # A connection is used all the time, now and then, and for long.
                        for tool, pause in (("note", 0.01), ("note", 1.5), ("long", 0.01), ("ask", 0.3))
                    ]
            try:
                yield self
            finally:
                self._stopping.set()
                await asyncio.gather(*self._tasks)

    async def _repeat(self, client: Client, tool: str, pause: float) -> None:
        while not self._stopping.is_set():
            self.made += 1
            key = f"{client.era} {tool} {self.made}".replace(" ", "-")
            arguments: dict[str, Any] = {"key": key, "seconds": 1.0} if tool == "long" else {"key": key}
            try:
                async with asyncio.timeout(40):
                    await client.call_tool("note" if tool == "long" else tool, arguments)
                self.answered.append(key)
            except Exception as exc:
                self.failures.append(f"{key}: {type(exc).__name__} {exc}")
            await asyncio.sleep(random.uniform(0, pause))

    async def progress(self) -> None:
        """Wait until more calls were answered."""
        count = len(self.answered) + 100
        await until(lambda: len(self.answered) >= count or self.failures, 30)

    def judge(self) -> None:
        """No call failed, and each that was answered ran once."""
        assert not self.failures
        runs = Counter(self._journal.read_text().split())
        assert {key: runs[key] for key in self.answered if runs[key] != 1} == {}
        assert len(self.answered) == self.made


def _are_gone(pids: list[int]) -> bool:
    return not any(map(exists, pids))


async def _answer(_form: Any) -> dict[str, str]:
    await asyncio.sleep(0.1)  # so that a process stops meanwhile
    return {"value": "yes"}


@pytest.mark.timeout(120)
async def test_workers_that_are_stopped_one_after_the_other_lose_no_call(tmp_path: Path) -> None:
    async with several(tmp_path, program=PROGRAM) as server:
        async with Callers(f"http://127.0.0.1:{server.site.port}/mcp", tmp_path).calling() as callers:
            for _ in range(3):
                await callers.progress()
                for pid in await server.settled(3):
                    kill(pid, signal.SIGTERM)
                    await callers.progress()
                    await server.settled(3)
        callers.judge()


@pytest.mark.timeout(120)
async def test_a_reload_loses_no_call(tmp_path: Path) -> None:
    async with several(tmp_path, program=PROGRAM) as server:
        async with Callers(f"http://127.0.0.1:{server.site.port}/mcp", tmp_path).calling() as callers:
            for _ in range(3):
                await callers.progress()
                before = await server.settled(3)
                server.signal(signal.SIGHUP)
                await until(partial(_are_gone, before), 40, lambda: server.log)
                await server.settled(3)
        callers.judge()


@pytest.mark.timeout(120)
async def test_replicas_that_are_restarted_one_after_the_other_lose_no_call(tmp_path: Path) -> None:
    file = tmp_path / "replica.py"
    file.write_text(PROGRAM)
    ports = [free_port() for _ in range(3)]
    command = (sys.executable, "-m", "gemel", "run", str(file), "--http", "--port")
    replicas = [
        Program([*command, str(port)], tmp_path, str(port), {"PYTHONPATH": str(ROOT / "src")}) for port in ports
    ]
    try:
        for replica, port in zip(replicas, ports, strict=True):
            replica.start()
            await until_ready(port)
        async with RoundRobin(ports).running() as proxy:
            async with Callers(f"http://127.0.0.1:{proxy.port}/mcp", tmp_path).calling() as callers:
                for _ in range(2):
                    for replica, port in zip(replicas, ports, strict=True):
                        await callers.progress()
                        await replica.end()
                        await callers.progress()
                        replica.start()
                        await until_ready(port)
            callers.judge()
    finally:
        for replica in replicas:
            await replica.end()
