"""Running a server as a process of its own: the event loop, the lifespan, and the transport that was asked for."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol

from hinge.channel import Channel, Conversation
from hinge.errors import ConnectFailed, DefinitionError, StartError
from hinge.protocol.limits import Limits
from hinge.server.server_options import check_run
from hinge.transports.event_loop import run_in_own_loop
from hinge.transports.stream.stdio import fill_standard_descriptors

_loading: ContextVar[bool] = ContextVar("hinge_loading", default=False)


class Runnable(Protocol):
    """What running needs of a server."""

    limits: Limits

    def serve(self, channel: Channel, /) -> Conversation:
        """Starts a conversation."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Holds the lifespan open."""
        ...

    def http_app(self, path: str = ..., /, **options: Any) -> Any:
        """The server as an ASGI app."""
        ...

    def warn_of_own_keys(self) -> None:
        """Say what several processes need."""


@contextmanager
def loading() -> Iterator[None]:
    """While a file is being imported for its server, a `server.run()` in it does nothing: the importer runs it."""
    token = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(token)


class ScriptEnds(StartError, SystemExit):
    """A StartError that nobody catches ends a script with its one line on stderr and exit code 1, without a traceback."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = f"hinge: {text}"


def run(server: Runnable, transport: str, **options: Any) -> None:
    """Serve in a fresh event loop until the end of input or a signal. Raises StartError.

    That is a SystemExit as well where the process is ours: on the main thread, with no event loop around. Elsewhere an exit
    would be lost, or end what others run.
    """
    if _loading.get():
        return
    if _in_a_loop():
        raise StartError(
            "run() starts an event loop, and one is running here already: write `await server.run_async(…)` in its place"
        )
    fill_standard_descriptors()
    try:
        check_run(transport, options)
        if transport == "http" and options.get("workers", 1) > 1:
            _run_workers(server, **options)
        else:
            _run(_serving(server, transport, options))
    except (StartError, DefinitionError, ConnectFailed) as exc:
        alone = threading.current_thread() is threading.main_thread()
        raise (ScriptEnds if alone else StartError)(str(exc)) from exc


async def run_async(server: Runnable, transport: str, **options: Any) -> None:
    """The same in the event loop that runs already. Raises StartError."""
    if not _loading.get():
        check_run(transport, options)
        await _serving(server, transport, options)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _serving(server: Runnable, transport: str, options: Mapping[str, Any]) -> Coroutine[Any, Any, None]:
    """What serves, to be awaited."""
    ways: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"stdio": _stdio, "http": _http, "socket": _socket}
    return ways[transport](server, **options)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    with suppress(KeyboardInterrupt):
        run_in_own_loop(serving)


async def _stdio(server: Runnable) -> None:
    from hinge.transports.stream.stdio import require_standard_streams, serve_stdio

    require_standard_streams()
    async with server.running():
        await serve_stdio(server.serve, limits=server.limits)


async def _socket(
    server: Runnable, *, path: str | None = None, host: str = "127.0.0.1", port: int | None = None
) -> None:
    from hinge.transports.stream.sockets import serve_socket

    async with server.running():
        await serve_socket(server.serve, path=path, host=host, port=port, limits=server.limits, ready=_announce)


def _announce(address: str | tuple[str, int]) -> None:
    where = f"unix:{address}" if isinstance(address, str) else f"tcp://{address[0]}:{address[1]}"
    print(f"Serving MCP at {where}", file=sys.stderr, flush=True)


async def _http(
    server: Runnable,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    path: str = "/mcp",
    workers: int = 1,
    **options: Any,
) -> None:
    from hinge.transports.http.server.run import serve_http

    if workers > 1:
        raise StartError("Several workers need run(): they are processes, each with an event loop of its own")
    serving = _for_the_process(options)
    await serve_http(server.http_app(path, bind=host, **options), host=host, port=port, **serving)


def _run_workers(
    server: Runnable, *, workers: int, host: str = "127.0.0.1", port: int = 8000, path: str = "/mcp", **options: Any
) -> None:
    from hinge.transports.http.server.workers import run_workers

    server.warn_of_own_keys()
    serving = _for_the_process(options)
    app = server.http_app(path, bind=host, **{"sessions": False, **options})
    run_workers(app, workers=workers, host=host, port=port, **serving)


def _for_the_process(options: dict[str, Any]) -> dict[str, Any]:
    """Takes out of the options those that are not the app's."""
    from hinge.transports.http.server.run import SERVE_OPTIONS

    return {name: options.pop(name) for name in SERVE_OPTIONS & options.keys()}
