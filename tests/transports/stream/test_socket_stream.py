"""Unix and TCP sockets, server and client, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gemel import ConnectFailed, ConnectionLost, DefinitionError, Limits, StartError
from gemel.transports.stream.sockets import Address, SocketServer, TcpSocket, UnixSocket, serve_socket
from tests.support import Channel
from tests.transports.echo import AskConversation, EchoConversation, request
from tests.transports.loops import on_both_loops, until


class Listening:
    """A running server with its conversations."""

    def __init__(self, **where: Any) -> None:
        self.conversations: list[EchoConversation] = []
        self.server = SocketServer(self.serve, **where)

    def serve(self, channel: Channel) -> EchoConversation:
        self.conversations.append(EchoConversation(channel))
        return self.conversations[-1]

    async def connect(self) -> tuple[Channel, AskConversation]:
        made: list[AskConversation] = []

        def serve(channel: Channel) -> AskConversation:
            made.append(AskConversation(channel))
            return made[0]

        address = self.server.address
        transport = UnixSocket(address) if isinstance(address, str) else TcpSocket(*address)
        return await transport.open(serve), made[0]

    def raw(self) -> socket.socket:
        """A plain connection."""
        if isinstance(self.server.address, str):
            plain = socket.socket(socket.AF_UNIX)
            plain.connect(self.server.address)
        else:
            plain = socket.create_connection(self.server.address)
        plain.setblocking(False)
        return plain

    async def open_stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A plain connection that can read and write much."""
        address = self.server.address
        if isinstance(address, str):
            return await asyncio.open_unix_connection(address, limit=1 << 24)
        return await asyncio.open_connection(*address, limit=1 << 24)


@contextlib.asynccontextmanager
async def listening(**where: Any) -> AsyncIterator[Listening]:
    it = Listening(**where)
    await it.server.start()
    try:
        yield it
    finally:
        await it.server.stop()
        await it.server.stop()
        for conversation in it.conversations:
            assert len(conversation.closed) == conversation.finished == 1


