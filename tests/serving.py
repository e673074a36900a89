"""Servers in the process of a test, over each way that clients take. Every test that needs one starts it here.

`tests/wire/routes.py` has the same ways for a client that is not Gemel's.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal, TypeAlias

from gemel import Client, Server
from gemel.transports.http.server.run import serve_http
from tests.docs.documents import module_of
from tests.source import ROOT

#: The ways of a conversation: "single" is HTTP without sessions, "sse" the transport of 2024-11-05.
Way: TypeAlias = Literal["memory", "unix", "tcp", "websocket", "asgi", "http", "single", "sse"]


@asynccontextmanager
async def announced(serve: Callable[[Callable[[str], None]], Coroutine[Any, Any, None]]) -> AsyncIterator[str]:
    """Run `serve(announce)` until the end of the block; gives what it announces. Raises what ends it before that.

    Also if it ends within the block, or can't be stopped without an error.
    """
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(address.set_result))
    try:
        either: list[asyncio.Future[Any]] = [task, address]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not address.done():
            await task
        yield address.result()
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def running(
    server: Server[Any], transport: Literal["socket", "http"], **options: Any
) -> AbstractAsyncContextManager[str]:
    """Serve with `run_async`; gives what a client takes, such as the URL."""
    return announced(lambda announce: server.run_async(transport, announce=announce, **options))


def serving_app(app: Any, *, port: int = 0, **options: Any) -> AbstractAsyncContextManager[str]:
    """Serve an HTTP application with options of the HTTP server; gives its URL."""
    return announced(lambda announce: serve_http(app, port=port, announce=announce, **options))


def over_http(
    server: Server[Any], *, port: int = 0, tls: ssl.SSLContext | None = None, **options: Any
) -> AbstractAsyncContextManager[str]:
    """Serve over HTTP with options of `http_app`; gives the URL."""
    return serving_app(server.http_app(bind="127.0.0.1", **options), port=port, tls=tls)


@asynccontextmanager
async def over_websocket(server: Server[Any]) -> AsyncIterator[str]:
    """Serve on the WebSocket transport that docs/reference/transports.md writes; gives the URL."""
    transport = websocket_transport()
    async with server.running():
        listening = await transport.listen(server, "127.0.0.1", 0)
        try:
            yield f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        finally:
            listening.close()
            await listening.wait_closed()


def websocket_transport() -> Any:
    """The module that the document writes."""
    return module_of(ROOT / "docs" / "reference" / "transports.md", "websocket_transport.py")


@asynccontextmanager
async def target(server: Server[Any], way: Way) -> AsyncIterator[Any]:
    """Serve on one of the ways; gives what `Client` takes."""
    if way == "memory":
        yield server
    elif way == "asgi":
        yield server.http_app()
    elif way == "unix":
        with tempfile.TemporaryDirectory() as directory:
            async with running(server, "socket", path=f"{directory}/s") as address:
                yield address
    elif way == "tcp":
        async with running(server, "socket", port=0) as address:
            yield address
    elif way == "websocket":
        async with over_websocket(server) as url:
            yield websocket_transport().WebSocketTransport(url)
    elif way == "sse":
        async with over_http(server, sse_path="/sse") as url:
            yield url.replace("/mcp", "/sse")
    else:
        async with over_http(server, sessions=way == "http") as url:
            yield url


@asynccontextmanager
async def connected(server: Server[Any], way: Way, **options: Any) -> AsyncIterator[Client]:
    """A server and Gemel's client with these options, on one of the ways."""
    async with target(server, way) as where, Client(where, **options) as client:
        yield client
