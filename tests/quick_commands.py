"""Runs `gemel` commands in forks of a process that has imported Gemel: as real as others, without the time of an import.

Each command has standard streams, an environment, a directory and an exit code of its own, and ends as Python ends. What
tests the start of a process, a terminal, or what is imported, starts one with `python -m gemel`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

#: What commands import.
IMPORTED_FIRST = (
    "gemel.cli.arguments.parser",
    "gemel.cli.connect",
    "gemel.cli.errors",
    "gemel.cli.program.own_program",
    "gemel.client.client",
    "gemel.client.terminal.display",
    "gemel.server.server",
    "gemel.transports.http.client.transport",
    "gemel.transports.stream.subprocess",
)
#: No request is longer.
_MOST_BYTES = 1 << 20


class QuickCommands:
    """The process that forks, from the first command until it is closed. One command runs at a time."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.quick_commands", str(theirs.fileno())]
            root = Path(__file__).parent.parent
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), cwd=root
            )
        self._socket.settimeout(60)
        self._socket.recv(1)

    def run(
        self,
        *words: str,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        seconds: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run `python -m gemel` with these words to its end, as `subprocess.run(…, text=True)` does.

        Raises:
            TimeoutError: It takes longer.
        """
        assert self._socket is not None
        request = json.dumps([words, os.fspath(cwd or os.getcwd()), dict(os.environ if env is None else env)])
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(open(os.memfd_create("stream"), "r+b", buffering=0)) for _ in range(3)]
            if stdin:
                streams[0].write(stdin.encode())
                streams[0].seek(0)
            else:
                streams[0] = stack.enter_context(open(os.devnull, "r+b", buffering=0))
            socket.send_fds(self._socket, [request.encode()], [stream.fileno() for stream in streams])
            self._socket.settimeout(10)
            pid = int(self._socket.recv(64))
            self._socket.settimeout(seconds)
            try:
                code = int(self._socket.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._socket.settimeout(10)
                self._socket.recv(64)
                raise
            texts = []
            for stream in streams[1:]:
                stream.seek(0)
                texts.append(stream.read().decode())
        return subprocess.CompletedProcess(words, code, *texts)

    def close(self) -> None:
        """End the process."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait(10)


def _requests(mine: socket.socket) -> Iterator[tuple[list[str], str, dict[str, str], list[int]]]:
    mine.send(b"!")
    while True:
        data, streams, _, _ = socket.recv_fds(mine, _MOST_BYTES, 3)
        if not data:
            return
        words, directory, environment = json.loads(data)
        yield words, directory, environment, streams


def _serve(mine: socket.socket) -> list[str] | None:
    """Fork for each request; returns the words of a command in its process, None at the end."""
    for words, directory, environment, streams in _requests(mine):
        child = os.fork()
        if not child:
            mine.close()
            for place, stream in enumerate(streams):
                os.dup2(stream, place)
                os.close(stream)
            os.chdir(directory)
            sys.path[0] = directory
            os.environ.clear()
            os.environ.update(environment)
            return words
        for stream in streams:
            os.close(stream)
        mine.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        mine.send(str(os.waitstatus_to_exitcode(status)).encode())
    return None


def main() -> int:
    """Serve, and be the command that is asked for."""
    for name in IMPORTED_FIRST:
        import_module(name)
    import gemel
    from gemel.cli import main

    gc.freeze()
    words = _serve(socket.socket(fileno=int(sys.argv[1])))
    if words is None:
        return 0
    sys.argv[:] = [str(Path(gemel.__file__).with_name("__main__.py")), *words]
    return main()


#: The one of this worker; tests/cli/conftest.py starts and ends it.
QUICK = QuickCommands()

if __name__ == "__main__":
    sys.exit(main())
