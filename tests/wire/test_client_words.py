"""What a client says, by whatever way and from whatever task: the same words, and nothing that nobody asked for."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from gemel import Client, Limits, Server
from gemel.channel import Transport
from gemel.transports.duplex import DuplexChannel
from tests.client.puppet import META, Puppet, legacy, modern
from tests.jumping_clock import in_no_time
from tests.support import Channel, ChannelKind, Outgoing, Serve
from tests.wire import server as wire_server

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def puppet_of(era: str, **answers: Any) -> Puppet:
    return modern(**answers) if era == "2026" else legacy(**answers)


@both_eras
async def test_a_tool_is_called_by_its_name_and_an_object_of_arguments(era: Any) -> None:
    """TOOL-11."""
    puppet = puppet_of(era, tools_call={"content": []}, tools_list={"tools": []})
    async with Client(puppet, era=era) as client:
        await client.call_tool("t", {"a": [1, None]})
        await client.call_tool("t")
    asked = [message["params"] for message in puppet.came if message.get("method") == "tools/call"]
    assert [params["name"] for params in asked] == ["t", "t"]
    assert asked[0]["arguments"] == {"a": [1, None]}
    assert asked[1].get("arguments", {}) == {}
    assert all(params.keys() <= {"name", "arguments", "_meta"} for params in asked)


@both_eras
async def test_an_id_is_never_used_twice(era: Any) -> None:
    """BASE-04: not after answers, errors, or requests that were given up."""
    puppet = puppet_of(era, tools_list={"tools": []})
    async with Client(puppet, era=era, cache=None) as client:
        for _ in range(20):
            await client.list_tools()
            with pytest.raises(Exception, match="-32601"):
                await client.request("acme/none")
            call = asyncio.ensure_future(client.list_tools())
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
    ids = [message["id"] for message in puppet.came if "method" in message and "id" in message]
    assert len(ids) >= 40
    assert len(set(ids)) == len(ids)


@in_no_time
async def test_what_is_stale_is_asked_for_when_somebody_wants_it_and_not_before() -> None:
    """CACHE-05: a time to live is no timer."""
    puppet = modern(tools_list={"tools": [], "ttlMs": 100, "cacheScope": "private", "resultType": "complete"})
    async with Client(puppet) as client:
        await client.list_tools()
        before = len(puppet.came)
        await asyncio.sleep(3600)
        assert len(puppet.came) == before


# ---------------------------------------------------------------- a transport of one's own


class Box(DuplexChannel):
    """One end of a way that nobody but this test knows: two boxes that hand bytes to each other."""

    kind: ChannelKind = "socket"
    other: Box

    def __init__(self, limits: Limits, *, server: bool) -> None:
        super().__init__(limits, server=server)
        self.carried: list[bytes] = []

    async def send(self, message: Outgoing, /) -> None:
        """Hand it over."""
        self.reply(message, last=False)

    def reply(self, message: Outgoing, *, last: bool) -> None:
        self.carried.append(message.data)
        self._loop.call_soon(self.other.feed, message.data)

    def end_output(self) -> None:
        self._loop.call_soon(self.other.end_input, "the other box was closed")

    async def close(self) -> None:
        """End it."""
        self._shut("closed")


class Boxes(Transport):
    """The transport: it connects a client to a server."""

    def __init__(self, server: Server[Any]) -> None:
        self.server = server
        self.carried: list[bytes] = []

    async def open(self, serve: Serve, /) -> Channel:
        """Two boxes, begun."""
        here, there = Box(self.server.limits, server=False), Box(self.server.limits, server=True)
        here.other, there.other = there, here
        there.begin(self.server.serve(there))
        here.begin(serve(here))
        self.carried = here.carried
        return here


@both_eras
async def test_a_transport_of_ones_own_carries_everything(era: Any) -> None:
    """BASE-19: the same messages, with their metadata and the handshake or none, over any way."""
    server = wire_server.build()
    boxes = Boxes(server)
    async with server.running(), Client(boxes, era=era, on_elicit=lambda form: {"value": "Ann"}) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        assert (await client.call_tool("ask_name")).text == "You are Ann"
        assert len(await client.list_tools()) > 3
    first, call = boxes.carried[0], next(data for data in boxes.carried if b'"tools/call"' in data)
    assert (b'"initialize"' in first, f"{META}protocolVersion".encode() in call) == (era == "2025", era == "2026")


# ---------------------------------------------------------------- whose process it is


@both_eras
async def test_a_process_belongs_to_the_client_and_to_no_task(era: Any) -> None:
    """STATE-03: opened in one task, used in others, some of which were cancelled, closed in one more."""
    client = Client([sys.executable, wire_server.__file__, "{}"], era=era)
    await asyncio.create_task(client.__aenter__())
    hanging = asyncio.create_task(client.call_tool("wait", {"name": "w"}))
    assert (await asyncio.create_task(client.call_tool("until", {"event": "w begins"}))) is not None
    hanging.cancel()
    await asyncio.wait([hanging])
    results = await asyncio.gather(*(client.call_tool("add", {"a": n}) for n in range(5)))
    assert [result.text for result in results] == ["0", "1", "2", "3", "4"]
    await asyncio.create_task(client.__aexit__(None, None, None))
