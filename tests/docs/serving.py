"""Servers on loopback for the documents: what stands for the addresses that readers see."""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gemel import Server
from gemel.transports.http.server.run import serve_http
from tests.docs.configuration import nginx_file
from tests.programs import require


@asynccontextmanager
async def over_http(
    server: Server[Any], *, port: int = 0, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[str]:
    """The URL of this server, served over HTTP on a free port in the running loop."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = server.http_app(bind="127.0.0.1", **options)
    serving = asyncio.create_task(serve_http(app, port=port, tls=tls, announce=ready.set_result))
    try:
        either: list[asyncio.Future[Any]] = [serving, ready]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()  # says why it ended
        yield await ready
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def get(url: str) -> str:
    """What a browser would show there."""

    def read() -> str:
        with urllib.request.urlopen(url, timeout=10) as response:
            text: str = response.read().decode()
            return text

    return await asyncio.to_thread(read)


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@asynccontextmanager
async def asgi(app: Any) -> AsyncIterator[str]:
    """The address of an ASGI application that uvicorn serves, with its lifespan, in the running loop."""
    import uvicorn

    config = uvicorn.Config(app, port=free_port(), log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # of older versions
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done(), "the application did not start"
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{config.port}"
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def nginx(text: str, directory: Path) -> AsyncIterator[None]:
    """nginx with this configuration, or a part of one; skips if it is not installed."""
    (directory / "whole.conf").write_text(nginx_file(text, directory), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        require("nginx"), "-p", str(directory), "-c", str(directory / "whole.conf"), "-e", "stderr"
    )
    try:
        pid_file = directory / "nginx.pid"  # `nginx -t` leaves an empty one
        while not pid_file.exists() or pid_file.read_text("utf-8").strip() != str(process.pid):
            assert process.returncode is None, "nginx did not start"
            await asyncio.sleep(0.01)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def haproxy(text: str, directory: Path) -> AsyncIterator[None]:
    """HAProxy with this configuration; skips if it is not installed."""
    (directory / "whole.cfg").write_text(f"{text}\n", encoding="utf-8")
    port = int(text.split("bind 127.0.0.1:")[1].split()[0])
    process = await asyncio.create_subprocess_exec(require("haproxy"), "-db", "-q", "-f", str(directory / "whole.cfg"))
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                assert process.returncode is None, "haproxy did not start"
                await asyncio.sleep(0.01)
        writer.close()
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
