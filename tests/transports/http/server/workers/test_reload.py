"""SIGHUP loads the code anew: no call fails, the port stays, and code that can't be loaded changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.transports.http.server.workers.rig import PROGRAM, Load, children, exists, kill, several, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def test_a_reload_under_load_loses_no_call(tmp_path: Path) -> None:
    async with several(tmp_path) as server:
        load = Load(server, connections=10, rate=200)
        waiting = asyncio.ensure_future(server.call("wait", seconds=2))
        old = set(await server.settled(3))
        for number in ("two", "three"):
            server.file.write_text(PROGRAM.replace('"one"', f'"{number}"'))
            server.signal(signal.SIGHUP)
            await until(partial(_answers_end_with, load, number), 30, lambda: server.log)
            assert not old & set(await server.settled(3))
            await until(partial(_are_gone, old), 30)
            old = set(await server.settled(3))
        assert int(await waiting)  # it began before the reload, at a worker that ended after it
        await load.stop()
        assert not load.failures
        assert len(load.answers) > 100
        # In between both answer; the old code never answers again after the old workers have ended.
        assert list(dict.fromkeys(load.answers)) == ["one", "two", "three"]
        await until(lambda: _only(server.running.pid), 10)  # the process that started the new workers


async def test_code_that_can_not_be_loaded_leaves_the_old_workers(tmp_path: Path) -> None:
    async with several(tmp_path) as server:
        before = await server.settled(3)
        server.file.write_text(PROGRAM + "\nraise RuntimeError('half written')\n")
        server.signal(signal.SIGHUP)
        await server.line("The reload failed")
        assert "half written" in server.log
        assert await server.settled(3) == before
        assert await server.call("version") == "one"
        server.file.write_text(PROGRAM.replace('"one"', '"two"'))
        server.signal(signal.SIGHUP)
        await server.line("Reloaded")
        await until(lambda: not any(map(exists, before)), 30)
        assert await server.call("version") == "two"


async def test_code_that_hangs_while_it_is_loaded_is_told_of(tmp_path: Path) -> None:
    async with several(tmp_path, "--worker-timeout", "1") as server:
        before = await server.settled(3)
        server.file.write_text("import time\ntime.sleep(600)\n" + PROGRAM)
        server.signal(signal.SIGHUP)
        await server.line("The reload is not ready after 1 s")
        await server.line("The reload is not ready after 2 s")
        assert await server.settled(3) == before
        assert await server.call("version") == "one"
        server.file.write_text(PROGRAM.replace('"one"', '"two"'))
        server.signal(signal.SIGHUP)
        await server.line("Reloaded")
        await until(lambda: not any(map(exists, before)), 30)
        assert await server.call("version") == "two"


async def test_workers_that_fail_to_start_leave_the_old_ones(tmp_path: Path) -> None:
    failing = (
        "\nfrom contextlib import asynccontextmanager\n"
        "@asynccontextmanager\n"
        "async def lifespan(server):\n"
        "    raise OSError('no database')\n"
        "    yield\n"
    )
    async with several(tmp_path) as server:
        before = await server.settled(3)
        server.file.write_text(
            (PROGRAM + failing).replace('eras="2026")', 'eras="2026", lifespan=lambda server: lifespan(server))')
        )
        server.signal(signal.SIGHUP)
        await server.line("The reload failed")
        assert "no database" in server.log
        assert await server.settled(3) == before


async def test_reloads_that_come_together_leave_one_set_of_workers(tmp_path: Path) -> None:
    async with several(tmp_path, workers=2) as server:
        before = await server.settled(2)
        for number in ("two", "three", "four"):
            server.file.write_text(PROGRAM.replace('"one"', f'"{number}"'))
            server.signal(signal.SIGHUP)
            await asyncio.sleep(0.05)
        await server.line("Reloaded")
        await until(partial(_are_gone, set(before)), 30)
        ((leader, _),) = await until(lambda: _only(server.running.pid), 30)
        assert {pid for pid, _ in children(leader)} == set(await server.settled(2))
        assert await server.call("version") == "four"
        assert "The reload failed" not in server.log


async def test_after_a_reload_everything_ends_together(tmp_path: Path) -> None:
    async with several(tmp_path) as server:
        server.signal(signal.SIGHUP)
        await server.line("Reloaded")
        workers = await server.settled(3)
        ((leader, _),) = await until(lambda: _only(server.running.pid), 20)
        server.signal(signal.SIGTERM)
        assert await asyncio.wait_for(server.running.wait(), 10) == 0
        await until(lambda: not any(map(exists, [leader, *workers])), 10)


async def test_after_a_reload_the_death_of_the_first_process_ends_all(tmp_path: Path) -> None:
    async with several(tmp_path) as server:
        server.signal(signal.SIGHUP)
        await server.line("Reloaded")
        workers = await server.settled(3)
        ((leader, _),) = await until(lambda: _only(server.running.pid), 20)
        server.running.kill()
        await server.running.wait()
        await until(lambda: not any(map(exists, [leader, *workers])), 10)


async def test_the_process_of_a_reload_is_replaced(tmp_path: Path) -> None:
    async with several(tmp_path) as server:
        server.signal(signal.SIGHUP)
        await server.line("Reloaded")
        workers = await server.settled(3)
        ((leader, _),) = await until(lambda: _only(server.running.pid), 20)
        kill(leader)
        await until(lambda: not any(map(exists, [leader, *workers])), 20)
        assert not set(await server.settled(3)) & set(workers)
        worker = (await server.settled(3))[0]
        kill(worker)
        await until(lambda: not exists(worker), 10)
        await server.settled(3)


async def test_a_reload_keeps_directory_environment_and_options(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (tmp_path / "settings.env").write_text("GREETING=hello\n")
    program = PROGRAM.replace('"one"', 'os.environ["GREETING"] + os.getcwd()')
    async with several(tmp_path, "--cwd", "app", "--env-file", "settings.env", program=program) as server:
        assert await server.call("version") == f"hello{folder}"
        (tmp_path / "settings.env").write_text("GREETING=goodbye\n")
        server.signal(signal.SIGHUP)
        await server.line("Reloaded")
        await until(lambda: _only(server.running.pid), 20)
        assert await server.call("version") == f"goodbye{folder}"
        assert not os.environ.get("GEMEL_SUCCESSOR_OF")


def _answers_end_with(load: Load, answer: str) -> bool:
    return load.answers[-1:] == [answer]


def _are_gone(pids: set[int]) -> bool:
    return not any(map(exists, pids))


def _only(pid: int) -> list[tuple[int, str]] | None:
    processes = children(pid)
    return processes if len(processes) == 1 else None
