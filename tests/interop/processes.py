"""Child processes of the harness: started in groups of their own, waited for, ended by pid, never by name.

Knows nothing of the protocol beyond a port that answers.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.interop.peers import CACHE, IMPORTS, ROOT

START_LIMIT = 20.0
"""Seconds that a server may take until its port answers."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment, the checkout importable, and a home of its own for tools that write into it."""
    home = CACHE / "home"
    home.mkdir(parents=True, exist_ok=True)
    ours = {"PYTHONPATH": IMPORTS, "HOME": str(home), "NO_COLOR": "1", "NODE_COMPILE_CACHE": str(home / "node")}
    return {**os.environ, **ours, **(extra or {})}


def start(command: list[str], log: Path, extra: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a child in its own process group; both its streams go to the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes], grace: float = 5.0) -> float:
    """SIGTERM to the process, SIGKILL to its group once the grace is over. Returns the seconds that the end took."""
    begin = time.monotonic()
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    took = time.monotonic() - begin
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return took


def await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the port accepts connections. Raises `RuntimeError` with the log's end when the server dies first."""
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}:\n{tail(log, 600)}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server's port {port} did not answer within {START_LIMIT} s:\n{tail(log, 600)}")


def await_silence(port: int, limit: float) -> None:
    """Wait until nobody accepts connections at the port. Raises `TimeoutError` when somebody still does (seconds).

    A process is called dead when its first thread is; its sockets are closed by the last one.
    """
    deadline = time.monotonic() + limit
    with suppress(ConnectionError):
        while time.monotonic() < deadline:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            time.sleep(0.05)
        raise TimeoutError(f"somebody still listens at port {port}")


@contextmanager
def http_server(
    command: list[str], port: int, log: Path, extra: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that listens on the port, for the length of the block."""
    process = start(command, log, extra)
    try:
        await_port(port, process, log)
        yield process
    finally:
        stop(process)


def tail(log: Path, size: int = 2000) -> str:
    """The last words of a log."""
    return log.read_bytes()[-size:].decode("utf-8", "replace") if log.exists() else ""


def entries(journal: Path, entry: str) -> list[float]:
    """The times (epoch) at which the entry was written to the journal."""
    lines = journal.read_text().split("\n") if journal.exists() else ()
    return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(entry + " ")]


def wait_for_entry(journal: Path, entry: str, limit: float, times: int = 1) -> float | None:
    """When the entry was written to the journal (epoch) the given time; None when it isn't within the limit (seconds)."""
    deadline = time.monotonic() + limit
    while True:
        if len(found := entries(journal, entry)) >= times:
            return found[times - 1]
        if time.monotonic() > deadline:
            return None
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
