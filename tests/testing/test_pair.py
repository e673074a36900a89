"""Pairs in memory: client and server, both ends in hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import Server
from gemel.testing import memory_pair


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_both_ends_of_a_conversation_are_in_hand(era: Any) -> None:
    server: Server[Any] = Server("pair")

    @server.tool
    async def double(number: int) -> int:
        return 2 * number

    async with memory_pair(server, era=era) as (client, side):
        assert client.era == era
        assert (await client.call_tool("double", {"number": 2}, returns=int)).data == 4
        assert side.calls == []
        assert side.closed is None
    assert side.closed is not None


async def test_what_the_server_is_at_can_be_seen() -> None:
    server: Server[Any] = Server("pair")
    started = asyncio.Event()

    @server.tool
    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    async with memory_pair(server) as (client, side):
        call = asyncio.ensure_future(client.call_tool("wait"))
        await started.wait()
        assert side.calls == ["tools/call"]
        call.cancel()
        await asyncio.wait([call])


async def test_the_server_asks_outside_of_any_call() -> None:
    heard: list[str] = []
    server: Server[Any] = Server("pair")
    options: dict[str, Any] = {
        "era": "2025",
        "on_roots": ["/work"],
        "on_notification": lambda method, params: heard.append(method),
    }
    async with memory_pair(server, **options) as pair:
        assert await pair.server.request("roots/list") == {"roots": [{"uri": "file:///work"}]}
        await pair.server.notify("notifications/tools/list_changed")
        await pair.client.ping()
    assert heard == ["notifications/tools/list_changed"]


async def test_a_server_lives_as_long_as_the_pair() -> None:
    life: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncIterator[None]:
        life.append("begins")
        yield
        life.append("ends")

    async with memory_pair(Server("pair", lifespan=lifespan)):
        assert life == ["begins"]
    assert life == ["begins", "ends"]
