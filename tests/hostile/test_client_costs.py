"""What a hostile peer may cost a process, mostly that of a client: turns of other tasks, bytes, lines of the log."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Limits, Server
from gemel.transports.http.client.responses import read_start
from gemel.transports.stream.subprocess import Stdio
from tests.client.puppet import Puppet, done, legacy, modern
from tests.hostile.cases import Era, Json
from tests.hostile.client_cases import INITIALIZED, correct, http_response
from tests.hostile.clients import serve_posts
from tests.serving import running
from tests.transports.loops import until

LOG: Json = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
PING: Json = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
#: Messages in one response, and how many of them may be handled between two turns of other tasks.
MANY, AT_ONCE = 5000, 250


class Turns:
    """Counts what happens between two turns of another task."""

    def __init__(self) -> None:
        self.happened = self.most = 0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()

    async def _watch(self) -> None:
        while True:
            before = self.happened
            await asyncio.sleep(0)
            self.most = max(self.most, self.happened - before)


def stream_of(*texts: bytes) -> bytes:
    """An HTTP response with an event stream."""
    body = b"".join(b"data: " + text + b"\n\n" for text in texts)
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def test_many_events_that_arrive_at_once_let_others_have_their_turn() -> None:
    turns, log = Turns(), json.dumps(LOG).encode()

    def count(_: object) -> None:
        turns.happened += 1

    def choose(message: Json) -> bytes | None:
        if message["method"] != "tools/list":
            return None
        result = {"jsonrpc": "2.0", "id": message["id"], "result": correct("tools/list", "2026")}
        return stream_of(*[log] * MANY, json.dumps(result).encode())

    async with serve_posts(choose) as url, Client(url, era="2026", on_log=count) as client, turns.watched():
        await client.list_tools()
        await until(lambda: turns.happened == MANY)
    assert turns.most <= AT_ONCE


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has named pipes in place of Unix sockets")
async def test_many_batches_that_arrive_at_once_let_others_have_their_turn(tmp_path: Path) -> None:
    """For a server: each line may hold a hundred calls."""
    turns, server = Turns(), Server("victim")

    @server.tool
    async def count() -> None:
        turns.happened += 1

    async with running(server, "socket", path=tmp_path / "s"):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        params = {**INITIALIZED, "protocolVersion": "2025-03-26", "clientInfo": {"name": "x", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params}
        writer.write(json.dumps(hello).encode() + b"\n")
        await reader.readline()
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "count"}}
        for batch in range(20):
            writer.write(json.dumps([{**call, "id": f"{batch}-{number}"} for number in range(100)]).encode() + b"\n")
        async with turns.watched():
            await until(lambda: turns.happened == 2000)
        writer.close()
    assert turns.most <= AT_ONCE


async def test_many_batches_of_one_stream_let_others_have_their_turn() -> None:
    """For a client, of a server of 2025-03-26."""
    turns = Turns()

    def answer_all(message: Json) -> bytes | None:
        if message["method"] == "initialize":
            result = {**INITIALIZED, "protocolVersion": "2025-03-26"}
            return http_response(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())
        if message["method"] != "tools/list":
            return None
        result = {"jsonrpc": "2.0", "id": message["id"], "result": correct("tools/list", "2025")}
        return stream_of(*[json.dumps([LOG] * 100).encode()] * 20, json.dumps(result).encode())

    def count(_: object) -> None:
        turns.happened += 1

    async with serve_posts(answer_all) as url, Client(url, era="2025", on_log=count) as client, turns.watched():
        await client.list_tools()
        await until(lambda: turns.happened == 2000)
    assert turns.most <= AT_ONCE


async def test_a_long_refusal_in_many_pieces_is_read_in_one_go() -> None:
    """Adding each piece to a text of megabytes would take minutes."""

    class Pieces:
        left = 200_000

        async def read(self) -> bytes:
            self.left -= 1
            return b"x" * 100 if self.left >= 0 else b""

        def close(self, *, drain: bool = False) -> None:
            pass

    response: Any = Pieces()
    assert len(await read_start(response, 10**9)) == 20_000_000


#: A child that writes lines without a pause, also after its input was closed.
FLOOD = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    if '"id"' in line:
        print(line.split('"id":')[1].split(",")[0], file=sys.stderr, flush=True)
        break
for _ in range(1000):
    os.write(1, b"x\\n" * 32768)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to ignore")
async def test_what_a_child_writes_after_the_end_takes_no_memory() -> None:
    heard: list[str] = []
    client = Client(Stdio([sys.executable, "-c", FLOOD], stderr=heard.append, patience=1.0), era="2026")
    opening = asyncio.create_task(client.connect())
    await until(lambda: heard)
    opening.cancel()
    tracemalloc.start()
    try:
        await client.close()
        await asyncio.wait([opening])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000


WRONG: tuple[tuple[str, Era, Json], ...] = (
    ("requests that the era does not have", "2026", {"id": "x", "method": "elicitation/create", "params": {}}),
    ("log messages that can't be read", "2026", {"method": "notifications/message", "params": {"level": 5}}),
    ("progress that can't be read", "2026", {"method": "notifications/progress", "params": {"progress": "x"}}),
    ("log messages that can't be read", "2025", {"method": "notifications/message", "params": {"level": 5}}),
)


@pytest.mark.parametrize(("what", "era", "wrong"), WRONG)
async def test_a_server_does_not_fill_the_log(
    what: str, era: Era, wrong: Json, caplog: pytest.LogCaptureFixture
) -> None:
    """Further warnings have the level DEBUG."""

    def call(puppet: Puppet, message: dict[str, Any]) -> Any:
        for _ in range(1000):
            token = {"progressToken": message["params"]["_meta"]["progressToken"]}
            puppet.say({**wrong, "params": {**token, **wrong["params"]}})
        return done()

    puppet = (modern if era == "2026" else legacy)(tools_call=call)
    caplog.set_level(logging.WARNING, "gemel")
    limits = Limits(call_idle=30)
    async with Client(puppet, limits=limits, on_log=print) as client:
        await client.call_tool("x", on_progress=print)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 100 <= len(warnings) <= 101, what
