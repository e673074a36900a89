"""A script that asks goes on in another process, and what it has done is not done again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemel import Client
from tests.backends.redis_server import RedisServer, needs_redis
from tests.code.test_mode import run
from tests.ports import free_port
from tests.source import ROOT

pytest.importorskip("pydantic_monty")

PROGRAM = """
    import os
    from pathlib import Path
    from gemel import Context, Server
    from gemel.code import CodeMode

    server = Server("shop", backend=os.environ["SHOP_BACKEND"], middleware=[CodeMode()], state_keys=[b"k" * 32])

    def log(line: str) -> None:
        with Path(os.environ["SHOP_LOG"]).open("a") as file:
            file.write(f"{line} {os.getpid()}\\n")

    @server.tool
    def charge(card: str) -> str:
        log(f"charge {card}")
        return "charged"

    @server.tool
    def load(size: int) -> str:
        log(f"load {size}")
        return "x" * size

    @server.tool
    async def agree(ctx: Context, text: str) -> bool:
        return await ctx.elicit(text, bool)
"""
CODE = """
    import asyncio
    from shop import agree, charge, load
    paid = await charge(card="1")
    sizes = [len(one) for one in await asyncio.gather(load(size=10), load(size=100_000), load(size=900_000))]
    first = await agree(text="First?")
    again = len(await load(size=70_000))
    second = await agree(text="Second?")
    [paid, sizes, first, again, second, await charge(card="2")]
"""


class Process:
    """The server in a process, which can be killed and comes back on the same port."""

    def __init__(self, directory: Path, backend: str) -> None:
        self.port = free_port()
        self.log = directory / "log"
        self.pids: list[int] = []
        self._directory = directory
        self._file = directory / "shop.py"
        self._file.write_text(textwrap.dedent(PROGRAM))
        self._environment = {
            **os.environ,
            "SHOP_BACKEND": backend,
            "SHOP_LOG": str(self.log),
            "PYTHONPATH": str(ROOT / "src"),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        command = [sys.executable, "-m", "gemel", "run", str(self._file), "--http", "--port", str(self.port)]
        with (self._directory / "output").open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=self._environment)
        self.pids.append(self._process.pid)

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        self.spawn()
        assert self._process is not None
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    assert self._process.poll() is None, (self._directory / "output").read_text()
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    return

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/state.db"
        return
    redis = RedisServer(tmp_path / "redis")
    redis.start()
    try:
        yield redis.url
    finally:
        redis.kill()


@pytest.mark.timeout(90)
async def test_a_script_goes_on_in_another_process(backend: str, tmp_path: Path) -> None:
    """The process is killed while each of two questions is open; results have up to 900 kB."""
    process = Process(tmp_path, backend)
    asked: list[str] = []

    async def answer(form: Any) -> dict[str, bool]:
        asked.append(form.message)
        process.kill()
        await process.start()
        return {"value": True}

    try:
        await process.start()
        async with Client(f"http://127.0.0.1:{process.port}/mcp", era="2026", on_elicit=answer) as client:
            value = await run(client, textwrap.dedent(CODE))
    finally:
        process.kill()
    assert value == '["charged",[10,100000,900000],true,70000,true,"charged"]'
    assert asked == ["First?", "Second?"]
    first, second, third = process.pids
    assert sorted(process.log.read_text().splitlines()) == sorted(
        [
            *(f"{what} {first}" for what in ("charge 1", "load 10", "load 100000", "load 900000")),
            f"load 70000 {second}",
            f"charge 2 {third}",
        ]
    )
