"""What the tests of several processes share: `gemel run --workers` as a process, its workers, and calls to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.transports.http_rig import ROOT, Site, modern_call, text_of

PROGRAM = """
import asyncio, os, time
from gemel import Limits, Server

server = Server("several", limits=Limits(drain=2.0, stall=0.3), eras="2026")
VERSION = "one"

@server.tool
async def version() -> str:
    return VERSION

@server.tool
async def pid() -> int:
    return os.getpid()

@server.tool
async def block(seconds: float) -> str:
    time.sleep(seconds)
    return "over"

@server.tool
async def wait(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()
"""


class Several:
    """A server of several processes: the first process, what it prints, and where it serves."""

    def __init__(self, running: asyncio.subprocess.Process, file: Path) -> None:
        self.running = running
        self.file = file
        self.lines: list[str] = []
        self.site = Site(0)
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        assert self.running.stderr is not None
        while line := (await self.running.stderr.readline()).decode():
            self.lines.append(line.rstrip())

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    async def line(self, pattern: str, seconds: float = 20) -> str:
        """Wait for a line that matches."""

        def search() -> str | None:
            return next((line for line in self.lines if re.search(pattern, line)), None)

        return str(await until(search, seconds, lambda: self.log))

    async def call(self, name: str, /, **arguments: Any) -> str:
        """Call a tool on a connection of its own."""
        wire = await self.site.tool(name, **arguments)
        try:
            return text_of((await wire.reply()).json())
        finally:
            wire.close()
            self.site.wires.remove(wire)

    async def health(self) -> dict[str, Any]:
        reply = await self.site.ask({}, None, "GET", "/health")
        return dict(reply.json())

    async def settled(self, count: int) -> list[int]:
        """Wait until so many workers, and no others, are ready. Returns their process ids."""

        async def ready() -> list[int] | None:
            health = await self.health()
            states = [worker["state"] for worker in health["workers"]]
            return [worker["pid"] for worker in health["workers"]] if states == ["ready"] * count else None

        return list(await until(ready, 30, lambda: self.log))

    def signal(self, number: int) -> None:
        self.running.send_signal(number)

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.running.kill()
        await self.running.wait()
        async with asyncio.timeout(20):
            await self._reading  # its end comes with the last worker: they follow the first process
        self.site.close()


async def until(condition: Callable[[], Any], seconds: float, explain: Callable[[], str] = str) -> Any:
    """Wait until a condition, which may be async, gives something true. Fails with an explanation."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert asyncio.get_running_loop().time() < end, explain()
        await asyncio.sleep(0.03)


@asynccontextmanager
async def several(directory: Path, *words: str, workers: int = 3, program: str = PROGRAM) -> AsyncIterator[Several]:
    """`gemel run --http --workers` on a free port, until all workers are ready."""
    file = directory / "several.py"
    file.write_text(program)
    command = ("-m", "gemel", "run", str(file), "--http", "--port", "0", "--workers", str(workers), *words)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", "TMPDIR": str(directory)}
    running = await asyncio.create_subprocess_exec(
        sys.executable, *command, stderr=asyncio.subprocess.PIPE, env=environment, cwd=directory
    )
    server = Several(running, file)
    try:
        url = await server.line("Serving MCP at")
        server.site.port = int(url.rsplit(":", 1)[1].split("/")[0])
        await server.settled(workers)
        yield server
    finally:
        await server.end()


class Load:
    """Calls of `version`, on connections that are kept, at a steady rate, until `stop`."""

    def __init__(self, server: Several, connections: int = 8, rate: float = 200.0) -> None:
        self._server = server
        self._pause = connections / rate
        self.answers: list[str] = []
        self.failures: list[str] = []
        self._stopping = False
        self._tasks = [asyncio.get_running_loop().create_task(self._run()) for _ in range(connections)]

    async def _run(self) -> None:
        wire = None
        headers, body = modern_call("version")
        while not self._stopping:
            try:
                if wire is None:
                    wire = await self._server.site.open()
                await wire.send("POST", headers, _encode(body))
                reply = await wire.reply()
                self.answers.append(text_of(reply.json()) if reply.status == 200 else f"status {reply.status}")
                if reply.status != 200:
                    self.failures.append(f"status {reply.status}: {reply.body!r}")
                if reply.headers.get("connection") == "close":
                    wire.close()
                    wire = None
            except (OSError, EOFError) as exc:
                self.failures.append(repr(exc))
                wire = None
            await asyncio.sleep(self._pause)

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)


def _encode(body: Any) -> bytes:
    import json

    return json.dumps(body).encode()


def exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def descriptors(pid: int) -> int:
    """How many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def children(pid: int) -> list[tuple[int, str]]:
    """The processes that a process has started and their states; Z is one that ended and was not waited for."""
    result = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                state, parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:2]
                if int(parent) == pid:
                    result.append((int(name), state))
    return result


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
