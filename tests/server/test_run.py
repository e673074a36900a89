"""Running a server in an event loop that is there already."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hinge import Client, Server
from hinge.server.run import loading


def counting() -> Server[Any]:
    server: Server[Any] = Server("counting")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return server


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_server_runs_beside_other_things_until_it_is_cancelled(era: Any) -> None:
    announced: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(counting().run_async("http", port=0, announce=announced.set_result))
    async with Client(await announced, era=era) as client:
        assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
    running.cancel()
    await asyncio.wait([running])
    assert running.done()


async def test_a_server_whose_file_is_only_loaded_does_not_run() -> None:
    with loading():
        await counting().run_async("http")
        counting().run()
