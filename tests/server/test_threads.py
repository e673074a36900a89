"""Sync functions in worker threads: bounded, never on the loop, never lost, and never in the way of the end."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gemel import Client, Context, Server
from gemel.server import threads as module
from gemel.server.threads import THREAD_NAME, Threads


def here() -> str:
    return threading.current_thread().name


async def test_a_sync_function_runs_in_a_thread_of_its_own_kind() -> None:
    pool = Threads(2)
    assert await pool.run(here, {}) == THREAD_NAME
    assert await pool.run(lambda a, b: a + b, {"a": 1, "b": 2}) == 3


async def test_parameters_may_have_any_name() -> None:
    assert await Threads(1).run(lambda self, function: self + function, {"self": 1, "function": 2}) == 3


async def test_no_more_threads_than_the_limit_and_what_comes_on_top_waits() -> None:
    pool, gate = Threads(3), threading.Event()
    running, most = 0, 0
    lock = threading.Lock()

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(5)
        with lock:
            running -= 1
        return number

    tasks = [asyncio.create_task(pool.run(work, {"number": number})) for number in range(8)]
    while running < 3:  # noqa: ASYNC110 (threads tell nothing to a loop)
        await asyncio.sleep(0.001)
    gate.set()
    assert await asyncio.gather(*tasks) == list(range(8))
    assert most == 3


async def test_an_error_while_a_thread_is_started_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no more threads; when it has one again, the next call gets it."""
    pool = Threads(1)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await pool.run(here, {})
    assert await pool.run(here, {}) == THREAD_NAME


async def test_threads_that_a_few_calls_do_not_need_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that are made one by one keep one thread busy, however many there are."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    pool, gate = Threads(4), threading.Barrier(4)
    await asyncio.gather(*(pool.run(gate.wait, {}) for _ in range(4)))
    while pool._threads > 1:
        assert await pool.run(here, {}) == THREAD_NAME


async def test_a_task_that_is_cancelled_when_its_function_has_returned_is_cancelled() -> None:
    """Between the end of the function and the turn of the task."""
    pool, gate, done = Threads(1), threading.Event(), threading.Event()

    def work() -> None:
        gate.wait(5)
        done.set()

    task = asyncio.create_task(pool.run(work, {}))
    await asyncio.sleep(0)
    gate.set()
    assert done.wait(5)  # the loop is held up meanwhile
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await pool.run(here, {}) == THREAD_NAME


async def test_a_busy_thread_holds_up_nobody_else() -> None:
    """Neither the loop nor other calls."""
    pool, gate = Threads(2), threading.Event()
    slow = asyncio.create_task(pool.run(gate.wait, {}))
    assert await pool.run(here, {}) == THREAD_NAME
    assert not slow.done()
    gate.set()
    await slow


@pytest.mark.parametrize(
    "failure", [ValueError("x"), KeyError("x"), SystemExit(3), KeyboardInterrupt(), StopIteration()]
)
async def test_what_a_function_raises_is_raised_here(failure: BaseException) -> None:
    """Whatever it is, and the worker lives on."""
    pool = Threads(1)

    def fail() -> None:
        raise failure

    with pytest.raises((type(failure), RuntimeError)):
        await pool.run(fail, {})
    assert await pool.run(here, {}) == THREAD_NAME


async def test_a_cancelled_wait_drops_the_result_and_what_had_not_begun() -> None:
    """CANC-06."""
    pool, gate, begun = Threads(1), threading.Event(), threading.Event()
    ran: list[int] = []

    def work(number: int) -> None:
        begun.set()
        gate.wait(5)
        ran.append(number)

    tasks = [asyncio.create_task(pool.run(work, {"number": number})) for number in range(3)]
    while not begun.is_set():  # noqa: ASYNC110 (threads tell nothing to a loop)
        await asyncio.sleep(0.001)
    for task in tasks[:2]:
        task.cancel()
    await asyncio.wait(tasks[:2])
    gate.set()
    await tasks[2]
    assert ran == [0, 2]


async def test_context_variables_go_along() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("mine")
    assert await Threads(1).run(variable.get, {}) == "mine"


async def test_no_job_is_lost_while_idle_workers_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs come just when workers end their wait; each is done, and in the end no worker is counted that isn't there."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.001)
    pool = Threads(8)
    pause: Callable[[], None] = lambda: time.sleep(0)  # noqa: E731 (it is a job)
    for number in range(400):
        async with asyncio.timeout(10):
            await asyncio.gather(*(pool.run(pause, {}) for _ in range(number % 3 + 1)))
        await asyncio.sleep((0.0005, 0.001, 0.0012)[number % 3])
    while pool._threads:  # noqa: ASYNC110 (threads tell nothing to a loop)
        await asyncio.sleep(0.001)
    assert not pool._idle


