"""Options of the command line that do not fit together, and how options are written."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SERVER = """
from hinge import Server

server = Server("{name}")

@server.tool
async def greet(name: str) -> str:
    return f"Hello {{name}}"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "small.py"
    found.write_text(SERVER.format(name="small"))
    return found


def hinge(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hinge", *map(str, words)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "{file}", "--port", "80"], "--port needs --http"),
        (["run", "{file}", "--host", "::1"], "--host needs --http"),
        (["run", "{file}", "--workers", "2"], "--workers needs --http"),
        (["run", "{file}", "--socket", "s", "--path", "/x"], "--path needs --http"),
        (["run", "{file}", "--http", "--socket", "s"], "--http and --socket can't be combined"),
        (
            ["run", "{file}", "--reload"],
            "--reload needs --http: on stdio, a restart would lose messages of the client",
        ),
        (["proxy", "{file}", "--to", "stdio", "--port", "80"], "--port needs --to http"),
        (["proxy", "http://127.0.0.1:1/", "--sse-path", "/sse"], "--sse-path needs --to http"),
        (["replay", "{file}", "--host", "::1"], "--host needs --http"),
        (["record", "tape", "{file}", "--port", "80"], "--port needs --http"),
    ],
)
def test_an_option_of_another_transport_is_told_in_one_line(words: list[str], said: str, file: Path) -> None:
    done = hinge(*(word.format(file=file) for word in words))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith(f"hinge: {said}")


def test_the_name_of_an_option_stands_whole(file: Path) -> None:
    """`--rel` for `--reload` would start the server by a parent that starts it by a parent …"""
    done = hinge("run", file, "--http", "--rel")
    assert done.returncode == 2
    assert "unrecognized arguments: --rel" in done.stderr


def test_a_reader_who_goes_away_gets_no_traceback(file: Path) -> None:
    """As with `hinge list … | head -1`, only that nobody reads at all."""
    words = [sys.executable, "-m", "hinge", "list", str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == ("", 141)


def test_a_file_outside_of_the_working_directory_is_watched_too(
    file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = [sys.executable, "-m", "hinge", "run", str(file), "--http", "--port", "0", "--reload"]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=elsewhere) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith("Serving MCP at ")
            file.write_text(SERVER.format(name="changed"))
            assert process.stderr.readline() == "hinge: a file changed, starting again\n"
            assert process.stderr.readline().startswith("Serving MCP at ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
        finally:
            process.kill()
