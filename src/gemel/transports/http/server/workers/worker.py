"""What runs in a worker: the app, and the link to the supervisor, which tells it that the event loop turns."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

from gemel.transports.http.server.app import HttpApp
from gemel.transports.http.server.run import ServingOptions, serve_sockets
from gemel.transports.http.server.workers.status import StatusBoard

logger = logging.getLogger("gemel")

#: What a worker sends to its supervisor.
READY, BEAT = b"r", b"."
#: What a supervisor sends: serve what is connected, then end; log what blocks the event loop.
RETIRE, DUMP = b"r", b"d"


class WorkerPlace(NamedTuple):
    """Which of the workers a process is."""

    number: int
    board: StatusBoard
    #: Seconds between two heartbeats.
    period: float
    #: Names what runs in a thread.
    describe: Callable[[int], str]
    #: Where the workers can meet, readable by their user only; removed at the end.
    folder: str


async def serve_as_worker(
    app: HttpApp, listening: list[socket.socket], link: socket.socket, place: WorkerPlace, serving: ServingOptions
) -> None:
    """Serve until a signal, until the supervisor retires this worker, or until the supervisor is gone."""
    loop = asyncio.get_running_loop()
    retiring = asyncio.Event()
    _dump_crashes()
    threading.Thread(
        target=_listen, args=(link, loop, retiring, place, threading.get_ident()), name="gemel-link", daemon=True
    ).start()

    def beat() -> None:
        place.board.beat(place.number, app.calls)
        tell(link, BEAT)
        loop.call_later(place.period, beat)

    def ready(_url: str) -> None:
        beat()
        tell(link, READY)

    app.workers = place.board.read
    for route in (app.options.routes or {}).values():
        join = getattr(route, "join_workers", None)
        if join is not None:
            await join(place)
    options: ServingOptions = {**serving, "announce": ready, "retiring": retiring}
    await serve_sockets(app, listening, **options)


def tell(link: socket.socket, message: bytes) -> None:
    """Send a message to the other end, unless that is gone or does not read."""
    try:
        link.send(message, socket.MSG_DONTWAIT)
    except OSError:
        return


def _listen(
    link: socket.socket, loop: asyncio.AbstractEventLoop, retiring: asyncio.Event, place: WorkerPlace, serving: int
) -> None:
    """Do what the supervisor asks for. In a thread of its own, since the event loop may be blocked."""
    while True:
        try:
            messages = link.recv(64)
        except ConnectionResetError:  # it is gone, and has not read all heartbeats
            messages = b""
        except OSError:
            return
        if not messages:  # the supervisor is gone
            shutil.rmtree(place.folder, ignore_errors=True)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if DUMP in messages:
            logger.critical("Worker %d is replaced: %s", place.number, place.describe(serving))
        if RETIRE in messages and not loop.is_closed():
            loop.call_soon_threadsafe(retiring.set)


def _dump_crashes() -> None:
    """Let SIGABRT and crashes print the stacks of all threads, which also works in code that is not Python's."""
    try:
        faulthandler.enable()
    except (OSError, RuntimeError, AttributeError, ValueError):  # standard error is closed
        return
