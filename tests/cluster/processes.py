"""The processes of a cluster: Redis, servers or one with workers, haproxy in front of them. Each can be killed and come back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(__file__).with_name("server.py")
COUNT = 4
_HAPROXY = """
global
  log stderr format raw local0 info
defaults
  mode http
  log global
  log-format "answer %ST %ts"
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  option http-keep-alive
  option http-no-delay
  option redispatch 1
  retries 10
  retry-on conn-failure 503
frontend front
  bind 127.0.0.1:{port}
  default_backend cluster
backend cluster
  balance roundrobin
  option httpchk GET /readyz
  timeout check 2s
  default-server inter 300ms fall 3 rise 1
"""


class Program:
    """A program that runs until it is ended; what it prints goes to a file."""

    def __init__(self, command: Sequence[str], directory: Path, name: str, environment: dict[str, str]) -> None:
        self._command = command
        self._log = directory / f"{name}.log"
        self._directory = directory
        self._environment = environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.process is None or self.process.poll() is not None:
            with self._log.open("ab") as log:
                self.process = subprocess.Popen(
                    self._command, stdout=log, stderr=log, cwd=self._directory, env={**os.environ, **self._environment}
                )

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    async def end(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal, and wait until it has ended."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            try:
                await asyncio.to_thread(self.process.wait, 15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                await asyncio.to_thread(self.process.wait)


class Cluster:
    """Four processes of the server behind haproxy.

    Args:
        directory: Where everything lies.
        store: "sqlite" or "redis".
        workers: Whether they are workers of one server, and not servers of their own.
    """

    def __init__(self, directory: Path, store: str, *, workers: bool) -> None:
        self.workers = workers
        self._directory = directory
        #: Which processes were killed, and when, in seconds since 1970.
        self.kills: list[tuple[int, float]] = []
        self.restarts = 0
        #: Those that were killed and are not back yet, by their number.
        self._returning: dict[int, asyncio.Task[None]] = {}
        self.journal = directory / "journal"
        self.journal.touch()
        #: What the steps of tasks did; see steps.py.
        self.steps = directory / "journal.steps"
        self.steps.touch()
        self.redis: Program | None = None
        self.backend = f"sqlite:///{directory / 'cluster.db'}"
        if store == "redis":
            port = free_port()
            options = f"--port {port} --bind 127.0.0.1 --appendonly yes --appendfsync everysec --save".split()
            self.redis = Program(["redis-server", *options, ""], directory, "redis", {})
            self._redis_port = port
            self.backend = f"redis://127.0.0.1:{port}/0"
        environment = {
            "CLUSTER_BACKEND": self.backend,
            "CLUSTER_JOURNAL": str(self.journal),
            "PYTHONPATH": str(ROOT / "src"),
        }
        self._ports = [free_port() for _ in range(1 if workers else COUNT)]
        several = ("--workers", str(COUNT), "--worker-timeout", "10") if workers else ()
        self._servers = [
            Program(
                (sys.executable, "-m", "gemel", "run", str(SERVER), "--http", "--port", str(port), *several),
                directory,
                f"server{number}",
                environment,
            )
            for number, port in enumerate(self._ports)
        ]
        front = free_port()
        configuration = directory / "haproxy.cfg"
        lines = [f"  server s{port} 127.0.0.1:{port} check" for port in self._ports]
        configuration.write_text(_HAPROXY.format(port=front) + "\n".join(lines) + "\n")
        self._proxy = Program(["haproxy", "-db", "-f", str(configuration)], directory, "haproxy", {})
        self.url = f"http://127.0.0.1:{front}/mcp"

    async def start(self) -> None:
        """Start everything, and wait until it answers."""
        if self.redis is not None:
            self.redis.start()
            await _until_listening(self._redis_port)
        for server in self._servers:
            server.start()
        for port in self._ports:
            await until_ready(port)
        self._proxy.start()
        await until_ready(int(self.url.split(":")[2].split("/")[0]))

    async def kill(self) -> None:
        """Kill one process that serves; it comes back. On a slow machine at most half of them are away."""
        if self.workers:
            states = (await _health(self._ports[0]))["workers"]
            ready = [state["pid"] for state in states if state["state"] == "ready"]
            pid = random.choice(ready or [states[0]["pid"]])
            self.kills.append((pid, time.time()))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        await self._until_back(COUNT // 2 - 1)
        number = random.choice([number for number in range(COUNT) if number not in self._returning])
        self.kills.append((self._servers[number].pid, time.time()))
        await self._servers[number].end(signal.SIGKILL)
        self._returning[number] = asyncio.create_task(self._bring_back(number))

    async def _bring_back(self, number: int) -> None:
        await asyncio.sleep(random.uniform(0.0, 0.5))
        self._servers[number].start()
        await until_ready(self._ports[number])

    async def _until_back(self, others: int = 0) -> None:
        """Wait until at most some of those that were killed are not back yet. Raises RuntimeError if one does not come back."""
        while len(self._returning) > others:
            done, _ = await asyncio.wait(self._returning.values(), return_when=asyncio.FIRST_COMPLETED)
            self._returning = {number: task for number, task in self._returning.items() if task not in done}
            for task in done:
                task.result()

    async def roll(self) -> None:
        """Restart all processes regularly, without a moment in which none serves."""
        await self._until_back()
        self.restarts += 1
        if self.workers:
            before = {state["pid"] for state in (await _health(self._ports[0]))["workers"]}
            os.kill(self._servers[0].pid, signal.SIGHUP)
            for _ in range(600):
                await asyncio.sleep(0.1)
                with contextlib.suppress(OSError):
                    if not before & {state["pid"] for state in (await _health(self._ports[0]))["workers"]}:
                        return
            raise RuntimeError("the reload did not end")
        for server, port in zip(self._servers, self._ports, strict=True):
            await server.end()
            server.start()
            await until_ready(port)

    async def restart_redis(self) -> None:
        """Stop Redis regularly, and start it again a little later."""
        if self.redis is not None:
            await self.redis.end()
            await asyncio.sleep(1.0)
            self.redis.start()
            await _until_listening(self._redis_port)

    def answers(self) -> Counter[tuple[int, bool]]:
        """How many responses had each status, and whether haproxy made them itself, as it does for servers that died."""
        lines = (line.split() for line in (self._directory / "haproxy.log").read_text(errors="replace").splitlines())
        return Counter((int(line[1]), line[2] != "--") for line in lines if line[:1] == ["answer"])

    async def end(self) -> None:
        """End everything."""
        for task in self._returning.values():
            task.cancel()
        await asyncio.gather(*self._returning.values(), return_exceptions=True)
        for program in (self._proxy, *self._servers, *([self.redis] if self.redis is not None else [])):
            await program.end()


async def _health(port: int) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as response:
                return dict(json.load(response))
        except urllib.error.HTTPError as exc:  # a worker that is stopping answers with 503
            return dict(json.load(exc))

    return await asyncio.to_thread(read)


async def until_ready(port: int, seconds: float = 60) -> None:
    """Wait until a server answers. Raises RuntimeError."""
    for _ in range(int(seconds / 0.1)):
        with contextlib.suppress(OSError):
            await _health(port)
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"nothing answers on port {port}")


async def _until_listening(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"PING\r\n")
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"Redis does not listen on port {port}")
