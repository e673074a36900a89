"""A server over HTTP in the process of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gemel import Server


@asynccontextmanager
async def serving(server: Server[Any], **options: Any) -> AsyncIterator[str]:
    """Serve on a free port; gives the URL."""
    announced: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(server.run_async("http", port=0, announce=announced.set_result, **options))
    either: list[asyncio.Future[Any]] = [task, announced]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield announced.result()
    finally:
        task.cancel()
        await asyncio.wait([task])
