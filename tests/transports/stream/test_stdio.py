"""A stdio server as a real process, with every kind of standard input and output, and the ways in which it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from gemel import StartError
from gemel.transports.stream.stdio import serve_stdio
from tests.transports.echo import EchoConversation, request

# Prints before serving stay in Python's own buffer only where it has one.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
SERVER = [sys.executable, str(Path(__file__).parents[1] / "echo_server.py")]

pytestmark = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


@contextlib.contextmanager
def server(
    loop: str,
    stdin: Any = subprocess.PIPE,
    stdout: Any = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    preexec_fn: Callable[[], object] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The server as a child of the test, with pipes where nothing else is given."""
    command = [*SERVER, loop]
    with subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, preexec_fn=preexec_fn, env=ENVIRONMENT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(loop: str, given: bytes) -> tuple[int, list[Any], bytes]:
    """Everything it answers to this input: exit code, messages, standard error."""
    done = subprocess.run([*SERVER, loop], input=given, capture_output=True, timeout=30, env=ENVIRONMENT)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def ask(process: subprocess.Popen[bytes], line: bytes) -> Any:
    """Write a request and read one line."""
    write(process, line)
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def write(process: subprocess.Popen[bytes], line: bytes) -> None:
    stdin: IO[bytes] | None = process.stdin
    assert stdin is not None
    stdin.write(line)
    stdin.flush()


def test_a_request_that_is_piped_in_is_answered_and_the_server_ends(loop: str) -> None:
    """STDIO-07: `echo REQUEST | server`."""
    code, messages, _ = run(loop, request(1, "sleep", seconds=0.1))
    assert (code, messages) == (0, [{"jsonrpc": "2.0", "id": 1, "result": {"seconds": 0.1}}])


def test_a_stream_without_end_is_ended_at_the_end_of_the_input(loop: str) -> None:
    """STDIO-07: it gets its result, for which nobody has to wait until the drain time is over."""
    code, messages, _ = run(loop, request(1, "listen"))
    assert (code, messages) == (0, [{"jsonrpc": "2.0", "id": 1, "result": "ended"}])


def test_prints_and_children_cannot_write_to_the_protocol(loop: str) -> None:
    """STDIO-02: what was printed before, what a tool prints, and all of it is on standard error."""
    code, messages, err = run(loop, request(1, "print", text='{"jsonrpc":"2.0","id":2,"result":"forged"}'))
    assert code == 0
    assert [message["id"] for message in messages] == [1]
    assert b"printed before serving" in err
    assert b"forged" in err


