"""Commands whose standard streams are closed, as services and cron jobs start them: a word or nothing, never a crash."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SERVER = """
from gemel import Server

server = Server("small")

@server.tool
async def greet(name: str) -> str:
    return f"Hello {name}"

if __name__ == "__main__":
    server.run()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "small.py"
    found.write_text(SERVER)
    return found


def without(number: int, *words: str | Path) -> list[str]:
    """A command that runs with one standard stream less."""
    close = f"import os, sys; os.close({number}); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", close, sys.executable, *map(str, words)]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("how", [[], ["-m", "gemel", "run"]], ids=["script", "gemel run"])
def test_a_server_without_standard_input_or_output_says_so_in_one_line(how: list[str], number: int, file: Path) -> None:
    """An event loop that takes the free numbers can't be closed: uvloop aborts."""
    ended = subprocess.run(without(number, *how, file), capture_output=True, text=True, timeout=60, check=False)
    name = ("input", "output")[number]
    assert ended.stderr.startswith(f"gemel: Standard {name} is closed, so there is nothing to serve on")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("way", [("--http", "--port", "0"), ("--socket", "s")], ids=["http", "socket"])
def test_what_is_not_served_on_need_not_be_there(way: tuple[str, ...], number: int, file: Path) -> None:
    """The process serves, and its end is an end."""
    words = without(number, "-m", "gemel", "run", file, *way)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=file.parent) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith("Serving MCP at ")
            process.send_signal(signal.SIGTERM)
            assert (process.wait(30), process.stderr.read()) == (0, "")
        finally:
            process.kill()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_output_that_nobody_wants_goes_nowhere(number: int, file: Path) -> None:
    """As with `print`."""
    words = without(number, "-m", "gemel", "call", file, "greet", "name=Ada")
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "" if number == 1 else "Hello Ada\n", "")
