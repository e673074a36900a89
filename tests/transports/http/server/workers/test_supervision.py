"""Workers that die or hang are replaced, as often as it takes; all end with the first process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.transports.http.server.workers.rig import (
    PROGRAM,
    Load,
    Several,
    children,
    descriptors,
    exists,
    kill,
    several,
    until,
)
from tests.transports.http_rig import process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def test_workers_that_are_killed_again_and_again_are_replaced(tmp_path: Path) -> None:
    async with several(tmp_path) as server:
        before = descriptors(server.running.pid)
        load = Load(server)
        killed: set[int] = set()
        for _ in range(4):
            for pid in await server.settled(3):
                kill(pid)
                killed.add(pid)
                await until(partial(_is_gone, pid), 10)
        last = await server.settled(3)
        await load.stop()
        assert len(killed) == 12
        assert not killed & set(last)
        # Only calls that were being served by a killed worker fail, by the end of their connection; none is refused.
        assert load.answers.count("one") == len(load.answers) > 20
        assert not [failure for failure in load.failures if "Refused" in failure or "status" in failure]
        assert descriptors(server.running.pid) == before
        assert sorted(children(server.running.pid))[0][1] != "Z"
        assert {pid for pid, state in children(server.running.pid) if state != "Z"} == set(last)
        assert len(children(server.running.pid)) == 3
        health = await server.health()
        assert [worker["restarts"] for worker in health["workers"]] == [4, 4, 4]


async def test_one_worker_that_always_dies_does_not_end_the_others(tmp_path: Path) -> None:
    """The delay between its starts grows."""
    program = PROGRAM + (
        "\nfrom contextlib import asynccontextmanager\n"
        "@asynccontextmanager\n"
        "async def lifespan(server):\n"
        "    try:\n"
        "        os.close(os.open('first', os.O_CREAT | os.O_EXCL))\n"
        "    except FileExistsError:\n"
        "        raise RuntimeError('the license is in use') from None\n"
        "    yield\n"
    )
    program = program.replace('eras="2026")', 'eras="2026", lifespan=lambda server: lifespan(server))')
    file = tmp_path / "several.py"
    file.write_text(program)
    command = ("-m", "gemel", "run", str(file), "--http", "--port", "0", "--workers", "2")
    async with process(tmp_path, "", *command) as running:
        assert running.stderr is not None
        delays: list[float] = []
        async with asyncio.timeout(30):
            while len(delays) < 6:
                line = (await running.stderr.readline()).decode()
                if "The next one starts in" in line:
                    delays.append(float(line.split()[-2]))
        assert delays[0] <= 0.3
        assert delays[5] >= 4
        assert len(children(running.pid)) == 1
        running.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.wait(), 10) == 0


async def test_a_worker_that_is_stopped_is_replaced(tmp_path: Path) -> None:
    async with several(tmp_path, "--worker-timeout", "1") as server:
        stopped, *others = await server.settled(3)
        os.kill(stopped, signal.SIGSTOP)
        line = await server.line("hangs")
        assert str(stopped) in line
        await until(lambda: not exists(stopped), 10)
        after = await server.settled(3)
        assert stopped not in after
        assert set(others) < set(after)


async def test_a_tool_that_blocks_a_worker_is_named_and_the_worker_replaced(tmp_path: Path) -> None:
    async with several(tmp_path, "--worker-timeout", "1") as server:
        with contextlib.suppress(EOFError, OSError):
            await server.call("block", seconds=60)
        assert "Tool 'block' blocks the event loop" in await server.line("is replaced: ")
        assert "in block()" in server.log
        await server.line("in block$")  # the stacks of all threads
        await server.settled(3)
        assert await server.call("version") == "one"


async def test_without_a_limit_a_tool_may_block(tmp_path: Path) -> None:
    async with several(tmp_path, "--worker-timeout", "0", workers=2) as server:
        assert await server.call("block", seconds=1.5) == "over"
        assert "hangs" not in server.log


async def test_workers_end_with_a_first_process_that_no_longer_read_what_they_sent(tmp_path: Path) -> None:
    async with several(tmp_path, workers=2) as server:
        pids = await server.settled(2)
        server.signal(signal.SIGSTOP)
        await asyncio.sleep(2.5)  # their heartbeats pile up
        server.signal(signal.SIGKILL)
        await until(lambda: not any(map(exists, pids)), 10)


async def test_the_second_signal_kills(tmp_path: Path) -> None:
    async with several(tmp_path) as server:
        pids = await server.settled(3)
        calls = [asyncio.ensure_future(server.call("wait", seconds=60)) for _ in range(6)]
        await until(lambda: _in_flight(server), 10)
        server.signal(signal.SIGINT)
        await asyncio.sleep(0.2)
        server.signal(signal.SIGINT)
        async with asyncio.timeout(1.5):  # the drain takes 2 seconds
            await server.running.wait()
        assert not [pid for pid in pids if exists(pid)]
        await asyncio.gather(*calls, return_exceptions=True)


async def _in_flight(server: Several) -> bool:
    health = await server.health()
    return sum(int(worker["calls"]) for worker in health["workers"]) >= 6


def _is_gone(pid: int) -> bool:
    return not exists(pid)


async def test_the_end_of_the_terminal_ends_the_server(tmp_path: Path) -> None:
    """A SIGHUP that a terminal sends when its window is closed is not a request to reload."""
    (tmp_path / "several.py").write_text(PROGRAM)
    pid, terminal = pty.fork()
    if not pid:
        command = ("-m", "gemel", "run", str(tmp_path / "several.py"), "--http", "--port", "0", "--workers", "2")
        os.execv(sys.executable, (sys.executable, *command))
    printed = b""
    while b"Serving MCP" not in printed:
        printed += await asyncio.to_thread(os.read, terminal, 4096)
    workers = [child for child, _ in children(pid)]
    assert len(workers) == 2
    os.close(terminal)
    await until(lambda: os.waitpid(pid, os.WNOHANG)[0], 10)
    await until(lambda: not any(map(exists, workers)), 10)