def test_files_and_devices_can_be_its_input_and_output(loop: str, tmp_path: Path) -> None:
    """Event loops refuse files; we don't."""
    (tmp_path / "in").write_bytes(b"".join(request(number, "echo", pad="x" * 1000) for number in range(300)))
    with (
        (tmp_path / "in").open("rb") as stdin,
        (tmp_path / "out").open("wb") as stdout,
        server(loop, stdin=stdin, stdout=stdout) as process,
    ):
        assert process.wait(20) == 0
    answers = (tmp_path / "out").read_bytes().splitlines()
    assert sorted(json.loads(line)["id"] for line in answers) == list(range(300))
    with server(loop, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        assert process.wait(20) == 0


def test_a_socket_can_be_both_its_input_and_output(loop: str) -> None:
    """As inetd, socat and Node start programs."""
    ours, theirs = socket.socketpair()
    with ours, server(loop, stdin=theirs, stdout=theirs) as process:
        theirs.close()
        ours.sendall(request(1, "echo"))
        assert json.loads(ours.recv(1000))["id"] == 1
        ours.sendall(request(2, "sleep", seconds=0.05))
        ours.shutdown(socket.SHUT_WR)
        assert json.loads(ours.recv(1000))["id"] == 2
        assert ours.recv(1000) == b""
        assert process.wait(20) == 0


def test_it_can_be_used_by_hand_on_a_terminal(loop: str) -> None:
    """Ctrl-D ends it."""
    leader, follower = pty.openpty()
    with server(loop, stdin=follower, stdout=follower) as process:
        os.close(follower)
        os.write(leader, request(1, "echo"))
        seen = b""
        while b'"result":{}}\r\n' not in seen:  # after a print, and the terminal's own echo
            seen += os.read(leader, 1000)
        os.write(leader, b"\x04")
        assert process.wait(20) == 0
    os.close(leader)


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_when_idle(loop: str, name: signal.Signals) -> None:
    """Exit code 0, nothing on standard error but what was printed."""
    with server(loop) as process:
        ask(process, request(1, "echo"))
        process.send_signal(name)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b"printed before serving\n"


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_running_calls_finish(loop: str, name: signal.Signals) -> None:
    with server(loop) as process:
        ask(process, request(1, "echo"))
        write(process, request(2, "sleep", seconds=0.2) + request(3, "echo"))
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["id"] == 3
        process.send_signal(name)
        assert json.loads(process.stdout.readline())["id"] == 2
        assert process.wait(20) == 0


def test_a_signal_does_not_wait_longer_than_the_drain_time(loop: str) -> None:
    """The handler hangs, the process ends all the same, cleanly."""
    with server(loop) as process:
        ask(process, request(1, "echo"))
        write(process, request(2, "sleep", seconds=100))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_second_signal_ends_it_at_once(loop: str) -> None:
    with server(loop) as process:
        ask(process, request(1, "echo"))
        write(process, request(2, "sleep", seconds=100) + request(3, "echo"))
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["id"] == 3
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM


def test_a_second_signal_ends_it_even_when_a_handler_blocks_the_loop(loop: str) -> None:
    """It is taken outside the loop."""
    with server(loop) as process:
        ask(process, request(1, "echo"))
        write(process, request(2, "block", seconds=100))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT


def test_it_ends_when_its_client_dies_in_the_middle_of_a_call(loop: str) -> None:
    """No orphans: both pipes are closed, the call is cut off without waiting for the drain time."""
    with server(loop) as process:
        ask(process, request(1, "echo"))
        write(process, request(2, "sleep", seconds=100))
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        assert process.wait(20) == 0


def test_a_client_that_stops_reading_makes_it_end_when_it_writes(loop: str) -> None:
    """A write error closes the channel."""
    with server(loop) as process:
        ask(process, request(1, "echo"))
        assert process.stdout is not None
        process.stdout.close()
        write(process, request(2, "echo"))
        assert process.wait(20) == 0


@pytest.mark.parametrize("number", [0, 1])
def test_a_closed_standard_stream_is_refused_with_words(loop: str, number: int) -> None:
    """Errors help; uvloop by itself would abort."""
    with server(loop, preexec_fn=lambda: os.close(number)) as process:
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert (b"Standard input is closed" if number == 0 else b"Standard output is closed") in err


def test_a_closed_standard_error_is_no_obstacle(loop: str) -> None:
    """Nor does it make prints go to the protocol."""
    with server(loop, preexec_fn=lambda: os.close(2), stderr=None) as process:
        out, _ = process.communicate(request(1, "print", text="lost"), timeout=20)
    assert process.returncode == 0
    assert json.loads(out)["id"] == 1


def test_standard_input_and_output_are_put_back(loop: str) -> None:
    """After serving, the program can print and read again."""
    code = (
        "import sys, asyncio; sys.path[:0] = sys.argv[1:3]\n"
        "from gemel.transports.stream.stdio import serve_stdio; from tests.transports.echo import EchoConversation\n"
        "from tests.transports.loops import FACTORIES\n"
        "with asyncio.Runner(loop_factory=FACTORIES[sys.argv[3]]) as runner:\n"
        "    serving = runner.get_loop().create_task(serve_stdio(EchoConversation))\n"
        "    runner.get_loop().call_later(0.2, serving.cancel)\n"
        "    try: runner.run(asyncio.wait([serving]))\n"
        "    finally: print('back', serving.cancelled(), flush=True); print('read', sys.stdin.readline())\n"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root / "src"), str(root), loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        ask(process, request(1, "echo"))
        assert process.stdout is not None
        assert process.stdout.readline() == b"back True\n"
        out, _ = process.communicate(b"after", timeout=20)
    assert out == b"read after\n"


async def test_it_serves_only_one_conversation_at_a_time(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two readers of one pipe would take each other's messages."""
    monkeypatch.setattr("gemel.standard_streams._taken", True)
    with pytest.raises(StartError, match="already being served"):
        await asyncio.wait_for(serve_stdio(EchoConversation), 5)
