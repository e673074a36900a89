"""Stores that the processes of a server share, each as long as a case is measured: SQLite in a new directory, a new Redis."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Store(NamedTuple):
    """A store: its URL as a backend, and the process that keeps it, if there is one."""

    url: str
    pids: tuple[int, ...] = ()
    #: Where its files are.
    directory: Path | None = None


def redis_program() -> str | None:
    """The Redis or Valkey of this machine."""
    return shutil.which("redis-server") or shutil.which("valkey-server")


@contextmanager
def opened_store(kind: str) -> Iterator[Store]:
    """Have a store: "memory", "sqlite" or "redis". Redis writes what it acknowledged to its log once a second."""
    if kind == "memory":
        yield Store("memory://")
        return
    with tempfile.TemporaryDirectory() as directory:
        if kind == "sqlite":
            yield Store(f"sqlite:///{Path(directory) / 'state.db'}", (), Path(directory))
            return
        program = redis_program()
        assert program is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--appendonly", "yes", "--save", ""]
        with open(os.devnull, "wb") as nothing:
            redis = subprocess.Popen([program, *options], stdin=subprocess.DEVNULL, stdout=nothing)
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert redis.poll() is None, "redis-server does not start"
            yield Store(f"redis://127.0.0.1:{port}", (redis.pid,), Path(directory))
        finally:
            redis.terminate()
            redis.wait()
