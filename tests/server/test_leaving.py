"""Who says when a server ends: its operator, by a signal; no function that calls sys.exit() or raises KeyboardInterrupt."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import CallError, Client, PeerError, Server
from tests.server import leaving
from tests.support import EraName

PROGRAM = [sys.executable, "-m", "tests.server.leaving"]
WAYS = pytest.mark.parametrize("way", ["memory", "stdio", "unix"])
ERAS = pytest.mark.parametrize("era", ["2025", "2026"])


@asynccontextmanager
async def on_socket(path: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The server as a program, and where it listens."""
    process = await asyncio.create_subprocess_exec(*PROGRAM, str(path), stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        assert b"unix:" in await process.stderr.readline()
        yield process, f"unix:{path}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


@asynccontextmanager
async def using(way: str, era: EraName, path: Path) -> AsyncIterator[Client]:
    """A client for which one connection has to do."""
    options: dict[str, Any] = {"era": era, "reconnect": False}
    if way == "unix":
        async with on_socket(path) as (_, url), Client(url, **options) as client:
            yield client
    elif way == "stdio":
        async with Client(PROGRAM, stderr="discard", **options) as client:
            yield client
    else:
        async with Client(leaving.server, **options) as client:
            yield client


@WAYS
@ERAS
async def test_a_function_that_would_end_the_process_fails_its_own_call_and_nothing_else(
    way: str, era: EraName, tmp_path: Path
) -> None:
    """TOOL-19: sys.exit(), an interrupt that nobody typed, the end of a generator that is none."""
    async with using(way, era, tmp_path / "socket") as client:
        for how in ("exit", "interrupt"):
            for tool in ("async", "sync", "inline", "limited", "cleaning"):
                result = await client.call_tool(tool, {"how": how}, raise_on_error=False)
                assert result.is_error
                assert "failed unexpectedly" in result.text
        for how in leaving.WAYS:
            with pytest.raises(PeerError, match="Internal server error"):
                await client.get_prompt("prompt", {"how": how})
            with pytest.raises(PeerError, match="Internal server error"):
                await client.read_resource(f"data://{how}")
        with pytest.raises(PeerError, match="Internal server error"):
            await client.call_tool("async", {"how": "generator"})
        assert (await client.call_tool("add", {"a": 1, "b": 2}, returns=int)).data == 3


@pytest.mark.parametrize(("how", "code"), [("exit", 3), ("interrupt", 1)])
async def test_in_a_task_that_a_function_begins_it_ends_the_process_which_says_why(
    how: str, code: int, tmp_path: Path
) -> None:
    """asyncio's own rule: nobody can tell such a task from one that is to end the program. No caller is left waiting."""
    async with on_socket(tmp_path / "socket") as (process, url), asyncio.timeout(20):
        async with Client(url, reconnect=False) as client:
            with pytest.raises(CallError):
                await client.call_tool("task", {"how": how})
        _, said = await process.communicate()
    assert process.returncode == code
    assert b"was raised in a task, which ends the process" in said


@ERAS
async def test_a_real_ctrl_c_ends_the_server_whatever_was_raised_before(era: EraName, tmp_path: Path) -> None:
    async with (
        asyncio.timeout(20),
        on_socket(tmp_path / "socket") as (process, url),
        Client(url, era=era, reconnect=False) as client,
    ):
        assert (await client.call_tool("async", {"how": "interrupt"}, raise_on_error=False)).is_error
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        with pytest.raises(CallError):
            await client.call_tool("add", {"a": 1, "b": 2})


@ERAS
async def test_a_tool_whose_awaited_task_was_cancelled_fails_as_by_any_error(era: EraName) -> None:
    server: Server[Any] = Server("cancelled")

    @server.tool
    async def wait() -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    async with Client(server, era=era) as client:
        result = await client.call_tool("wait", raise_on_error=False)
        assert (result.is_error, result.text) == (True, "Tool 'wait' failed unexpectedly. The server's log says why.")
