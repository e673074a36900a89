"""The channel in memory, on both event loops."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from gemel import ChannelClosed, ConnectionLost, Limits
from gemel.jsonrpc import encode_notification
from gemel.transports.memory import MemoryChannel, connect
from tests.support import DEFAULT_LIMITS, Channel, Outgoing
from tests.transports.echo import AskConversation, EchoConversation
from tests.transports.loops import on_both_loops, until


class Pair:
    """Both conversations of one channel."""

    def __init__(self) -> None:
        self.servers: list[EchoConversation] = []
        self.clients: list[AskConversation] = []

    @property
    def server(self) -> EchoConversation:
        return self.servers[-1]

    @property
    def client(self) -> AskConversation:
        return self.clients[-1]

    def serve(self, channel: Channel) -> EchoConversation:
        self.servers.append(EchoConversation(channel))
        return self.server

    def ask(self, channel: Channel) -> AskConversation:
        self.clients.append(AskConversation(channel))
        return self.client


async def flood(channel: Channel) -> None:
    """Send without end."""
    while True:
        await channel.send(Outgoing(encode_notification("x", {"pad": "x" * 100})))


async def opened(limits: Limits = DEFAULT_LIMITS) -> tuple[Pair, Channel]:
    pair = Pair()
    return pair, await connect(pair.serve, limits=limits).open(pair.ask)


@on_both_loops
async def test_a_request_gets_its_answer_from_a_server_in_the_same_process() -> None:
    pair, channel = await opened()
    assert await pair.client.ask("echo", a=1) == {"a": 1}
    assert channel.kind == pair.server.channel.kind == "memory"
    await channel.close()


@on_both_loops
async def test_notifications_of_a_call_arrive_before_its_answer_and_calls_run_side_by_side() -> None:
    """A handler that notifies before it answers must not dead-lock."""
    pair, channel = await opened()
    slow = asyncio.ensure_future(pair.client.ask("sleep", held=True))
    await pair.client.ask("notify", times=500)
    assert [heard["number"] for heard in pair.client.heard] == list(range(500))
    assert not slow.done()
    pair.server.released.set()
    await slow
    await channel.close()


@on_both_loops
async def test_what_is_sent_before_the_peer_has_begun_is_delivered_when_it_begins() -> None:
    """In order, and through the same routing."""
    one, other = MemoryChannel(DEFAULT_LIMITS, server=False), MemoryChannel(DEFAULT_LIMITS, server=True)
    one.join(other)
    client = AskConversation(one)
    one.begin(client)
    await client.tell("first")
    asked = asyncio.ensure_future(client.ask("echo"))
    await asyncio.sleep(0.01)
    server = EchoConversation(other)
    other.begin(server)
    assert await asked == {}
    assert server.seen == ["first", "echo"]
    await one.close()


@on_both_loops
async def test_what_follows_initialize_waits_until_it_is_answered() -> None:
    """With more messages than the backlog takes."""
    pair, channel = await opened(Limits(backlog=2))
    asked = [asyncio.ensure_future(pair.client.ask("initialize", held=True))]
    asked += [asyncio.ensure_future(pair.client.ask("echo")) for _ in range(5)]
    await asyncio.sleep(0.01)  # more would be seen by then
    assert pair.server.seen == ["initialize"]
    pair.server.released.set()
    await asyncio.gather(*asked)
    assert pair.server.seen == ["initialize", *["echo"] * 5]
    await channel.close()


@on_both_loops
async def test_a_sender_waits_while_too_much_is_on_its_way() -> None:
    """Every queue is bounded: a loop that only sends lets the other end run."""
    pair, channel = await opened(Limits(stream_bytes=10_000))
    server_end = pair.server.channel
    assert isinstance(server_end, MemoryChannel)
    most = 0
    for _ in range(1000):
        await channel.send(Outgoing(encode_notification("x", {"pad": "x" * 100})))
        most = max(most, server_end._size)
    assert most < 11_000
    await until(lambda: len(pair.server.seen) == 1000)
    await channel.close()


@on_both_loops
async def test_a_peer_that_takes_nothing_ends_the_channel() -> None:
    """`limits.stream_wait`, here with an `initialize` that is never answered."""
    pair, channel = await opened(Limits(stream_bytes=1000, stream_wait=0.05, backlog=1))
    asked = asyncio.ensure_future(pair.client.ask("initialize", seconds=100))
    await asyncio.sleep(0.01)
    with pytest.raises(ChannelClosed, match=r"read nothing for 0\.05 seconds"):
        await flood(channel)
    with pytest.raises(ConnectionLost):
        await asked
    await channel.close()
    assert pair.server.cancelled == ["initialize"]


@pytest.mark.parametrize("closer", ["client", "server"])
@on_both_loops
async def test_closing_one_end_closes_both_once_and_stops_what_runs(closer: str) -> None:
    pair, channel = await opened()
    asked = asyncio.ensure_future(pair.client.ask("sleep", seconds=100))
    await until(lambda: pair.server.running)
    end = channel if closer == "client" else pair.server.channel
    await asyncio.gather(end.close(), end.close())
    await channel.close()
    with pytest.raises(ConnectionLost, match="closed"):
        await asked
    assert pair.server.cancelled == ["sleep"]
    assert len(pair.server.closed) == len(pair.client.closed) == pair.server.finished == 1
    with pytest.raises(ChannelClosed):
        await channel.send(Outgoing(b"{}"))


@on_both_loops
async def test_what_was_sent_before_the_close_is_delivered() -> None:
    """As on a pipe."""
    pair, channel = await opened()
    await pair.client.tell("last")
    await channel.close()
    assert pair.server.seen == ["last"]


@on_both_loops
async def test_a_call_may_close_the_channel_that_it_came_by() -> None:
    """It can't wait for its own end."""

    class Closing(EchoConversation):
        async def run(self, call: Any) -> Any:
            await self.channel.close()

    clients = Pair()
    channel = await connect(Closing).open(clients.ask)
    with pytest.raises(ConnectionLost, match="the peer closed the connection"):
        await clients.client.ask("anything")
    await channel.close()


@on_both_loops
async def test_a_call_does_not_inherit_the_context_variables_of_its_caller() -> None:
    """A server in the same process is still another end."""
    who = contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []

    class Looking(EchoConversation):
        async def run(self, call: Any) -> Any:
            seen.append(who.get())
            return {}

    clients = Pair()
    channel = await connect(Looking).open(clients.ask)
    who.set("the client's task")
    await clients.client.ask("anything")
    await asyncio.create_task(clients.client.ask("anything"))
    assert seen == ["nobody", "nobody"]
    await channel.close()


@on_both_loops
async def test_a_client_that_cannot_begin_leaves_no_server_behind() -> None:
    """Transport.open."""
    pair = Pair()

    def refuse(channel: Channel) -> AskConversation:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await connect(pair.serve).open(refuse)
    assert len(pair.server.closed) == 1


@on_both_loops
async def test_each_opening_is_a_connection_of_its_own() -> None:
    pair = Pair()
    transport = connect(pair.serve)
    channels = [await transport.open(pair.ask) for _ in range(3)]
    assert await asyncio.gather(*(client.ask("echo", n=n) for n, client in enumerate(pair.clients))) == [
        {"n": 0},
        {"n": 1},
        {"n": 2},
    ]
    assert [server.seen for server in pair.servers] == [["echo"]] * 3
    for channel in channels:
        await channel.close()
