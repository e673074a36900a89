"""The watch that leftovers.py keeps over every test: each kind of thing left behind is found, and named."""

import re
import subprocess
import sys

import pytest

from tests.leftovers import HAS_PROC
from tests.source import ROOT

CARELESS = """
import asyncio, os, pathlib, socket, subprocess, sys, threading
import pytest

kept = []

async def test_a_task():
    kept.append(asyncio.create_task(asyncio.sleep(60), name="sleeper"))

def test_a_thread():
    threading.Thread(target=threading.Event().wait, name="waiter", daemon=True).start()

def test_a_child():
    kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_a_dead_child():
    if not os.fork():
        os._exit(0)

def test_a_descriptor():
    kept.append(socket.socket())

def test_a_file():
    pathlib.Path("stray.jsonl").write_text("x")

@pytest.fixture
async def service():
    task = asyncio.create_task(asyncio.sleep(60))
    yield
    task.cancel()

async def test_careful_async(service):
    await asyncio.to_thread(int)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await process.wait()

def test_careful(tmp_path, capfd):
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    (tmp_path / "x").write_text("x")

def test_first_uvloop():
    import uvloop
    uvloop.run(asyncio.sleep(0))

def test_pipe_after_uvloop():
    kept.append(os.pipe())
"""
SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""
COMPLAINTS = {
    "test_a_task": "sleeper",
    "test_a_thread": "thread 'waiter', daemon: True",
    "test_a_child": r"child process \d+: \S+ -c input\(\)",
    "test_a_dead_child": r"child process \d+: ended, but never waited for",
    "test_a_descriptor": r"descriptor \d+: socket:",
    "test_a_file": "left files behind: stray.jsonl",
    "test_pipe_after_uvloop": r"descriptor \d+: pipe:",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says of careless tests and of careful ones."""
    directory = tmp_path_factory.mktemp("careless")
    (directory / "test_careless.py").write_text(CARELESS)
    (directory / "pytest.ini").write_text(SETTINGS)
    watch = (ROOT / "tests" / "leftovers.py").read_text()
    assert "GRACE_SECONDS = 1.0" in watch
    (directory / "conftest.py").write_text(watch.replace("GRACE_SECONDS = 1.0", "GRACE_SECONDS = 0.1"))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr


def complaints(report: str) -> dict[str, str]:
    """The section about each test that left something."""
    sections = re.split(r"^_+ ERROR at teardown of (\w+) _+$", report, flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


@pytest.mark.skipif(not HAS_PROC, reason="children and descriptors are looked up in /proc")
@pytest.mark.parametrize("test", COMPLAINTS)
def test_what_is_left_behind_fails_the_test_that_left_it(report: str, test: str) -> None:
    assert re.search(COMPLAINTS[test], complaints(report)[test])


@pytest.mark.skipif(not HAS_PROC, reason="children and descriptors are looked up in /proc")
def test_nobody_else_is_blamed(report: str) -> None:
    """Neither tests whose fixtures tidy up nor the first use of what a module keeps for good."""
    assert set(complaints(report)) == set(COMPLAINTS)
    assert "10 passed" in report
