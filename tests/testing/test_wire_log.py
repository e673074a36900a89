"""The wire: every message that a test saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gemel import (
    Changed,
    Client,
    ClientGroup,
    ConnectionLost,
    DefinitionError,
    HttpStatus,
    PeerError,
    Refusal,
    Server,
    sync,
)
from gemel.channel import Transport
from gemel.testing import Recording, WireLog
from tests.serving import over_http

each_era = pytest.mark.parametrize("era", ["2025", "2026"])


def weather() -> Server[Any]:
    server: Server[Any] = Server("weather")

    @server.tool
    async def forecast(city: str) -> str:
        return f"{city}: sunny"

    return server


@each_era
@pytest.mark.parametrize("route", ["memory", "http"])
async def test_a_clients_messages_are_there_to_be_asserted_on(route: str, era: Any) -> None:
    server, wire = weather(), WireLog()
    async with over_http(server) as url, Client(wire.watch(server if route == "memory" else url), era=era) as client:
        await client.call_tool("forecast", {"city": "Oslo"})
        with pytest.raises(PeerError):
            await client.call_tool("nothing")
    call, wrong = wire.named("tools/call")
    assert call in wire.sent
    assert call.params["arguments"] == {"city": "Oslo"}
    answer, refusal = wire.answer_to(call), wire.answer_to(wrong)
    assert answer in wire.received
    assert answer.result["content"][0]["text"] == "Oslo: sunny"
    assert refusal.error["code"] == -32602
    assert '→ {"jsonrpc":"2.0","id":2,"method":"tools/call"' in str(wire)
    assert len(wire.endings) == 1
    with pytest.raises(AssertionError, match="There is no response to ← "):
        wire.answer_to(answer)


@each_era
async def test_a_servers_messages_are_there_whoever_calls(era: Any) -> None:
    server, wire = weather(), WireLog()
    with wire.attach(server):
        async with over_http(server) as url, Client(url, era=era) as client:
            await client.call_tool("forecast", {"city": "Oslo"})
        async with Client(server, era=era) as client:
            await client.call_tool("forecast", {"city": "Bergen"})
    assert [message.params["arguments"]["city"] for message in wire.received if message.method == "tools/call"] == [
        "Oslo",
        "Bergen",
    ]
    assert any(message.result and "content" in message.result for message in wire.sent)
    seen = len(wire.messages)
    async with Client(server):
        pass
    assert len(wire.messages) == seen


@each_era
async def test_messages_of_the_servers_of_a_group_name_their_server(era: Any, tmp_path: Path) -> None:
    file, wire = tmp_path / "mcp.json", WireLog()
    async with over_http(weather()) as url:
        file.write_text(json.dumps({"mcpServers": {"near": {"url": url}, "far": {"url": url}}}))
        async with ClientGroup.from_config(file, era=era, wrap=wire.watch) as group:
            await group.ready()
            await group.call_tool("forecast", {"city": "Oslo"}, server="far")
        async with Client.from_config(file, "near", era=era, wrap=wire.watch) as client:
            await client.call_tool("forecast", {"city": "Rome"})
    calls = [(call.server, call.params["arguments"]["city"]) for call in wire.named("tools/call")]
    assert calls == [("far", "Oslo"), ("", "Rome")]
    assert {message.server for message in wire.messages} == {"near", "far", ""}
    assert str(wire.named("tools/call")[0]).startswith("far → {")


def test_a_group_without_async_can_be_watched() -> None:
    wire = WireLog()
    with sync.ClientGroup({"here": weather()}, wrap=wire.watch) as group:
        group.call_tool("forecast", {"city": "Bern"})
    assert [call.server for call in wire.named("tools/call")] == ["here"]


async def test_each_server_of_a_group_gets_a_recording_of_its_own(tmp_path: Path) -> None:
    def record(transport: Transport, server: str) -> Recording:
        return Recording(tmp_path / f"{server}.jsonl", transport)

    for target in (weather(), ["no-such-program"]):  # the second time from the files
        async with ClientGroup({"one": target, "two": target}, wrap=record) as group:
            await group.ready()
            for server in ("one", "two"):
                result = await group.call_tool("forecast", {"city": server}, server=server)
                assert result.text == f"{server}: sunny"


def test_what_replaces_a_transport_takes_its_arguments() -> None:
    with pytest.raises(DefinitionError, match=r"write `def wrap\(transport, server\)`"):
        ClientGroup({}, wrap=lambda transport: transport)  # type: ignore[arg-type, misc]  # it is refused
    with pytest.raises(DefinitionError, match=r"write `def wrap\(transport\)`"):
        Client("x", wrap=3)  # type: ignore[arg-type]  # it is refused


async def test_what_is_to_come_can_be_waited_for() -> None:
    server, wire = weather(), WireLog()
    async with Client(wire.watch(server), era="2025") as client:
        await client.ping()
        server.notify(Changed("tools"))
        (message,) = await wire.wait_for("notifications/tools/list_changed")
        assert message in wire.received
        with pytest.raises(AssertionError, match=r"0 of 1 nothing/such within 0.01 seconds; the messages are:\n→ "):
            await wire.wait_for("nothing/such", timeout=0.01)


async def test_only_the_last_messages_are_kept() -> None:
    wire = WireLog(most=3)
    async with Client(wire.watch(weather())) as client:
        for _ in range(5):
            await client.ping()
        assert len(wire.messages) == 3
        wire.clear()
        assert str(wire) == "no messages"


async def test_what_the_transport_failed_is_told() -> None:
    async def nobody(scope: Any, headers: Any) -> Refusal:
        return Refusal(403, "nobody may")

    wire = WireLog()
    async with over_http(weather(), authenticate=nobody) as url:
        with pytest.raises(HttpStatus):
            async with Client(wire.watch(url)):
                pass
    assert any(failure.startswith("HttpStatus: ") for failure in wire.failures)


async def test_reconnecting_is_seen_as_another_channel() -> None:
    server, wire = weather(), WireLog()
    async with Client(wire.watch(server), era="2025") as client:
        session = client.session
        assert session is not None
        await session.channel.close()
        try:
            await client.ping()
        except ConnectionLost:
            await client.ping()
    assert {message.channel for message in wire.messages} == {1, 2}
