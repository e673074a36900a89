"""Serve an app in several processes that share the port."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Unpack

from gemel.errors import StartError
from gemel.transports.event_loop import run_in_own_loop
from gemel.transports.http.server.app import HttpApp
from gemel.transports.http.server.run import ServingOptions, bind, print_url, unbind, url_of
from gemel.transports.http.server.workers.reload import (
    become_successor,
    remember_command,
    remembered_command,
    take_inheritance,
)
from gemel.transports.http.server.workers.status import StatusBoard
from gemel.transports.http.server.workers.supervisor import Supervisor
from gemel.transports.http.server.workers.worker import READY, WorkerPlace, serve_as_worker, tell


def run_workers(
    app: HttpApp,
    *,
    workers: int,
    host: str = "127.0.0.1",
    port: int = 8000,
    uds: str | None = None,
    worker_timeout: float = 30.0,
    describe: Callable[[int], str] = lambda thread: "its event loop is blocked",
    **serving: Unpack[ServingOptions],
) -> None:
    """Serve an app in several processes that share the port; block until a signal has ended them.

    Args:
        app: The app, which must not have been used yet: each worker starts it for itself.
        workers: The number of processes.
        host: See `serve_http`, also for the other options.
        port: The port; 0 takes a free one.
        uds: The path of a Unix socket to listen on instead.
        worker_timeout: How long the event loop of a worker may be blocked, in seconds, until the worker is replaced; 0 for
            no limit.
        describe: Names what runs in a thread, for the log of a worker that is blocked.
        serving: See `HttpOptions`.

    Raises:
        StartError: The server can't start, or the app has HTTP sessions that live in one process: the next request of a
            client may reach another.
    """
    if app.holds_sessions and not app.shares_sessions:
        if app.options.sse_path is not None:
            raise StartError("sse_path needs one worker: its clients send to the process that has their stream")
        raise StartError(
            f"{workers} workers can't share handshake sessions, which live in one process each: use "
            'Server(backend="sqlite:///FILE"), sessions=False (handshake clients then can\'t be asked anything), or one '
            "worker"
        )
    remember_command()
    inherited = take_inheritance()
    listening = bind(host, port, uds) if inherited is None else inherited.listening
    board = StatusBoard(workers)
    folder = tempfile.mkdtemp(prefix="gemel-")
    url = url_of(listening[0], app.options.path, serving.get("tls") is not None)

    def work(number: int, link: socket.socket) -> None:
        place = WorkerPlace(number, board, min(1.0, worker_timeout / 4 or 1.0), describe, folder)
        run_in_own_loop(serve_as_worker(app, listening, link, place, serving))

    def ready() -> None:
        if inherited is None:
            (serving.get("announce") or print_url)(url)
        else:
            tell(inherited.link, READY)

    command = remembered_command() if inherited is None else None
    supervisor = Supervisor(
        [partial(work, number) for number in range(workers)],
        board,
        stop_seconds=app.options.limits.drain + 1.0,
        timeout=worker_timeout,
        on_ready=ready,
        reload=None if command is None else lambda link: become_successor(command, link, listening),
        upward=None if inherited is None else inherited.link,
    )
    try:
        supervisor.run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        unbind(listening, uds if inherited is None else None)
