"""The wire: every message that a test saw."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import Changed, Client, ConnectionLost, HttpStatus, PeerError, Refusal, Server
from gemel.testing import WireLog
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
