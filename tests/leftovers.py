"""What holds for every test: it leaves no task, no thread, no child process, no open descriptor and no stray file behind.

Knows nothing of `gemel`. Children and descriptors are looked up in /proc; where there is none, only tasks and threads
are watched. Ports that tests reserve stay reserved.
"""

import asyncio
import contextlib
import functools
import gc
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

# How fast an example runs says nothing on a machine that does other things too. A run of the suite is the same everywhere:
# new examples are tried where more are asked for.
settings.register_profile("gemel", deadline=None, derandomize="GEMEL_FUZZ" not in os.environ)
settings.load_profile("gemel")

HAS_PROC = Path("/proc/self/fd").exists()

# What is on its way out gets this long to go.
GRACE_SECONDS = 1.0
AT_FIRST = 0.1
GRACE_TURNS = 10

#: Workers that wait a while for more work, and then end by themselves: daemons, which hold nothing up.
LASTING_THREADS = frozenset({"gemel-tool"})


@dataclass(frozen=True)
class Belongings:
    """What this process holds at one moment."""

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    descriptors: frozenset[tuple[int, str]]
    #: How many of the threads that may stay there are. Each has an eventfd.
    lasting: int = 0

    @classmethod
    def now(cls) -> "Belongings":
        """Take stock: some 50 µs."""
        running = threading.enumerate()
        threads = frozenset(one for one in running if one.name not in LASTING_THREADS)
        if not HAS_PROC:
            return cls(threads, frozenset(), frozenset())
        return cls(threads, frozenset(_children()), frozenset(_descriptors()), len(running) - len(threads))

    def __sub__(self, before: "Belongings") -> "Belongings":
        opened = self.descriptors - before.descriptors
        eventfds = sorted(one for one in opened if one[1] == "anon_inode:[eventfd]")
        return Belongings(
            self.threads - before.threads,
            self.children - before.children,
            opened.difference(eventfds[: self.lasting]),
        )

    def __bool__(self) -> bool:
        return bool(self.threads or self.children or self.descriptors)

    def __str__(self) -> str:
        lines = [f"thread {thread.name!r}, daemon: {thread.daemon}" for thread in self.threads]
        lines += [f"child process {pid}: {_command(pid)}" for pid in sorted(self.children)]
        lines += [f"descriptor {number}: {what}" for number, what in sorted(self.descriptors)]
        return "\n".join(f"  {line}" for line in lines)


def _children() -> Iterator[int]:
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                yield from map(int, file.read().split())
        except OSError:  # the thread ended meanwhile
            continue


def _descriptors() -> Iterator[tuple[int, str]]:
    reserved = getattr(sys.modules.get("tests.ports"), "RESERVED", ())
    for number in os.listdir("/proc/self/fd"):
        if int(number) in reserved:
            continue
        try:
            yield int(number), os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the one that listed the directory
            continue


@functools.cache
def _open_what_stays() -> None:
    """With its first event loop, uvloop opens a pipe that it keeps for the life of the process."""
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.new_event_loop().close()


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone meanwhile"
    return words or "ended, but never waited for"


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test after which threads, child processes or descriptors are there that were not before.

    So does a file at the root of the checkout, even if a test left it that another process runs at the same time.

    It is set up before the test's event loop and looks when that is closed.
    """
    _open_what_stays()
    before, files = Belongings.now(), _files(request.config.rootpath)
    yield
    if strays := _files(request.config.rootpath) - files:
        pytest.fail(f"the test, or one at the same time, left files behind: {', '.join(sorted(strays))}", pytrace=False)
    if _left(before, AT_FIRST):
        gc.collect()  # takes long where a whole run of tests lies in memory
        if left := _left(before, GRACE_SECONDS):
            pytest.fail(f"the test left behind:\n{left}", pytrace=False)


def _files(directory: Path) -> set[str]:
    with os.scandir(directory) as entries:
        return {entry.name for entry in entries if not entry.name.startswith(".") and entry.is_file()}


def _left(before: Belongings, seconds: float) -> Belongings:
    """What is there now and was not before; what is on its way out gets so many seconds."""
    patience = time.monotonic() + seconds
    while (left := Belongings.now() - before) and time.monotonic() < patience:
        time.sleep(0.002)
    return left


@pytest.fixture(autouse=True)
def leaves_no_task_behind(request: pytest.FixtureRequest, leaves_nothing_behind: None) -> None:
    """Brings in `no_task_left` for async tests, before any other fixture of theirs: so it looks after all of these."""
    if request.node.get_closest_marker("asyncio"):
        request.getfixturevalue("no_task_left")


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Fails a test at whose end asyncio tasks are pending."""
    yield
    for _ in range(GRACE_TURNS):
        if not _pending_tasks():
            return
        await asyncio.sleep(0)
    if pending := _pending_tasks():
        pytest.fail("the test left tasks behind:\n" + "\n".join(f"  {task!r}" for task in pending), pytrace=False)


def _pending_tasks() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}
