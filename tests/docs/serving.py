"""Servers on loopback for the documents: what stands for the addresses that readers see."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hinge import Server
from hinge.transports.http.server.run import serve_http


@asynccontextmanager
async def over_http(server: Server[Any], **options: Any) -> AsyncIterator[str]:
    """The URL of this server, served over HTTP on a free port in the running loop."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = server.http_app(bind="127.0.0.1", **options)
    serving = asyncio.create_task(serve_http(app, port=0, announce=ready.set_result))
    serving.add_done_callback(lambda task: None if ready.done() else ready.set_exception(RuntimeError("it ended")))
    try:
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
