"""`--timeout` limits a whole command, with starting and connecting; only the time of persons does not count."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.quick_commands import QUICK
from tests.typist import at_the_terminal

SERVER = """
import os
import time
from gemel import Context, Server

time.sleep(float(os.environ.get("START_SECONDS", "0")))
server = Server("slow")

@server.tool
async def book(ctx: Context) -> str:
    return f"row {await ctx.elicit('Which row?', int)}"
"""
ERAS = ("2025", "2026")
TIMED_OUT = "gemel: The command did not end within 0.5 seconds, which include starting the server and connecting\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "slow.py").write_text(SERVER)
    return f"{tmp_path}/slow.py"


@pytest.fixture
def deaf() -> Iterator[str]:
    """The URL of a server that answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"


@pytest.mark.parametrize(
    "words",
    [
        ("call", "TARGET", "book"),
        ("read", "TARGET", "data://x"),
        ("prompt", "TARGET", "x"),
        ("complete", "TARGET", "x", "y", "z"),
        ("tasks", "list", "TARGET"),
    ],
)
@pytest.mark.parametrize("kind", ["starts", "answers"])
def test_a_server_that_needs_too_long_ends_the_command(words: tuple[str, ...], kind: str, file: str, deaf: str) -> None:
    target = file if kind == "starts" else deaf
    begun = time.monotonic()
    command = [target if word == "TARGET" else word for word in words]
    done = QUICK.run(*command, "--timeout", "0.5", env={"START_SECONDS": "60"})
    assert time.monotonic() - begun < 15
    assert (done.returncode, done.stderr) == (1, TIMED_OUT)


@pytest.mark.parametrize("command", ["ping", "bench"])
@pytest.mark.parametrize("kind", ["starts", "answers"])
def test_a_limit_of_each_request_is_one_of_connecting_too(command: str, kind: str, file: str, deaf: str) -> None:
    target = file if kind == "starts" else deaf
    begun = time.monotonic()
    done = QUICK.run(command, target, "--timeout", "0.5", env={"START_SECONDS": "60"})
    assert time.monotonic() - begun < 15
    assert done.returncode == 1
    assert "within 0.5 seconds" in done.stderr


class Guarded(BaseHTTPRequestHandler):
    """A server that wants a token, and names metadata elsewhere."""

    metadata = ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(401)
        self.send_header("www-authenticate", f'Bearer resource_metadata="{self.metadata}"')
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def guarded(metadata: str) -> Iterator[str]:
    """The URL of a server that wants a token."""
    handler = type("Handler", (Guarded,), {"metadata": metadata})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            serving.join()


async def test_the_search_for_a_login_counts_since_nobody_is_asked(deaf: str) -> None:
    with guarded(deaf) as url:
        begun = time.monotonic()
        command = [sys.executable, "-m", "gemel", "call", url, "book", "--timeout", "0.5"]
        async with at_the_terminal(command) as (typist, process):
            await typist.sees(TIMED_OUT)
    assert time.monotonic() - begun < 15
    assert process.returncode == 1


def test_where_no_login_can_begin_a_token_is_missing_and_nothing_else(deaf: str) -> None:
    """The places of metadata are not looked for: one that is not there would seem to be what is wrong."""
    with guarded(deaf) as url:
        for words in ((), ("--no-login",)):
            done = QUICK.run("call", url, "book", *words)
            advice = f"Run gemel auth login {url}, or give a token with --header on the command line"
            assert done.stderr == f"gemel: {url} wants a login (HTTP 401): this command starts none. {advice}\n"
            assert done.returncode == 1


def test_a_login_that_is_not_possible_names_the_places_of_metadata() -> None:
    place = f"http://127.0.0.1:{free_port()}/metadata"
    with guarded(place) as url:
        done = QUICK.run("auth", "login", url)
    assert done.returncode == 1
    assert f"The authorization server of {url} can't be found" in done.stderr
    assert (done.stderr.count("\n"), place in done.stderr) == (1, True)


@pytest.mark.long  # longer than a server takes to start on a busy machine
@pytest.mark.parametrize("era", ERAS)
async def test_a_person_has_more_time(file: str, era: str) -> None:
    command = [sys.executable, "-m", "gemel", "call", file, "book", "--era", era, "--timeout", "8"]
    async with at_the_terminal(command) as (typist, process):
        await typist.sees("value:")
        await asyncio.sleep(9)
        await typist.answers("", "7")
        await typist.sees("row 7\n")
    assert process.returncode == 0


SILENT = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
async def test_sigterm_ends_a_command_with_the_server_that_it_has_started(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text(SILENT)
    pid = tmp_path / "pid"
    target = f"{sys.executable} {tmp_path / 'silent.py'} {pid}"
    command = await asyncio.create_subprocess_exec(sys.executable, "-m", "gemel", "list", target)
    async with asyncio.timeout(20):
        while not (pid.exists() and pid.read_text()):  # noqa: ASYNC110 # another process writes it
            await asyncio.sleep(0.05)
        command.terminate()
        assert await command.wait() == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
