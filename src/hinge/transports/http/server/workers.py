"""Several processes on one set of listening sockets: started, watched, started again, and ended together.

Knows processes and signals; must not know what they serve. POSIX only, since workers are forked: so they can serve an
app that stands in no module.
"""

from __future__ import annotations

import asyncio
import os
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

#: A worker that ends sooner than this after its start counts as one that can't run.
SHORT_LIFE = 2.0
#: So many short lives in a row end the whole server.
SHORT_LIVES = 3

ENDING = (signal.SIGINT, signal.SIGTERM)


class Workers:
    """`work(lifeline)` runs in each worker until SIGTERM; the lifeline is a descriptor that ends with the parent."""

    def __init__(self, work: Callable[[int], None], count: int, patience: float) -> None:
        self._work = work
        self._count = count
        self._patience = patience
        self._born: dict[int, float] = {}
        self._short = 0
        self._asked = 0
        self._lifeline = (-1, -1)

    def run(self) -> None:
        """Until SIGTERM or SIGINT; a second one kills the workers. Raises StartError when workers can't run."""
        if not hasattr(os, "fork"):
            raise StartError("Several workers need a POSIX system: start one, or several servers behind a proxy")
        if threading.active_count() > 1:
            raise StartError("Workers can't be started once there are threads: start the server before anything else")
        self._lifeline = os.pipe()
        before = {number: signal.signal(number, self._take) for number in ENDING}
        try:
            while len(self._born) < self._count:
                self._start()
            self._watch()
        finally:
            self._end()
            for number, previous in before.items():
                signal.signal(number, previous)
            for end in self._lifeline:
                os.close(end)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1
        if self._asked > 1:
            for pid in list(self._born):
                _send(pid, signal.SIGKILL)

    def _start(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            self._born[pid] = time.monotonic()
            return
        status = 1
        try:
            # A group of its own: Ctrl-C on a terminal goes to the parent alone, which passes it on once.
            os.setpgid(0, 0)
            os.close(self._lifeline[1])
            for number in ENDING:
                signal.signal(number, signal.SIG_DFL)
            self._work(self._lifeline[0])
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Never back into the parent's code, which this process shares.
            os._exit(status)

    def _watch(self) -> None:
        while not self._asked:
            pid = self._reap()
            if pid is None:
                time.sleep(0.1)
            else:
                self._replace(pid)

    def _replace(self, pid: int) -> None:
        lived = time.monotonic() - self._born.pop(pid)
        self._short = self._short + 1 if lived < SHORT_LIFE else 0
        if self._short >= SHORT_LIVES:
            raise StartError(f"{self._short} workers ended right after their start; the lines above say why")
        if not self._asked:
            self._start()

    def _reap(self) -> int | None:
        for pid in list(self._born):
            if os.waitpid(pid, os.WNOHANG)[0]:
                return pid
        return None

    def _end(self) -> None:
        """Ask all, wait as long as they may take, kill the rest."""
        for pid in self._born:
            _send(pid, signal.SIGTERM)
        end = time.monotonic() + self._patience
        while self._born and self._asked < 2 and time.monotonic() < end:
            gone = self._reap()
            if gone is None:
                time.sleep(0.02)
            else:
                del self._born[gone]
        for pid in self._born:
            _send(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._born.clear()


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
    """`serve_http` in so many processes, which share the port; blocks until a signal has ended them.

    The app must be made, but never have been used: each worker starts it for itself. Raises StartError; also when the
    app holds handshake sessions, since each of those lives in one process and the next request may reach another.
    """
    if app.holds_sessions:
        raise StartError(
            f"{workers} workers can't share handshake sessions, which live in one process each: "
            "use sessions=False (handshake clients then can't be asked anything), or one worker"
        )
    listening = bind(host, port, uds)
    url = url_of(listening[0], app.options.path, "tls" in serving)

    def work(lifeline: int) -> None:
        run_in_own_loop(_serve_with(app, listening, lifeline, serving))

    try:
        (announce or print_url)(url)
        Workers(work, workers, app.options.limits.drain + 1.0).run()
    finally:
        unbind(listening, uds)


async def _serve_with(app: HttpApp, listening: list[socket.socket], lifeline: int, serving: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()

    def orphaned() -> None:
        loop.remove_reader(lifeline)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(lifeline, orphaned)
    await serve_sockets(app, listening, announce=lambda _url: None, **serving)