@pytest.fixture(params=["unix", "tcp"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Both kinds of sockets."""
    return {"path": tmp_path / "s"} if request.param == "unix" else {"port": 0}


async def read_line(plain: socket.socket) -> Any:
    return json.loads(await asyncio.get_running_loop().sock_recv(plain, 65536))


@on_both_loops
async def test_many_clients_each_have_a_conversation_of_their_own(where: dict[str, Any]) -> None:
    """All use the same ids."""
    async with listening(**where) as it:
        clients = [await it.connect() for _ in range(20)]
        asked = [client.ask("echo", who=n, round=r) for r in range(10) for n, (_, client) in enumerate(clients)]
        answers = await asyncio.gather(*asked)
        assert answers == [{"who": n, "round": r} for r in range(10) for n in range(20)]
        assert len(it.conversations) == 20
        assert {channel.kind for channel, _ in clients} == {"socket"}
        for channel, _ in clients:
            await channel.close()
        await until(lambda: all(conversation.finished for conversation in it.conversations))


@on_both_loops
async def test_one_clients_death_is_nobody_elses_affair(where: dict[str, Any]) -> None:
    """Failures are per connection."""
    async with listening(**where) as it:
        channel, client = await it.connect()
        plain = it.raw()
        await asyncio.get_running_loop().sock_sendall(plain, request(1, "sleep", seconds=100))
        await until(lambda: len(it.conversations) == 2 and it.conversations[1].running)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        plain.close()
        await until(lambda: it.conversations[1].cancelled == ["sleep"])
        assert await client.ask("echo") == {}
        await channel.close()


@on_both_loops
async def test_a_client_that_only_ends_its_own_half_still_gets_its_answers(where: dict[str, Any]) -> None:
    """`echo REQUEST | nc`: it waits, so the time for a server that stops is not its limit."""
    async with listening(**where, limits=Limits(drain=0.01)) as it:
        plain = it.raw()
        await asyncio.get_running_loop().sock_sendall(plain, request(1, "sleep", seconds=0.1))
        plain.shutdown(socket.SHUT_WR)
        answer = await read_line(plain)
        assert (answer["id"], answer.get("error")) == (1, None)
        assert await asyncio.get_running_loop().sock_recv(plain, 100) == b""
        plain.close()


@on_both_loops
async def test_stopping_lets_calls_finish_and_cuts_off_the_rest(where: dict[str, Any]) -> None:
    async with listening(**where, limits=Limits(drain=1)) as it:
        channel, client = await it.connect()
        quick = asyncio.ensure_future(client.ask("sleep", seconds=0.05))
        slow = asyncio.ensure_future(client.ask("sleep", seconds=100))
        await until(lambda: it.conversations and len(it.conversations[0].running) == 2)
        await it.server.stop()
        assert await quick == {"seconds": 0.05}
        with pytest.raises(ConnectionLost):
            await slow
        with pytest.raises(ConnectFailed):
            await it.connect()
        await channel.close()


@on_both_loops
async def test_a_reader_that_does_not_read_ends_alone(where: dict[str, Any]) -> None:
    """Its sender waits, then its channel ends; the others notice nothing."""
    async with listening(**where, limits=Limits(stream_bytes=50_000, stream_wait=0.1)) as it:
        plain = it.raw()
        await asyncio.get_running_loop().sock_sendall(plain, request(1, "notify", times=10_000_000))
        await until(lambda: it.conversations)
        channel, client = await it.connect()
        while not it.conversations[0].closed:
            assert await asyncio.wait_for(client.ask("echo"), 5) == {}
            await asyncio.sleep(0.01)
        assert "has not read" in it.conversations[0].closed[0]
        plain.close()
        await channel.close()


@on_both_loops
async def test_more_connections_than_allowed_are_refused(where: dict[str, Any]) -> None:
    """The bound of everything that a peer can open."""
    async with listening(**where, limits=Limits(sessions=1)) as it:
        channel, client = await it.connect()
        await client.ask("echo")
        with it.raw() as plain, contextlib.suppress(ConnectionResetError):
            assert await asyncio.get_running_loop().sock_recv(plain, 100) == b""
        assert await client.ask("echo") == {}
        assert len(it.conversations) == 1
        await channel.close()


@on_both_loops
async def test_the_address_with_most_connections_loses_an_idle_one_to_others() -> None:
    if sys.platform == "win32":
        pytest.skip("needs further loopback addresses")
    async with listening(port=0, limits=Limits(sessions=4)) as it:
        address = it.server.address
        assert isinstance(address, tuple)

        async def opened(local: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection(*address, local_addr=(local, 0))

        flood = [await opened("127.0.0.2") for _ in range(4)]
        await until(lambda: len(it.conversations) == 4)
        flood[0][1].write(request(1, "sleep", held=True))
        await until(lambda: any(one.running for one in it.conversations))
        refused = await opened("127.0.0.2")
        assert await refused[0].read() == b""
        mine = [await opened("127.0.0.1") for _ in range(2)]
        assert [await reader.read() for reader, _ in flood[1:3]] == [b"", b""]
        for number, (reader, writer) in enumerate(mine):
            writer.write(request(number, "echo"))
            assert b"result" in await reader.readline()
        for one in it.conversations:
            one.released.set()
        assert b"result" in await flood[0][0].readline(), "its call goes on"
        for _, writer in (*flood, *mine, refused):
            writer.close()


@on_both_loops
async def test_incomplete_lines_of_all_connections_share_a_budget(where: dict[str, Any]) -> None:
    """Else ten thousand connections could hold a line each that never ends. Short lines pass, and one long line always does."""

    async with listening(**where, limits=Limits(lines=1_000_000, sessions=100)) as it:
        opened = [await it.open_stream() for _ in range(5)]
        for _, writer in opened:
            writer.write(b'{"half": "' + b"x" * 300_000)
        closed = [asyncio.create_task(_ends(reader)) for reader, _ in opened]
        await until(lambda: sum(task.done() for task in closed) == 2)
        assert it.server.waiting.used <= 1_000_000
        channel, client = await it.connect()
        assert await client.ask("echo") == {}
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.wait(closed)
        await until(lambda: it.server.waiting.used == 0)
        assert await client.ask("echo", text="x" * 2_000_000) == {"text": "x" * 2_000_000}
        await channel.close()


@on_both_loops
async def test_messages_that_wait_for_initialize_share_the_same_budget(where: dict[str, Any]) -> None:
    """Else ten thousand connections could hold 16 MB each while `initialize` is being answered."""
    async with listening(**where, limits=Limits(lines=1_000_000, sessions=100)) as it:
        opened = [await it.open_stream() for _ in range(5)]
        most = 0
        for _, writer in opened:
            writer.write(request(1, "initialize", seconds=0.5))
            writer.write(b"".join(request(number, "echo", pad="x" * 100_000) for number in (2, 3, 4)))
        closed = [asyncio.create_task(_ends(reader)) for reader, _ in opened]
        while sum(bool(one.closed) for one in it.conversations) < 2:
            most = max(most, it.server.waiting.used)
            await asyncio.sleep(0)
        await until(lambda: it.server.waiting.used == 0 and sum(task.done() for task in closed) == 2)
        assert most <= 1_000_000
        for (_, writer), task in zip(opened, closed, strict=True):
            if not task.done():
                writer.write_eof()
        answered = [await task for task in closed]
        for _, writer in opened:
            writer.transport.abort()
        assert sorted(text.count(b"\n") for text in answered) == [0, 0, 4, 4, 4]


async def _ends(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(OSError):
        return await reader.read()
    return b""


@on_both_loops
async def test_a_conversation_that_cannot_begin_closes_its_connection(where: dict[str, Any]) -> None:
    """The server lives on."""
    calls = 0

    def serve(channel: Channel) -> EchoConversation:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("not today")
        return EchoConversation(channel)

    it = Listening(**where)
    it.server = SocketServer(serve, **where)
    await it.server.start()
    with it.raw() as plain, contextlib.suppress(ConnectionResetError):
        assert await asyncio.get_running_loop().sock_recv(plain, 100) == b""
    channel, client = await it.connect()
    assert await client.ask("echo") == {}
    await channel.close()
    await it.server.stop()


@on_both_loops
async def test_a_browser_is_shut_out_by_its_first_byte() -> None:
    """A web page can make a browser post to a loopback port; the body must not be taken for a message."""
    async with listening(port=0) as it:
        plain = it.raw()
        post = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n"
        await asyncio.get_running_loop().sock_sendall(plain, post + request(1, "echo"))
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.get_running_loop().sock_recv(plain, 1000) == b""
        plain.close()
        assert it.conversations[0].seen == []


@on_both_loops
async def test_the_origin_of_a_message_is_the_peers_address() -> None:
    """Origin.transport."""
    async with listening(port=0) as it:
        with it.raw() as plain:
            await asyncio.get_running_loop().sock_sendall(plain, request(1, "echo"))
            await read_line(plain)
            assert it.conversations[0].origins[0].transport == plain.getsockname()


# ---------------------------------------------------------------- starting


@on_both_loops
async def test_a_unix_socket_is_its_owners_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    """The safe default."""
    async with listening(path=tmp_path / "s"):
        assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == 0o600
    assert not (tmp_path / "s").exists()


@on_both_loops
async def test_a_dead_servers_socket_file_is_replaced_and_a_live_ones_is_not(tmp_path: Path) -> None:
    """A crash must not prevent the next start; a second start must not steal the socket."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with listening(path=path) as it:
        with pytest.raises(StartError, match="in use by a running server"):
            await SocketServer(EchoConversation, path=path).start()
        channel, client = await it.connect()
        assert await client.ask("echo") == {}
        await channel.close()


@on_both_loops
async def test_a_socket_file_that_another_server_has_made_is_left_alone(tmp_path: Path) -> None:
    """Only our own file is removed at the end."""
    path = tmp_path / "s"
    async with listening(path=path):
        path.unlink()
        path.write_text("somebody else's")
    assert path.exists()


@on_both_loops
async def test_what_cannot_be_listened_on_is_refused_with_words(tmp_path: Path) -> None:
    """StartError says what to do."""
    (tmp_path / "file").write_text("precious")
    with pytest.raises(StartError, match="exists and is not a socket"):
        await SocketServer(EchoConversation, path=tmp_path / "file").start()
    assert (tmp_path / "file").read_text() == "precious"
    with pytest.raises(StartError, match="Can't listen on the Unix socket"):
        await SocketServer(EchoConversation, path=tmp_path / "no" / "where").start()
    with pytest.raises(StartError, match="Can't listen on the Unix socket"):
        await SocketServer(EchoConversation, path=tmp_path / ("x" * 200)).start()
    with pytest.raises(StartError, match=r"either a path .* or a port"):
        SocketServer(EchoConversation)
    async with listening(port=0) as it:
        assert not isinstance(it.server.address, str)
        with pytest.raises(StartError, match="choose another port"):
            await SocketServer(EchoConversation, port=it.server.address[1]).start()


@pytest.mark.parametrize("port", [65536, 99999, -1, "80", True, 1.0])
def test_a_port_that_there_is_not_is_never_taken_for_another(port: Any) -> None:
    """The system counts on from 0 after 65535."""
    with pytest.raises(StartError, match="is not a port"):
        SocketServer(EchoConversation, port=port)
    with pytest.raises(DefinitionError, match="is not a port"):
        TcpSocket("127.0.0.1", port)


def test_an_empty_path_is_no_path() -> None:
    with pytest.raises(StartError, match="The path of the Unix socket is empty"):
        SocketServer(EchoConversation, path="")


@on_both_loops
async def test_a_server_that_others_can_reach_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Loopback is the default; everything else is a decision that is logged."""
    async with listening(port=0):
        assert "reached from other machines" not in caplog.text
    async with listening(host="0.0.0.0", port=0):
        assert "reached from other machines" in caplog.text


@on_both_loops
async def test_a_client_that_finds_nobody_says_so(tmp_path: Path) -> None:
    """ConnectFailed names the place."""
    with pytest.raises(ConnectFailed, match="none: No such file or directory; is a server listening"):
        await UnixSocket(tmp_path / "none").open(AskConversation)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port}"):
        await TcpSocket("127.0.0.1", port).open(AskConversation)


@on_both_loops
async def test_a_client_conversation_that_cannot_begin_leaves_no_connection(tmp_path: Path) -> None:
    """Transport.open."""

    def refuse(channel: Channel) -> AskConversation:
        raise RuntimeError("no")

    async with listening(path=tmp_path / "s"):
        with pytest.raises(RuntimeError, match="no"):
            await UnixSocket(tmp_path / "s").open(refuse)


@on_both_loops
async def test_serve_socket_runs_until_it_is_cancelled(tmp_path: Path) -> None:
    """It tells where it listens, and cleans up."""
    ready: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_socket(EchoConversation, path=tmp_path / "s", ready=ready.set_result))
    assert await ready == str(tmp_path / "s")
    serving.cancel()
    await asyncio.wait([serving])
    assert not (tmp_path / "s").exists()


@on_both_loops
async def test_serve_socket_ends_cleanly_at_a_signal(tmp_path: Path) -> None:
    """SIGTERM; handlers that were installed before are back afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    await serve_socket(EchoConversation, port=0, ready=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert signal.getsignal(signal.SIGTERM) is before


@on_both_loops
async def test_what_would_never_end_by_itself_is_told_that_the_input_is_over(tmp_path: Path) -> None:
    """An open stream gets its result at once, instead of being cut off after the drain time."""

    async with listening(path=tmp_path / "s", limits=Limits(drain=60)) as it:
        channel, client = await it.connect()
        asked = asyncio.ensure_future(client.ask("listen"))
        await until(lambda: it.conversations and it.conversations[0].running)
        await it.server.stop()
        assert await asked == "ended"
        await channel.close()
