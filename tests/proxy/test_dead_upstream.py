"""A gateway with a foreign server that can't be reached: the others work, and the dead one is named."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gemel import Client, ConnectFailed, PeerError, Server
from gemel.client.targets import transport_for
from gemel.protocol.limits import Limits
from gemel.proxy import sessions as sessions_module
from tests.proxy.rig import each_front

DEAD = "http://127.0.0.1:1/mcp"


class Switch:
    """A transport to a server that can't be reached until it is turned on."""

    def __init__(self, server: Server[Any]) -> None:
        self._transport = transport_for(server, limits=Limits())
        self.on = False

    def open(self, *arguments: Any, **options: Any) -> Any:
        if not self.on:
            raise ConnectFailed("it is switched off")
        return self._transport.open(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def good() -> Server[Any]:
    server: Server[Any] = Server("good")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    return server


@contextmanager
def short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sessions_module, "FIRST_WAIT", 0.01)
    yield


@each_front
async def test_a_dead_server_does_not_affect_the_others(front: Any, caplog: pytest.LogCaptureFixture) -> None:
    gateway: Server[Any] = Server("gateway")
    gateway.mount(good(), "good")
    gateway.mount(Server.from_client(DEAD, name="dead"), "dead")
    with caplog.at_level(logging.WARNING, "gemel"):
        async with Client(gateway, era=front) as client:
            assert [tool.name for tool in await client.list_tools()] == ["good_add"]
            assert (await client.call_tool("good_add", {"a": 1, "b": 2})).data == 3
            with pytest.raises(PeerError, match=r"The upstream server is not connected: .*127\.0\.0\.1:1"):
                await client.call_tool("dead_search")
    told = [record.getMessage() for record in caplog.records if record.name == "gemel"]
    assert told[0].startswith("The server behind the proxy 'dead' can't be reached, and is tried again: ")


async def test_the_log_of_a_gateway_names_its_servers_as_the_configuration_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {"mcpServers": {name: {"url": DEAD} for name in ("one", "two")}}
    gateway: Server[Any] = Server.from_config(config)
    gateway.mount(Server.from_client(DEAD), "three")
    with caplog.at_level(logging.WARNING, "gemel"):
        async with Client(gateway) as client:
            await client.list_tools()
    told = " ".join(record.getMessage() for record in caplog.records if record.name == "gemel")
    for name in ("one", "two"):
        assert f"The server behind the proxy '{name}' can't be reached" in told
    for name in ("one", "two", "three"):
        assert f"The tools of '{name}' are left out" in told


@each_front
async def test_the_log_says_once_that_lists_lack_a_server_and_once_that_it_is_back(
    front: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = Switch(good())
    gateway: Server[Any] = Server("gateway")
    gateway.mount(Server.from_client(switch), "down")

    def told() -> list[str]:
        return [text for record in caplog.records if (text := record.getMessage()).startswith("The tools of 'down' ")]

    with short_waits(monkeypatch), caplog.at_level(logging.WARNING, "gemel"):
        async with Client(gateway, era=front) as client, client.listen(tools=True) as changes:
            for _ in range(3):
                assert await client.list_tools(cache="refresh") == []
            assert len(told()) == 1
            switch.on = True
            await anext(changes)
            for _ in range(3):
                assert [tool.name for tool in await client.list_tools(cache="refresh")] == ["down_add"]
    left_out, again = told()
    assert "are left out: " in left_out
    assert "are listed again" in again


async def test_a_server_that_comes_later_is_offered_then(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = Switch(good())
    gateway: Server[Any] = Server("gateway")
    gateway.mount(Server.from_client(switch), "late")
    with short_waits(monkeypatch):
        async with Client(gateway) as client, client.listen(tools=True) as changes:
            assert await client.list_tools() == []
            switch.on = True
            await anext(changes)
            assert [tool.name for tool in await client.list_tools(cache="refresh")] == ["late_add"]
            assert (await client.call_tool("late_add", {"a": 1, "b": 2})).data == 3


async def test_a_strict_one_is_an_error_of_the_gateway() -> None:
    gateway: Server[Any] = Server("gateway")
    gateway.mount(Server.from_client(DEAD, strict=True), "dead")
    with pytest.raises(ConnectFailed):
        async with gateway.running():
            pass


@each_front
async def test_a_proxy_alone_starts_too_and_tries_its_server_again_on_each_use(front: Any) -> None:
    switch = Switch(good())
    async with Client(Server.from_client(switch), era=front) as client:
        with pytest.raises(PeerError, match="The upstream server is not connected: it is switched off"):
            await client.list_tools()
        with pytest.raises(PeerError, match="The upstream server is not connected: it is switched off") as failed:
            await client.call_tool("add", {"a": 1, "b": 2})
        assert failed.value.data == {"outcome": "not sent"}
        switch.on = True
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        assert [tool.name for tool in await client.list_tools()] == ["add"]


async def test_a_strict_proxy_alone_does_not_start_without_its_server() -> None:
    with pytest.raises(ConnectFailed):
        async with Server.from_client(DEAD, strict=True).running():
            pass


async def test_a_gateway_can_be_left_while_a_server_is_tried_again() -> None:
    gateway: Server[Any] = Server("gateway")
    gateway.mount(Server.from_client(DEAD), "dead")
    before = asyncio.all_tasks()
    async with gateway.running():
        assert asyncio.all_tasks() != before
    assert asyncio.all_tasks() == before
