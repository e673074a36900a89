"""A server of ours on loopback that asks for a login."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gemel import Context, Server


def notes_server(**options: Any) -> Server[Any]:
    """Return a server with a tool for all who are let in, and one that needs a further scope."""
    server: Server[Any] = Server("notes", version="1", **options)

    @server.tool
    def whoami(ctx: Context[Any]) -> str:
        """Say who is calling."""
        return f"{ctx.principal}: {' '.join(sorted(ctx.scopes))}"

    @server.tool(scopes=["notes.write"])
    def add(text: str) -> str:
        """Add a note."""
        return f"added {text}"

    return server


@asynccontextmanager
async def running(server: Server[Any], port: int) -> AsyncIterator[str]:
    """Serve on a port of loopback, in this loop. Yields the URL of the endpoint."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(server.run_async("http", port=port, announce=ready.set_result))
    either: list[asyncio.Future[Any]] = [task, ready]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        task.cancel()
        await asyncio.wait([task])
