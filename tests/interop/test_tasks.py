"""Tasks of 2025-11-25 between Gemel and others: their clients on our server, and our client on their server.

The client of FastMCP 2 is not among them: it reads the answer to a task as a tool result, as drafts had it. That of FastMCP 4 has
tasks in 2026-07-28 only: tests/cluster has it, and the official TypeScript client of the extension.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, ElicitFormParams, PeerError, TaskInfo, ToolCallError
from tests.interop import peers
from tests.ports import free_port
from tests.proxy.foreign import REQUIRED, listening

pytestmark = pytest.mark.timeout(120)
PEERS = peers.locate()
SERVER = str(Path(__file__).with_name("tasks_server.py"))
SUPPORT = {"add": "optional", "greet": "optional", "hang": "optional", "fail": "required"}


def needs(group: str, program: Path) -> None:
    """Skip the test where a group of peers isn't installed."""
    if REQUIRED:
        peers.install(frozenset({group}))
    elif not program.exists():
        pytest.skip("the peer isn't installed: `make interop`")


def command(client: str) -> list[str]:
    """The command of a foreign client; what it uses follows."""
    if client == "typescript":
        needs("node", PEERS.node)
        return [str(PEERS.node), str(peers.script("client_tasks_typescript_v1.mjs"))]
    python = PEERS.python("mcp-1.26")
    needs("mcp-1.26", python)
    return [str(python), str(peers.script("client_tasks_python_v1.py"))]


async def report_of(*words: str) -> dict[str, Any]:
    """What a foreign client prints."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()[-3000:]
    return dict(json.loads(output.decode().strip().splitlines()[-1]))


@asynccontextmanager
async def target(server: list[str], transport: str, *more: str) -> AsyncIterator[list[str]]:
    """What a client connects to: the command of a server, or the URL of one that is served for the length of the block."""
    if transport == "stdio":
        yield [*server, "stdio", "0", *more]
    else:
        port = free_port()
        async with listening([*server, "http", str(port), *more], port):
            yield [f"http://127.0.0.1:{port}/mcp"]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("client", ["python", "typescript"])
async def test_a_foreign_client_uses_our_tasks(client: str, transport: str, store: str, tmp_path: Path) -> None:
    """Results, the states on the way, input in the middle, an error, and a cancellation."""
    backend = [f"sqlite:///{tmp_path}/tasks.db"] if store == "sqlite" else []
    words = command(client)
    async with target([sys.executable, SERVER], transport, *backend) as served:
        report = await report_of(*words, *served)
    assert report["support"] == SUPPORT
    for name, text, end in (
        ("add", "5", "completed"),
        ("greet", "Hello, Ada!", "completed"),
        ("fail", "no luck", "failed"),
    ):
        told = report[name]
        assert (told["created"], told["ttl"], told["text"]) == ("working", 60_000, text)
        assert told["error"] is (name == "fail")
        assert told["end"] == end
        assert set(told["statuses"]) <= {"working", "input_required", end}
    assert "input_required" in report["greet"]["statuses"]
    assert (report["hang"]["status"], report["hang"]["later"]) == ("cancelled", "cancelled")
    assert report["hang"]["codes"] == [-32602, -32603]  # it has ended already, and has no result


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_our_client_uses_tasks_of_the_official_server(transport: str) -> None:
    python = PEERS.python("mcp-1.26")
    needs("mcp-1.26", python)

    def answer(form: ElicitFormParams) -> dict[str, str]:
        return dict.fromkeys(form.requested_schema["properties"], "Ada")

    async with target([str(python), str(peers.script("server_tasks_python_v1.py"))], transport) as served:
        place: Any = served if transport == "stdio" else served[0]
        async with Client(place, era="2025", on_elicit=answer) as client:
            states: list[TaskInfo] = []
            task = await client.call_tool("add", {"a": 2, "b": 3}, task=True, task_ttl=60)
            assert task.id is not None
            assert task.info.ttl == 60
            assert (await task.result(total=20, on_status=states.append)).text == "5"
            assert states[-1].status == "completed"
            assert (await (await client.tasks.resume(task.id)).result(total=20)).text == "5"
            task = await client.call_tool("greet", task=True)
            assert (await task.result(total=20, on_status=states.append)).text == "Hello, Ada!"
            task = await client.call_tool("fail", task=True)
            with pytest.raises(ToolCallError, match="no luck"):
                await task.result(total=20)
            task = await client.call_tool("break", task=True)
            assert (await task.wait(total=20)).status == "failed"
            task = await client.call_tool("hang", task=True)
            await task.cancel()
            assert (await task.refresh()).status == "cancelled"
            with pytest.raises(PeerError):
                await client.tasks.cancel("nobody")
