"""What stands for the servers and proxies of others that the documents speak of."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.docs.configuration import nginx_file
from tests.ports import free_port
from tests.programs import require


async def get(url: str) -> str:
    """What a browser would show there."""

    def read() -> str:
        with urllib.request.urlopen(url, timeout=10) as response:
            text: str = response.read().decode()
            return text

    return await asyncio.to_thread(read)


@asynccontextmanager
async def asgi(app: Any, port: int = 0) -> AsyncIterator[str]:
    """The address of an ASGI application that uvicorn serves, with its lifespan, in the running loop."""
    import uvicorn

    config = uvicorn.Config(app, port=port or free_port(), log_level="warning", lifespan="on")
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
