"""Pairs in memory: client and server, both ends in hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hinge import Server
from hinge.testing import memory_pair


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_both_ends_of_a_conversation_are_in_hand(era: Any) -> None:
    server: Server[Any] = Server("pair")

    @server.tool
    async def double(number: int) -> int:
        return 2 * number

    async with memory_pair(server, era=era) as (client, side):
        assert client.era == era
        assert await client.call_tool("double", {"number": 2}, returns=int) == 4
        assert not side.connection.incoming
    assert side.connection.closed is not None


async def test_the_server_asks_outside_of_any_call() -> None:
    heard: list[str] = []
    server: Server[Any] = Server("pair")
    options: dict[str, Any] = {
        "era": "2025",
        "on_roots": ["/work"],
        "on_notification": lambda method, params: heard.append(method),
    }
    async with memory_pair(server, **options) as pair:
        assert b"file:///work" in bytes(await pair.server.request("roots/list"))
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
