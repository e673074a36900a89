"""The process that asked is killed: another one shows the page, takes the answer, and goes on with the call."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import Client
from tests.ask_by_page.visitor import Visitor, link_in
from tests.backends.redis_server import RedisServer, needs_redis
from tests.cluster.processes import Program, until_ready
from tests.ports import free_port

SHOP = """
import os
import sys

from gemel import Context, Limits, Server
from gemel.ask_by_page import AskByPage
from gemel.auth import StaticTokens

ADDRESS, STORE, CHARGES = sys.argv[1:]


def who(scope, headers):
    return headers.get("x-user")


server = Server(
    "shop",
    auth=StaticTokens({"ann-token": "ann"}),
    ask=AskByPage(ADDRESS, who=who),
    backend=STORE,
    limits=Limits(step_bytes=100),
)


def charge(item: str) -> str:
    with open(CHARGES, "a") as file:
        file.write(item + chr(10))
    return item * 100  # which a client would not carry


@server.tool
async def buy(ctx: Context, item: str) -> str:
    charged = await ctx.step(charge, item)
    size = await ctx.elicit("Which size?", str)
    return f"{size} {charged[:len(item)]} from {os.getpid()}"
"""


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shop.db"
        return
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server.url
    server.kill()


@asynccontextmanager
async def shop(folder: Path, store: str, port: int) -> AsyncIterator[Program]:
    """A process of the shop."""
    (folder / "shop.py").write_text(SHOP)
    address = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "gemel", "run", "shop.py", "--http", "--port", str(port)]
    program = Program([*words, "--", address, store, str(folder / "charges")], folder, f"shop-{port}", {})
    program.start()
    try:
        await until_ready(port)
        yield program
    finally:
        await program.end()


def caller(port: int, era: Any) -> Client:
    return Client(f"http://127.0.0.1:{port}/mcp", era=era, headers={"Authorization": "Bearer ann-token"})


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_call_goes_on_after_the_process_that_asked_was_killed(store: str, era: str, tmp_path: Path) -> None:
    port = free_port()
    async with shop(tmp_path, store, port) as first, caller(port, era) as client:
        link = link_in((await client.call_tool("buy", {"item": "hat"}, raise_on_error=False)).text)
        pid = first.pid
        await first.end(signal.SIGKILL)
    async with shop(tmp_path, store, port) as second, Visitor(**{"x-user": "ann"}) as browser:
        assert second.pid != pid
        page = await browser.open(link)
        assert "Which size?" in page.text
        await browser.send(page, {"Your answer": "small"})
        async with caller(port, era) as client:
            assert (await client.call_tool("buy", {"item": "hat"})).text == f"small hat from {second.pid}"
    assert (tmp_path / "charges").read_text() == "hat\n"
