"""Running a server as a process of its own: the event loop, the lifespan, and the transport that was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from hinge.errors import StartError

if TYPE_CHECKING:
    from hinge.server.server import Server

_loading: ContextVar[bool] = ContextVar("hinge_loading", default=False)


@contextmanager
def loading() -> Iterator[None]:
    """While a file is being imported for its server, a `server.run()` in it does nothing: the importer runs it."""
    token = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(token)


def run(server: Server[Any], transport: str, **options: Any) -> None:
    """Serve in a fresh event loop until the end of input or a signal. Raises StartError."""
    if _loading.get():
        return
    if transport == "stdio":
        serving = _stdio(server, **options)
    elif transport == "http":
        serving = _http(server, **options)
    else:
        raise StartError(f'There is no transport {transport!r}: use "stdio" or "http"')
    with suppress(KeyboardInterrupt):
        _run(serving)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)


async def _stdio(server: Server[Any]) -> None:
    from hinge.transports.stdio import serve_stdio

    async with server.running():
        await serve_stdio(server.serve, limits=server.limits)


async def _http(
    server: Server[Any], *, host: str = "127.0.0.1", port: int = 8000, path: str = "/mcp", **options: Any
) -> None:
    from hinge.transports.http_run import SERVE_OPTIONS, serve_http

    serving = {name: options.pop(name) for name in SERVE_OPTIONS & options.keys()}
    app = server.http_app(path, bind=host, **options)
    await serve_http(app, host=host, port=port, **serving)
