"""Running a server as a process of its own: the event loop, the lifespan, and the transport that was asked for."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol

from hinge.errors import StartError
from hinge.protocol.limits import Limits
from hinge.transports.channel import Channel, Conversation

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


def run(server: Runnable, transport: str, **options: Any) -> None:
    """Serve in a fresh event loop until the end of input or a signal. Raises StartError."""
    if _loading.get():
        return
    ways: dict[str, Callable[..., None]] = {"stdio": _run_stdio, "http": _run_http, "socket": _run_socket}
    way = ways.get(transport)
    if way is None:
        raise StartError(f'There is no transport {transport!r}: use "stdio", "http" or "socket"')
    known = inspect.signature(way).parameters
    if all(item.kind is not item.VAR_KEYWORD for item in known.values()) and (unknown := options.keys() - known.keys()):
        raise StartError(f"run({transport!r}) has no option {', '.join(sorted(unknown))}")
    way(server, **options)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    with suppress(KeyboardInterrupt):
        try:
            import uvloop
        except ImportError:
            asyncio.run(serving)
        else:
            uvloop.run(serving)


def _run_stdio(server: Runnable) -> None:
    from hinge.transports.stdio import require_standard_streams, serve_stdio

    async def serve() -> None:
        async with server.running():
            await serve_stdio(server.serve, limits=server.limits)

    require_standard_streams()
    _run(serve())


def _run_socket(server: Runnable, *, path: str | None = None, host: str = "127.0.0.1", port: int | None = None) -> None:
    from hinge.transports.socket_stream import serve_socket

    async def serve() -> None:
        async with server.running():
            await serve_socket(server.serve, path=path, host=host, port=port, limits=server.limits, ready=_announce)

    _run(serve())


def _announce(address: str | tuple[str, int]) -> None:
    where = f"unix:{address}" if isinstance(address, str) else f"tcp://{address[0]}:{address[1]}"
    print(f"Serving MCP at {where}", file=sys.stderr, flush=True)


def _run_http(
    server: Runnable,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    path: str = "/mcp",
    workers: int = 1,
    **options: Any,
) -> None:
    from hinge.transports.http_run import SERVE_OPTIONS, serve_http

    serving = {name: options.pop(name) for name in SERVE_OPTIONS & options.keys()}
    if workers > 1:
        from hinge.transports.http_workers import run_workers

        server.warn_of_own_keys()
        app = server.http_app(path, bind=host, **{"sessions": False, **options})
        run_workers(app, workers=workers, host=host, port=port, **serving)
        return
    app = server.http_app(path, bind=host, **options)
    _run(serve_http(app, host=host, port=port, **serving))
