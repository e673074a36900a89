"""A server that says nothing: a socket that is open with nobody behind it is opened anew, a slow server is left alone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import (
    CallError,
    CallTimeout,
    Changed,
    ChangesLost,
    Client,
    ConnectFailed,
    ConnectionLost,
    Limits,
    Outcome,
    Server,
)
from gemel.transports.stream.sockets import SocketServer
from tests.client.puppet import HANG_UP, Puppet, discovered, legacy, modern

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
#: Long enough for a busy machine to answer, short enough to wait for.
SILENCE = 3.0
QUICK = Limits(silence=SILENCE, backoff=0.01)
#: For a server of which it is known that it will say nothing any more before anybody asks.
DEAD = Limits(silence=0.3, backoff=0.01)


def a_server() -> Server[Any]:
    server: Server[Any] = Server("s")

    @server.tool
    async def fine() -> str:
        return "fine"

    @server.tool
    async def slow() -> str:
        await enough.wait()
        return "slow"

    @server.tool
    async def hurry() -> str:
        enough.set()
        return "hurry"

    enough = asyncio.Event()
    return server


class Wire:
    """A proxy in front of a socket that can swallow everything that comes on the connections that are open."""

    def __init__(self, port: int) -> None:
        self.behind = port
        self.port = 0
        self.connections = 0
        self._swallow: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def swallow(self) -> None:
        """Nothing gets through any more, but on connections to come."""
        self._swallow.update(range(self.connections + 1))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        there, back = await asyncio.open_connection("127.0.0.1", self.behind)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, back, number))
                group.create_task(self._pass(there, writer, number))
        finally:
            for one in (back, writer):
                one.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while data := await reader.read(65536):
            if number not in self._swallow:
                writer.write(data)
        writer.write_eof()


@asynccontextmanager
async def wired(server: Server[Any]) -> AsyncIterator[Wire]:
    listening = SocketServer(server.serve, port=0)
    await listening.start()
    wire = Wire(int(listening.address[1]))
    proxy = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.port = proxy.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        proxy.close()
        await listening.stop()


async def until_lost(client: Client) -> None:
    session = client.session
    if session is not None:
        async with asyncio.timeout(30):
            await session.ended()


@both_eras
async def test_a_socket_that_is_open_and_dead_is_opened_anew(era: Any, caplog: pytest.LogCaptureFixture) -> None:
    """PING-02: the call that waited says so, the next one is answered."""
    async with wired(a_server()) as wire, Client(f"tcp://127.0.0.1:{wire.port}", era=era, limits=DEAD) as client:
        assert (await client.call_tool("fine")).text == "fine"
        wire.swallow()
        with pytest.raises(CallTimeout):
            await client.call_tool("fine", idle=0.1)
        patient = asyncio.ensure_future(client.call_tool("fine", idle=None, total=None))
        await until_lost(client)
        with pytest.raises(ConnectionLost, match=r"did not respond for 0\.3 seconds"):
            await patient
        assert (await client.call_tool("fine")).text == "fine"
    assert wire.connections == 2
    assert "did not respond" in caplog.text


@both_eras
async def test_who_only_listens_hears_of_it_when_the_client_asks_now_and_then(era: Any) -> None:
    """SUB-10, PING-02: `limits.alive`."""
    server = a_server()
    limits = Limits(alive=0.1, silence=SILENCE, backoff=0.01)
    async with (
        wired(server) as wire,
        Client(f"tcp://127.0.0.1:{wire.port}", era=era, limits=limits) as client,
        client.listen(tools=True) as changes,
    ):
        wire.swallow()
        async with asyncio.timeout(30):
            assert isinstance(await anext(changes), ChangesLost)

            async def change() -> None:
                for number in range(1000):
                    server.tool(f"t{number}")(lambda: "")
                    await asyncio.sleep(0.05)

            changing = asyncio.ensure_future(change())
            while await anext(changes) != Changed("tools"):
                pass
            changing.cancel()
    assert wire.connections == 2


@both_eras
async def test_a_server_that_is_only_slow_is_left_alone(era: Any) -> None:
    async with wired(a_server()) as wire, Client(f"tcp://127.0.0.1:{wire.port}", era=era, limits=QUICK) as client:
        patient = asyncio.ensure_future(client.call_tool("slow"))
        for _ in range(3):
            with pytest.raises(CallTimeout):
                await client.call_tool("slow", idle=0.05)
        liveness = client._connection._liveness
        assert liveness is not None
        assert liveness._looking is not None
        await liveness._looking
        assert client.connected
        await client.call_tool("hurry")
        assert (await patient).text == "slow"
    assert wire.connections == 1


async def test_it_can_be_left_out() -> None:
    async with wired(a_server()) as wire, Client(f"tcp://127.0.0.1:{wire.port}", limits=Limits(silence=0)) as client:
        wire.swallow()
        with pytest.raises(CallTimeout):
            await client.call_tool("fine", idle=0.1)
        liveness = client._connection._liveness
        assert liveness is not None
        assert liveness._looking is None


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
async def test_a_process_that_hangs_is_started_again_if_wanted(tmp_path: Path) -> None:
    """STDIO-08: by `limits.alive`; by default a process that somebody debugs is left alone."""
    (tmp_path / "s.py").write_text(
        "import os\nfrom gemel import Server\nserver = Server('s')\n"
        "@server.tool\ndef pid() -> int:\n    '''.'''\n    return os.getpid()\nserver.run()\n"
    )
    limits = Limits(alive=0.3, silence=SILENCE, backoff=0.01)
    async with Client(tmp_path / "s.py", limits=limits, patience=0.2) as client:
        first = (await client.call_tool("pid", returns=int)).data
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(ConnectionLost, match="did not respond"):
            await client.call_tool("pid", idle=None, total=None)
        assert (await client.call_tool("pid", returns=int)).data != first


# ---------------------------------------------------------------- gone as soon as it was there


def dies_after_agreeing(times: int) -> Puppet:
    """A stateless server that answers the discovery and is gone, so many times."""
    left = [None] * times

    def leave(puppet: Puppet, message: dict[str, Any]) -> Any:
        if left:
            left.pop()
            puppet.answer(message, discovered())
            return HANG_UP
        return discovered()

    return Puppet({"server/discover": leave, "tools/list": {"tools": []}})


async def test_a_server_that_was_gone_as_soon_as_it_had_agreed_is_opened_again() -> None:
    """Nothing of the user's was sent yet."""
    puppet = dies_after_agreeing(1)
    async with Client(puppet, era="2026", limits=QUICK) as client:
        assert await client.list_tools() == []
    assert puppet.connections == 2


