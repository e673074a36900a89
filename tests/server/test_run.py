"""Running a server in an event loop that is there already, and in one of its own, to the end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hinge import Client, Server
from hinge.server.run import loading

OURS = "io.modelcontextprotocol/"
META = {
    f"{OURS}protocolVersion": "2026-07-28",
    f"{OURS}clientInfo": {"name": "x", "version": "1"},
    f"{OURS}clientCapabilities": {},
}


def counting() -> Server[Any]:
    server: Server[Any] = Server("counting")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return server


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_server_runs_beside_other_things_until_it_is_cancelled(era: Any) -> None:
    announced: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(counting().run_async("http", port=0, announce=announced.set_result))
    async with Client(await announced, era=era) as client:
        assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
    running.cancel()
    await asyncio.wait([running])
    assert running.done()


async def test_a_server_whose_file_is_only_loaded_does_not_run() -> None:
    with loading():
        await counting().run_async("http")
        counting().run()


@pytest.mark.parametrize("route", ["stdio", "http"])
@pytest.mark.parametrize("tool", ["go_on", "leave_a_task"])
async def test_a_process_ends_although_a_tool_does_not(route: str, tool: str) -> None:
    """B-034, REL-12: whoever ignores its cancellation is left behind, with a line in the log."""
    pipe = asyncio.subprocess.PIPE
    words = [sys.executable, "-m", "tests.server.stubborn", route][: 3 + (route == "http")]
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    assert process.stderr is not None
    params = {"name": tool, "arguments": {}, "_meta": META}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    writer = None
    if route == "stdio":
        process.stdin.write(body + b"\n")
    else:
        announced = (await process.stderr.readline()).decode()
        port = int(announced.rpartition("127.0.0.1:")[2].partition("/")[0])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        names = ("mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", f"mcp-name: {tool}")
        head = ["POST /mcp HTTP/1.1", f"host: 127.0.0.1:{port}", "content-type: application/json", *names]
        accept = "accept: application/json, text/event-stream"
        writer.write("\r\n".join([*head, accept, f"content-length: {len(body)}", "", ""]).encode() + body)
    async with asyncio.timeout(20):
        assert await process.stderr.readline() == b"begun\n"
        process.terminate()
        _, log = await process.communicate()
    assert process.returncode == 0
    assert b"goes on although it was cancelled" in log
    assert route == "http" or b"Traceback" not in log
    if writer is not None:
        writer.close()


def test_a_signal_after_the_end_of_input_leaves_no_call_without_its_answer(tmp_path: Path) -> None:
    """REL-12, B-018: the handler hangs in the draining server; its caller still hears that it won't come."""
    program = tmp_path / "hanging.py"
    program.write_text(
        "import asyncio\n"
        "from hinge import Server\n"
        "server = Server('x')\n"
        "@server.tool\n"
        "async def hang() -> str:\n"
        "    print('hanging', flush=True)\n"
        "    await asyncio.sleep(100)\n"
        "    return 'never'\n"
        "server.run()\n"
    )
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, str(program)], **pipes) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stdout is not None
        asked = {"name": "hang", "arguments": {}, "_meta": META}
        process.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": asked}).encode() + b"\n"
        )
        process.stdin.close()
        assert process.stderr.readline() == b"hanging\n"
        process.send_signal(signal.SIGTERM)
        answers = [json.loads(line) for line in process.stdout]
        assert process.wait(20) == 0
    assert [(answer["id"], "error" in answer) for answer in answers] == [(7, True)]
