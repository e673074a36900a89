"""A scripted peer: it says what the test says, on every channel, and fails in words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import CallTimeout, Client, ConnectFailed, ConnectionLost, InvalidResponse, PeerError, Server
from gemel.testing import ScriptedPeer, channel_pair

each_way = pytest.mark.parametrize("over", ["memory", "stdio", "socket"])
each_era = pytest.mark.parametrize("era", ["2025", "2026"])
TOOL = {"name": "x", "inputSchema": {"type": "object"}}
LIST = {"tools": [TOOL], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


async def names(target: Any, **options: Any) -> list[str]:
    async with Client(target, **options) as client:
        return [tool.name for tool in await client.list_tools()]


# ---------------------------------------------------------------- a server


@each_era
@each_way
async def test_a_client_talks_to_what_the_test_writes(over: Any, era: Any) -> None:
    async with ScriptedPeer(over=over) as peer:
        asking = asyncio.ensure_future(names(peer, era=era))
        assert await peer.greet() == era
        request = await peer.expect("tools/list")
        await peer.answer(request, LIST)
        assert await asking == ["x"]
        await peer.expect_end()


@each_way
async def test_a_script_runs_for_each_connection(over: Any) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.greet("2025")
        await peer.answer(await peer.expect("tools/list"), LIST)

    async with ScriptedPeer(script, over=over) as peer:
        assert await names(peer) == ["x"]
        assert await names(peer) == ["x"]
        assert peer.connections == 2


async def test_what_a_script_did_not_get_is_raised_at_the_end_of_the_block() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.greet()
        request = await peer.expect("prompts/list")
        await peer.answer(request)

    async def use() -> None:
        async with ScriptedPeer(script) as peer, Client(peer) as client:
            with pytest.raises(CallTimeout):
                await client.request("tools/list", idle=0.1)

    with pytest.raises(AssertionError, match=r"expected prompts/list, but got .*tools/list.*it got: server/discover"):
        await use()


@pytest.mark.foreign_words("the peer sends what is no message")
@each_way
async def test_broken_bytes_arrive_as_they_are(over: Any) -> None:
    async with ScriptedPeer(over=over) as peer:
        asking = asyncio.ensure_future(names(peer, era="2025"))
        await peer.greet("2025")
        request = await peer.expect("tools/list")
        text = b'{"jsonrpc":"2.0","id":%d,"result"' % request["id"]
        await peer.send(text if over == "memory" else text + b"\n")
        with pytest.raises(InvalidResponse):
            await asking


@pytest.mark.parametrize("over", ["stdio", "socket"])
async def test_half_a_message_and_then_the_end(over: Any) -> None:
    async with ScriptedPeer(over=over) as peer:
        asking = asyncio.ensure_future(names(peer, era="2025", reconnect=False))
        await peer.greet("2025")
        await peer.expect("tools/list")
        await peer.send(b'{"jsonrpc":"2.0","id":')
        await peer.close()
        with pytest.raises(ConnectionLost):
            await asking


@pytest.mark.parametrize("over", ["stdio", "socket"])
async def test_a_message_in_pieces_is_one_message(over: Any) -> None:
    async with ScriptedPeer(over=over) as peer:
        asking = asyncio.ensure_future(names(peer, era="2025"))
        await peer.greet("2025")
        request = await peer.expect({"method": "tools/list", "jsonrpc": "2.0"})
        for byte in b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[]}}\n' % request["id"]:
            await peer.send(bytes([byte]))
        assert await asking == []


@each_way
async def test_a_long_message_arrives_whole(over: Any) -> None:
    """Pipes and sockets deliver it in pieces."""
    text = "x" * 300_000
    async with ScriptedPeer(over=over) as peer, asyncio.TaskGroup() as calls:
        client = Client(peer, era="2025")
        opening = calls.create_task(client.connect())
        await peer.greet("2025")
        await opening
        call = calls.create_task(client.call_tool("x", {"text": text}))
        request = await peer.expect("tools/call")
        assert request["params"]["arguments"] == {"text": text}
        await peer.answer(request, {"content": []})
        await call
        await client.close()


@each_way
async def test_a_peer_that_says_nothing(over: Any) -> None:
    async with ScriptedPeer(over=over) as peer:
        client = Client(peer, era="2025")
        opening = asyncio.ensure_future(client.connect())
        await peer.greet("2025")
        await opening
        with pytest.raises(CallTimeout):
            await client.request("tools/list", idle=0.05)
        await peer.expect("tools/list")
        await peer.until("notifications/cancelled")
        await client.close()


async def test_a_peer_that_ends_at_once_is_no_server() -> None:
    async def leave(peer: ScriptedPeer) -> None:
        await peer.close()

    async with ScriptedPeer(leave) as peer:
        with pytest.raises(ConnectFailed):
            await names(peer)


async def test_a_peer_refuses_and_the_client_hears_the_words() -> None:
    async with ScriptedPeer() as peer:
        asking = asyncio.ensure_future(names(peer))
        await peer.greet()
        await peer.answer(await peer.expect(), error={"code": 7, "message": "not today"})
        with pytest.raises(PeerError, match=r"not today \(7\)"):
            await asking


async def test_a_client_elsewhere_finds_the_socket() -> None:
    async with ScriptedPeer(over="socket") as peer:
        asking = asyncio.ensure_future(names(peer.url))
        await peer.greet()
        await peer.answer(await peer.expect("tools/list"), LIST)
        assert await asking == ["x"]


# ---------------------------------------------------------------- a client


def served() -> Server[Any]:
    server: Server[Any] = Server("served")

    @server.tool
    async def double(number: int) -> int:
        return 2 * number

    return server


@each_era
@each_way
async def test_a_server_answers_what_the_test_asks(over: Any, era: Any) -> None:
    async with ScriptedPeer.to(served(), over=over) as peer:
        await peer.greet(era)
        reply = await peer.call("tools/call", {"name": "double", "arguments": {"number": 4}}, era=era)
        assert reply["result"]["content"] == [{"type": "text", "text": "8"}]


@each_way
async def test_a_server_survives_what_is_no_message(over: Any) -> None:
    async with ScriptedPeer.to(served(), over=over) as peer:
        await peer.send(b"nonsense" if over == "memory" else b"nonsense\n")
        await peer.expect({"error": {"code": -32700}})
        await peer.send({"id": 1, "method": "ping"})
        assert (await peer.expect({"id": 1}))["result"] == {}


# ---------------------------------------------------------------- words


async def test_each_failure_says_what_was_expected_and_what_came() -> None:
    async with channel_pair() as (left, right):
        left.patience = 0.01
        with pytest.raises(
            AssertionError, match=r"expected ping, but nothing came within 0.01 seconds. It got: nothing"
        ):
            await left.expect("ping")
        await right.send({"id": 1, "method": "ping"})
        await right.send({"id": 2, "method": "tools/call", "params": {"name": "x"}})
        await left.expect("ping")
        with pytest.raises(AssertionError, match=r"but params.name is 'x', not 'y', in .*\. Before that it got: ping"):
            await left.expect({"params": {"name": "y"}})
        await right.send(b"words")
        with pytest.raises(AssertionError, match=r"expected nothing for 0\.1 seconds, but the peer got b'words'"):
            await left.expect_nothing()
        await left.expect_nothing(0.01)
        await right.send(b"words")
        with pytest.raises(AssertionError, match="expected a message, but got bytes that are not a message: b'words'"):
            await left.expect()
        await right.notify("notifications/x", {"a": 1})
        with pytest.raises(AssertionError, match=r"expected the end of the connection, but got .*notifications/x"):
            await left.expect_end()
        await right.close()
        with pytest.raises(AssertionError, match="expected ping, but the connection was closed"):
            await left.expect("ping")
        with pytest.raises(AssertionError, match="expected ping, but the connection was closed"):
            await left.until("ping")
        with pytest.raises(AssertionError, match=r"could not send .*ping.*: the peer closed the connection"):
            await left.send({"id": 3, "method": "ping"})


async def test_what_comes_before_is_passed_over_when_the_test_says_so() -> None:
    async with channel_pair() as (left, right):
        await right.notify("notifications/a")
        await right.send(b"words")
        await right.notify("notifications/b")
        await left.until("notifications/b")
        assert left.received[1] == b"words"
        assert len(left.received) == 3
