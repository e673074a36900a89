"""Start the inspector: its port, its address, its end."""

from __future__ import annotations

import asyncio
import socket
import sys
import webbrowser
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gemel.dev.access import Access
from gemel.dev.app import DevApp
from gemel.dev.apps import Frames
from gemel.dev.inspector import Inspector
from gemel.dev.journal import EventJournal
from gemel.dev.spans import exporter_environment
from gemel.dev.target import DevTarget
from gemel.errors import StartError
from gemel.http1.asgi import AsgiApp
from gemel.http1.server.listener import Listener
from gemel.http1.server.request import ServedRequest
from gemel.protocol.eras.base import EraOption
from gemel.signals import stop_on_signals
from gemel.transports.http.server.run import bind, unbind
from gemel.visible import escape_text

#: The port that is tried first, and how many are tried.
PORT = 6274
_PORTS = 20
_HEAD_BYTES = 32 * 1024
#: Seconds in which responses may reach their clients at the end.
_MARGIN = 0.3


async def serve_dev(
    target: DevTarget,
    *,
    era: EraOption = "auto",
    host: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = False,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve the inspector until SIGINT, SIGTERM or cancellation.

    Args:
        target: The server to inspect.
        era: The era to connect in; "auto" connects in both.
        host: The address to listen on.
        port: The port, 0 for any free one; by default 6274 or the next one that is free.
        open_browser: Whether to open the page in the browser.
        announce: Called with the address of the page; by default it is printed.

    Raises:
        StartError: The port can't be used.
    """
    listening = _bind(host, port)
    try:
        framing = bind(host, 0, None)
    except StartError:
        unbind(listening, None)
        raise
    try:
        await _serve(target, host, listening, framing, era, open_browser, announce or _printer(target))
    finally:
        unbind(listening, None)
        unbind(framing, None)


async def _serve(
    target: DevTarget,
    host: str,
    listening: list[socket.socket],
    framing: list[socket.socket],
    era: EraOption,
    open_browser: bool,
    announce: Callable[[str], None],
) -> None:
    access = Access(host, listening[0].getsockname()[1])
    inspector = Inspector(_exporting(target, access), EventJournal())
    inspector.frames = Frames(access.base, framing[0].getsockname()[1])
    inspector.on_failure = _complainer(target)
    inspector.on_recovery = lambda: print(f"gemel: {target.name} is connected again", file=sys.stderr, flush=True)
    app = DevApp(inspector, access)
    listeners = [Listener(_served(one), _HEAD_BYTES) for one in (app, inspector.frames)]
    stopping = asyncio.Event()
    try:
        with stop_on_signals(lambda _signal: stopping.set()):
            await listeners[0].open(listening, None)
            await listeners[1].open(framing, None)
            announce(access.address)
            inspector.start(era)
            if open_browser:
                await asyncio.to_thread(webbrowser.open, access.address_for_once())
            await stopping.wait()
    finally:
        for listener in listeners:
            listener.drain()
        await inspector.close()
        for listener in listeners:
            await listener.end(_MARGIN)
            listener.close()


def _exporting(target: DevTarget, access: Access) -> DevTarget:
    """Return the target, with programs that find by their environment where to send their spans."""

    def connect(show: Callable[[str], object]) -> tuple[Any, dict[str, Any]]:
        opened, options = target.open(show)
        if isinstance(opened, list):
            given = options.get("env") or {}
            options["env"] = {**given, **exporter_environment(access.local, access.spans_token, given)}
        return opened, options

    return replace(target, open=connect)


def _served(app: AsgiApp) -> Callable[[ServedRequest], Coroutine[Any, Any, None]]:
    """Return what serves the requests of an app."""

    async def serve(request: ServedRequest) -> None:
        with suppress(OSError):  # the client is gone
            await app(request.scope, request.receive, request.send)

    return serve


def _complainer(target: DevTarget) -> Callable[[str], None]:
    waits = " (it is started again when a file changes)" if target.changes is not None else ""

    def complain(reason: str) -> None:
        print(f"gemel: {target.name} can't be shown: {escape_text(reason)}{waits}", file=sys.stderr, flush=True)

    return complain


def _printer(target: DevTarget) -> Callable[[str], None]:
    def announce(address: str) -> None:
        reloads = "reloads on change; " if target.changes is not None else ""
        print(f"Inspecting {target.name} at {address} ({reloads}Ctrl-C ends it)", flush=True)

    return announce


def _bind(host: str, port: int | None) -> list[socket.socket]:
    """Bind the port; without one, the first of some that is free."""
    for number in range(PORT, PORT + _PORTS) if port is None else ():
        with suppress(StartError):
            return bind(host, number, None)
    return bind(host, PORT if port is None else port, None)
