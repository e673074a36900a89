"""What holds for every test: it leaves nothing behind, and what Gemel sends in it is of its revision."""

import compileall
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processors import worker_count

# Collecting makes millions of objects and drops few of them: looking for these would take longer than all the rest.
gc.disable()
# pytest keeps what it compiles, for the next run and for other processes of this one, even where that is not the habit.
sys.dont_write_bytecode = False

pytest_plugins = ("tests.leftovers", "tests.wire_watch")


def pytest_configure() -> None:
    """Take SIGINT, which a shell has its jobs in the background ignore: the programs that tests interrupt would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the package once: where Python may not write bytecode, each program that a test starts would do it again."""
    if not hasattr(session.config, "workerinput"):
        compileall.compile_dir(Path(__file__).parent.parent / "src", quiet=1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Say what `-n auto` is, unless xdist is told by its variable."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else worker_count()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Leave 16,000 tests and their modules out of garbage collection: looking at them takes a second each time."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture
def fast_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: the disk keeps up whatever else this machine writes."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)