async def test_one_that_is_always_gone_then_is_one_plain_error_after_a_few_attempts() -> None:
    puppet = dies_after_agreeing(1000)
    async with Client(puppet, era="2026", limits=QUICK) as client:
        with pytest.raises(CallError) as caught:
            await client.call_tool("x")
        assert caught.value.outcome is Outcome.NOT_SENT
    assert puppet.connections <= 2 + (1 + QUICK.retries)


async def test_a_server_that_is_lost_while_it_is_told_the_level_is_opened_again_and_told() -> None:
    left = [HANG_UP]
    puppet = legacy(tools_list={"tools": []})
    puppet.by_method["logging/setLevel"] = lambda puppet, message: left.pop() if left else {}
    async with Client(puppet, era="2025", limits=QUICK, on_log=print) as client:
        assert await client.list_tools() == []
    assert puppet.connections == 2


@both_eras
async def test_without_reconnecting_it_is_a_failure_to_connect_and_connecting_may_be_tried_again(era: Any) -> None:
    puppet = legacy() if era == "2025" else modern()
    left = [HANG_UP]
    puppet.by_method["logging/setLevel"] = lambda puppet, message: left.pop() if left else {}
    client = Client(puppet, era=era, limits=QUICK, on_log=print, reconnect=False)
    if era == "2025":
        with pytest.raises(ConnectFailed, match="ended just after the negotiation"):
            await client.connect()
    await client.connect()
    await client.close()
