"""Several worker processes on the same listening sockets. POSIX only: workers are forked, so any app can be served."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from hinge.errors import StartError
from hinge.transports.event_loop import run_in_own_loop
from hinge.transports.http.server.app import HttpApp
from hinge.transports.http.server.run import bind, print_url, serve_sockets, unbind, url_of

#: A worker that exits within this many seconds of its start has failed to start.
START_SECONDS = 2.0
#: After this many failed starts in a row the server gives up.
FAILED_STARTS = 3

ENDING = (signal.SIGINT, signal.SIGTERM)


class Workers:
    """Starts workers, restarts those that exit, and ends them together.

    Each worker runs `work(pipe, ready)` until SIGTERM. `pipe` is a file descriptor that reaches its end when the parent
    exits; the worker calls `ready()` when it serves. `on_ready()` is called in the parent when the first one does.
    """

    def __init__(
        self,
        work: Callable[[int, Callable[[], None]], None],
        count: int,
        stop_seconds: float,
        on_ready: Callable[[], None],
    ) -> None:
        self._work = work
        self._on_ready: Callable[[], None] | None = on_ready
        self._count = count
        self._stop_seconds = stop_seconds
        #: When each worker started, by process id.
        self._started: dict[int, float] = {}
        self._failed_starts = 0
        self._signals = 0
        self._pipe = (-1, -1)
        #: Workers write a byte to it when they serve.
        self._ready_pipe = (-1, -1)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; a second signal kills the workers.

        Raises:
            StartError: Workers can't run.
        """
        if not hasattr(os, "fork"):
            raise StartError("Several workers need a POSIX system: start one, or several servers behind a proxy")
        if threading.active_count() > 1:
            raise StartError("Workers can't be forked while other threads run: start the server before anything else")
        self._pipe, self._ready_pipe = os.pipe(), os.pipe()
        previous_handlers = {number: signal.signal(number, self._on_signal) for number in ENDING}
        try:
            while len(self._started) < self._count:
                self._start()
            self._watch()
        finally:
            self._end()
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)
            for end in (*self._pipe, *self._ready_pipe):
                os.close(end)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            for pid in list(self._started):
                _send(pid, signal.SIGKILL)

    def _start(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            self._started[pid] = time.monotonic()
            return
        status = 1
        try:
            # In a process group of its own: Ctrl-C in a terminal signals the parent only, which passes it on once.
            os.setpgid(0, 0)
            os.close(self._pipe[1])
            for number in ENDING:
                signal.signal(number, signal.SIG_DFL)
            self._work(self._pipe[0], self._tell_ready)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Not sys.exit: the parent's clean-up code must not run in this process.
            os._exit(status)

    def _watch(self) -> None:
        while not self._signals:
            pid = self._reap()
            if pid is None:
                self._wait()
            else:
                self._replace(pid)

    def _tell_ready(self) -> None:
        os.write(self._ready_pipe[1], b".")

    def _wait(self) -> None:
        if self._on_ready is None:
            time.sleep(0.1)
        elif select.select([self._ready_pipe[0]], [], [], 0.1)[0]:
            self._on_ready()
            self._on_ready = None

    def _replace(self, pid: int) -> None:
        failed = time.monotonic() - self._started.pop(pid) < START_SECONDS
        self._failed_starts = self._failed_starts + 1 if failed else 0
        if self._failed_starts >= FAILED_STARTS:
            raise StartError(f"{self._failed_starts} workers exited right after their start; see the errors above")
        if not self._signals:
            self._start()

    def _reap(self) -> int | None:
        for pid in list(self._started):
            if os.waitpid(pid, os.WNOHANG)[0]:
                return pid
        return None

    def _end(self) -> None:
        """Terminate the workers; kill those that take too long."""
        for pid in self._started:
            _send(pid, signal.SIGTERM)
        end = time.monotonic() + self._stop_seconds
        while self._started and self._signals < 2 and time.monotonic() < end:
            pid_ended = self._reap()
            if pid_ended is None:
                time.sleep(0.02)
            else:
                del self._started[pid_ended]
        for pid in self._started:
            _send(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._started.clear()


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def run_workers(
    app: HttpApp,
    *,
    workers: int,
    host: str = "127.0.0.1",
    port: int = 8000,
    uds: str | None = None,
    announce: Callable[[str], None] | None = None,
    **serving: Any,
) -> None:
    """Serve an app in several processes that share the port; block until a signal has ended them.

    Args:
        app: The app, which must not have been used yet: each worker starts it for itself.
        workers: The number of processes.
        host: See `serve_http`, also for the other options.

    Raises:
        StartError: The server can't start, or the app has HTTP sessions. A session lives in one process, and its next
            request may reach another.
    """
    if app.holds_sessions:
        raise StartError(
            f"{workers} workers can't share handshake sessions, which live in one process each: "
            "use sessions=False (handshake clients then can't be asked anything), or one worker"
        )
    listening = bind(host, port, uds)
    url = url_of(listening[0], app.options.path, serving.get("tls") is not None)

    def work(pipe: int, ready: Callable[[], None]) -> None:
        run_in_own_loop(_serve_until_orphaned(app, listening, pipe, ready, serving))

    try:
        Workers(work, workers, app.options.limits.drain + 1.0, lambda: (announce or print_url)(url)).run()
    finally:
        unbind(listening, uds)


async def _serve_until_orphaned(
    app: HttpApp, listening: list[socket.socket], pipe: int, ready: Callable[[], None], serving: dict[str, Any]
) -> None:
    """Serve until a signal, or until the parent has exited, which ends the pipe."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(pipe)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(pipe, stop)
    await serve_sockets(app, listening, announce=lambda _url: ready(), **serving)
