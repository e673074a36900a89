"""Runs a test under asyncio and under uvloop, and checks that it left nothing: no task, descriptor, child or thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from tests.leftovers import LASTING_THREADS
from tests.ports import RESERVED

FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@functools.cache
def _settle() -> None:
    """uvloop keeps a pipe for the whole process, opened with its first loop."""
    uvloop.new_event_loop().close()


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The async test once on each event loop; it fails if it leaves anything behind (REL-19)."""

    @functools.wraps(test)
    def run(loop_name: str, **fixtures: Any) -> None:
        _settle()
        before = _belongings()
        with asyncio.Runner(loop_factory=FACTORIES[loop_name]) as runner:
            runner.run(_and_nothing_else(test(**fixtures)))
        after = _belongings()
        for _ in range(100):
            if after == before:
                break
            time.sleep(0.01)  # a thread that has done its work may still have to end
            after = _belongings()
        assert after == before, f"left behind: {after - before or before - after}"

    parameters = list(inspect.signature(test).parameters.values())
    loop_name = inspect.Parameter("loop_name", inspect.Parameter.KEYWORD_ONLY)
    changed: Any = run
    changed.__signature__ = inspect.Signature([*parameters, loop_name])
    del changed.__wrapped__
    marked: Callable[..., None] = pytest.mark.parametrize("loop_name", list(FACTORIES))(run)
    return marked


async def _and_nothing_else(test: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(30):
        await test
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left behind: {left}"


def _belongings() -> set[str]:
    """What this process holds: descriptors, threads, children (dead ones too)."""
    held = {f"fd {fd} {_target(fd)}" for fd in os.listdir("/proc/self/fd") if int(fd) not in RESERVED}
    events = {name for name in held if name.endswith("[eventfd]")}
    names = [thread.name for thread in threading.enumerate()]
    lasting = sum(name in LASTING_THREADS for name in names)  # each has an eventfd, and ends when it likes
    held = held - events | {f"eventfd {number}" for number in range(lasting, len(events))}
    held |= {f"thread {name}" for name in names if name not in LASTING_THREADS}
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        held.add("a child process")
    return {thing for thing in held if not thing.endswith(" gone")}


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return "gone"


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (the tests look from outside, there is nothing to be told by)
            await asyncio.sleep(0.001)