def test_a_task_that_is_interrupted_holds_up_no_other() -> None:
    """Ctrl-C in the turn in which the functions of several tasks have returned."""
    pool, gate = Threads(3), threading.Barrier(4)
    ended: list[str] = []

    async def wait(name: str) -> None:
        await pool.run(gate.wait, {})
        if name == "interrupted":
            raise KeyboardInterrupt
        ended.append(name)

    async def main() -> None:
        tasks = [asyncio.create_task(wait(name)) for name in ("interrupted", "second", "third")]
        await asyncio.sleep(0)
        gate.wait(5)
        while len(pool._idle) < 3:  # the loop is held up meanwhile
            time.sleep(0.001)  # noqa: ASYNC251 (see above)
        await asyncio.wait(tasks)

    loop = asyncio.new_event_loop()
    try:
        running = loop.create_task(main())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(running)
        loop.run_until_complete(running)
    finally:
        loop.close()
    assert sorted(ended) == ["second", "third"]


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_sync_tool_blocks_no_other_call(era: Any) -> None:
    server: Server[Any] = Server("sync")
    gate = threading.Event()

    @server.tool
    def slow() -> str:
        gate.wait(5)
        return here()

    @server.tool
    async def quick() -> str:
        return here()

    @server.tool(blocking=False)
    def inline() -> str:
        return here()

    @server.tool
    def asked(ctx: Context[Any]) -> bool:
        return ctx.cancelled

    async with Client(server, era=era) as client:
        waiting = asyncio.create_task(client.call_tool("slow"))
        main = threading.current_thread().name
        assert (await client.call_tool("quick")).text == main
        assert (await client.call_tool("inline")).text == main
        assert (await client.call_tool("asked")).text == "false"
        gate.set()
        assert (await waiting).text == THREAD_NAME


def test_a_function_that_never_returns_does_not_keep_the_process_alive() -> None:
    """The threads are daemons: the end of the process waits for none of them."""
    program = (
        "import asyncio, threading\n"
        "from gemel.server.threads import Threads\n"
        "async def main():\n"
        "    task = asyncio.create_task(Threads(1).run(threading.Event().wait, {}))\n"
        "    await asyncio.sleep(0.05)\n"
        "    task.cancel()\n"
        "asyncio.run(main())\n"
        "print('over')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="open descriptors are listed on Linux only")
def test_an_error_that_is_kept_keeps_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback leads to the frames of the thread, and these to what they used."""

    def fail() -> None:
        time.sleep(0.05)  # so that the caller waits
        raise ZeroDivisionError

    async def use() -> Exception:
        with pytest.raises(ZeroDivisionError) as caught:
            await Threads(1).run(fail, {})
        return caught.value

    def descriptors() -> Counter[str]:
        directory = "/proc/self/fd/"
        links = [directory + number for number in os.listdir(directory)]
        return Counter(os.readlink(link) for link in links if os.path.lexists(link))

    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    before = descriptors()
    kept = [asyncio.run(use()) for _ in range(3)]
    until = time.monotonic() + 5
    while descriptors() - before and time.monotonic() < until:
        time.sleep(0.01)
    assert (descriptors() - before, len(kept)) == (Counter(), 3)  # what earlier tests left may end meanwhile


async def test_a_sync_function_reaches_the_loop_by_anyio_and_by_asyncio() -> None:
    """As functions of servers that run them in threads of anyio."""
    import anyio.from_thread

    loop = asyncio.get_running_loop()
    server: Server[Any] = Server("loops")
    names: list[Any] = []

    async def note(name: str) -> str:
        assert asyncio.get_running_loop() is loop
        names.append(name)
        return name

    @server.tool
    def by_anyio(ctx: Context[Any]) -> str:
        anyio.from_thread.run(ctx.info, "hello")
        anyio.from_thread.run_sync(names.append, "sync")
        return anyio.from_thread.run(note, "anyio")

    @server.tool
    def by_asyncio() -> str:
        return asyncio.run_coroutine_threadsafe(note("asyncio"), loop).result()

    @server.tool
    def fails() -> str:
        async def fail() -> None:
            raise ValueError("on the loop")

        try:
            anyio.from_thread.run(fail)
        except ValueError as error:
            return str(error)
        return "no error"

    @server.resource("x://a")
    def resource() -> str:
        return anyio.from_thread.run(note, "resource")

    async with Client(server) as client:
        assert (await client.call_tool("by_anyio")).text == "anyio"
        assert (await client.call_tool("by_asyncio")).text == "asyncio"
        assert (await client.call_tool("fails")).text == "on the loop"
        assert (await client.read_resource("x://a")).text == "resource"
    assert names == ["sync", "anyio", "asyncio", "resource"]


def test_anyio_is_imported_only_by_programs_that_use_it() -> None:
    program = (
        "import asyncio, sys\n"
        "from gemel.server.threads import Threads\n"
        "assert asyncio.run(Threads(1).run(int, {})) == 0\n"
        "print('anyio' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
