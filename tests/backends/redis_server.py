"""Real Redis servers for tests: started on free ports of the loopback interface, each in a directory of its own, ended by pid."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

PROGRAM = next(filter(None, map(shutil.which, ("redis-server", "valkey-server"))), None)
needs_redis = pytest.mark.skipif(
    PROGRAM is None or sys.platform == "win32",
    reason="needs redis-server or valkey-server (Debian: apt-get install redis-server)",
)
#: Appended to disk before each reply; no snapshots.
DURABLE = {"appendonly": "yes", "appendfsync": "always", "save": "", "repl-diskless-sync-delay": "0"}


class RedisServer:
    """One process, which can be killed and started again on the same port and directory.

    Args:
        directory: Where it keeps its files.
        settings: Directives of its configuration; those of `DURABLE` if they are not named.
        sentinel: Whether it is a Sentinel.
        tls: The file with its certificate and key; None for a connection without TLS.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        *,
        sentinel: bool = False,
        tls: Path | None = None,
    ) -> None:
        self.port = free_port()
        self.directory = directory
        self._sentinel = sentinel
        self._tls = tls
        self.settings = {} if sentinel else DURABLE | (settings or {})
        if sentinel:
            self.settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """Its URL."""
        return f"redis{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert PROGRAM is not None
        file = self.directory / "redis.conf"
        if not (self._sentinel and file.exists()):  # Sentinels rewrite theirs
            lines = ["bind 127.0.0.1", f"dir {self.directory}", "daemonize no"]
            if self._tls:
                lines += ["port 0", f"tls-port {self.port}", f"tls-cert-file {self._tls}", f"tls-key-file {self._tls}"]
                lines += [f"tls-ca-cert-file {self._tls}", "tls-auth-clients no"]
            else:
                lines.append(f"port {self.port}")
            lines += [f"{name} {value or chr(34) * 2}" for name, value in self.settings.items()]
            file.write_text("\n".join(lines) + "\n")
        command = [PROGRAM, str(file), *(["--sentinel"] if self._sentinel else [])]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while True:
            with suppress(Exception):
                self.ask("PING")
                return
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.02)

    def ask(self, *command: object) -> Any:
        """Send a command of the test."""
        from redis import Redis

        options: dict[str, Any] = (
            {"ssl": True, "ssl_cert_reqs": "none", "ssl_check_hostname": False} if self._tls else {}
        )
        password = self.settings.get("requirepass")
        with Redis(port=self.port, password=password, socket_timeout=10, **options) as client:
            return client.execute_command(*command)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop it without closing its connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End the pause."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def redis_server(directory: Path, settings: dict[str, str] | None = None, **options: Any) -> Iterator[RedisServer]:
    """Run a server as long as the block runs; see `RedisServer`."""
    server = RedisServer(directory, settings, **options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what threads or processes do."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # threads and processes change it
            await asyncio.sleep(0.01)
