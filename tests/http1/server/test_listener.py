"""Our HTTP server as a whole: TLS, Unix sockets, its clock, on every event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Server, StartError
from gemel.http1.server import connection as http_connection
from gemel.http1.server import listener as http_listener
from gemel.http1.server.listener import Listener
from gemel.http1.server.request import PIECE, ServedRequest
from tests.serving import over_http
from tests.transports.certificates import server_tls
from tests.transports.http_listening import HEAD_BYTES, Line, echo, get, listening, post
from tests.transports.loops import on_both_loops, until

JSON_TYPE = b"application/json"


@asynccontextmanager
async def secure(certificate: Path, serve: Any = echo) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener(serve, HEAD_BYTES)
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    await listener.open([taken], server_tls(certificate))
    try:
        yield listener, port
    finally:
        listener.close()
        await until(lambda: not listener.connections and not listener.tasks)


async def secure_line(certificate: Path, port: int) -> Line:
    trusting = ssl.create_default_context(cafile=str(certificate))
    return Line(*await asyncio.open_connection("127.0.0.1", port, ssl=trusting))


# ---------------------------------------------------------------- TLS


@on_both_loops
async def test_over_tls_it_is_the_same_server(certificate: Path) -> None:
    schemes = []

    async def serve(request: ServedRequest) -> None:
        schemes.append(request.scope["scheme"])
        await echo(request)

    async with secure(certificate, serve) as (_, port):
        line = await secure_line(certificate, port)
        await line.say(get("/1") + post(b"x" * 300_000, path="/2")[:-5], b"x" * 5)
        assert await line.answer() == (200, "GET /1 ")
        assert await line.answer() == (200, "POST /2 " + "x" * 300_000)
        await line.say(get("/3", "Connection: close"))
        await line.head()
        assert await line.rest() == b"GET /3 "
        line.writer.close()
    assert schemes == ["https"] * 3


@on_both_loops
async def test_over_tls_who_is_turned_away_can_read_why(certificate: Path) -> None:
    async def serve(request: ServedRequest) -> None:
        await request.respond(413, JSON_TYPE, b"too much", ())

    async with secure(certificate, serve) as (_, port):
        line = await secure_line(certificate, port)
        await line.say(get("/a", "Content-Length: 9000000", method="POST"), b"x" * 1000)
        assert await line.answer() == (413, "too much")
        line.writer.close()


@on_both_loops
async def test_over_tls_a_slow_reader_gets_all_and_one_that_reads_nothing_is_cut_off(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What TLS has encrypted is in buffers that nobody can see: only pieces show whether a client reads."""
    monkeypatch.setattr(http_listener, "TICK", 0.01)
    monkeypatch.setattr(http_connection, "IDLE", 100)
    big = b"x" * (32 << 20)

    async def serve(request: ServedRequest) -> None:
        await request.respond(200, JSON_TYPE, big, ())

    async with secure(certificate, serve) as (listener, port):
        listener.stall = 50
        idle, slow = await secure_line(certificate, port), await secure_line(certificate, port)
        await idle.say(get())
        await slow.say(get())
        await slow.head()
        received = most = 0
        while len(listener.connections) == 2 or received < len(big) // 2:
            received += len(await slow.reader.readexactly(1 << 16))
            await asyncio.sleep(0.005)
            most = max([most, *(each.transport.get_write_buffer_size() for each in listener.connections)])
        assert most < 3 * PIECE
        assert len(await slow.reader.readexactly(len(big) - received)) == len(big) - received
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await idle.reader.readexactly(len(big))
        for each in (idle, slow):
            each.writer.transport.abort()


@on_both_loops
async def test_who_does_not_speak_tls_disturbs_nobody(certificate: Path) -> None:
    async with secure(certificate) as (_, port):
        plain = Line(*await asyncio.open_connection("127.0.0.1", port))
        await plain.say(get())
        assert b"HTTP" not in await plain.rest()
        line = await secure_line(certificate, port)
        await line.say(get())
        assert await line.answer() == (200, "GET /a ")
        for each in (plain, line):
            each.writer.close()


@on_both_loops
async def test_a_handshake_that_does_not_get_on_is_given_up(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "HEAD_WAIT", 0.2)
    async with secure(certificate) as (_, port):
        silent = Line(*await asyncio.open_connection("127.0.0.1", port))
        assert await silent.rest() == b""
        silent.writer.close()


async def test_our_client_calls_our_server_over_tls(certificate: Path) -> None:
    server = Server[Any]("secure")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with over_http(server, tls=server_tls(certificate)) as url:
        assert url.startswith("https://127.0.0.1:")
        for era in ("2025", "2026"):
            async with Client(url, tls=str(certificate), era=era) as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"


# ---------------------------------------------------------------- sockets


@on_both_loops
async def test_a_request_from_a_unix_socket_has_no_address(tmp_path: Path) -> None:
    scopes = []

    async def serve(request: ServedRequest) -> None:
        scopes.append(request.scope)
        await echo(request)

    path = str(tmp_path / "http.sock")
    taken = socket.socket(socket.AF_UNIX)
    taken.bind(path)
    taken.listen()
    listener = Listener(serve, HEAD_BYTES)
    await listener.open([taken], None)
    line = Line(*await asyncio.open_unix_connection(path))
    await line.say(get())
    assert await line.answer() == (200, "GET /a ")
    assert (scopes[0]["client"], scopes[0]["server"]) == (None, (path, None))
    line.writer.close()
    listener.close()
    await until(lambda: not listener.connections)


@on_both_loops
async def test_a_socket_that_is_no_longer_one_is_one_clear_line() -> None:
    dead = socket.create_server(("127.0.0.1", 0))
    dead.close()
    listener = Listener(echo, HEAD_BYTES)
    with pytest.raises(StartError, match="Can't listen on a socket that is closed"):
        await listener.open([dead], None)
    listener.close()


@on_both_loops
async def test_of_two_that_were_bound_to_a_port_at_once_the_second_is_told() -> None:
    """As two processes do: both can bind, and the one that listens later fails."""
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        second.bind(("127.0.0.1", port))
        first.listen()
        listener = Listener(echo, HEAD_BYTES)
        with pytest.raises(StartError, match=f"Can't listen on 127.0.0.1 port {port}: Address already in use"):
            await listener.open([second], None)
        assert second.getsockname()[1] == port
        listener.close()


@on_both_loops
async def test_it_may_be_closed_twice_and_while_requests_run() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def serve(request: ServedRequest) -> None:
        begun.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with listening(serve) as house:
        await house.ask(get())
        await begun.wait()
        house.listener.close()
        house.listener.close()
        await cancelled.wait()


@on_both_loops
@pytest.mark.parametrize("delay", [0, 1], ids=["while it is accepted", "while it waits to be accepted"])
async def test_a_connection_that_comes_as_the_server_stops_is_served(delay: int) -> None:
    async with listening() as house:
        with socket.create_connection(("127.0.0.1", house.port)) as client:
            client.sendall(get("/first"))
            stopping: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()

            def stop() -> None:
                stopping.set_result(asyncio.ensure_future(house.listener.stop_accepting(alone=True)))

            if delay:
                stop()
            else:
                asyncio.get_running_loop().call_later(0, stop)  # runs just after it was accepted
            await (await stopping)
            client.settimeout(10)
            assert (await asyncio.to_thread(client.recv, 65536)).startswith(b"HTTP/1.1 200 OK")


@on_both_loops
async def test_a_connection_whose_stream_ends_as_the_server_stops_is_good_for_the_next_request() -> None:
    """The head of the stream said so, when the server did not stop yet: the request may be on its way."""
    may_end = asyncio.Event()

    async def serve(request: ServedRequest) -> None:
        if request.scope["path"] != "/stream":
            await echo(request)
            return
        request.start(200, ((b"content-length", b"4"),))
        await request.piece(b"ab", True)
        await may_end.wait()
        await request.piece(b"cd", False)

    async with listening(serve) as house:
        line = await house.ask(get("/stream"))
        _, headers = await line.head()
        assert "connection" not in headers
        house.listener.drain()
        may_end.set()
        assert await line.reader.readexactly(4) == b"abcd"
        await line.say(get("/next"))
        status, headers = await line.head()
        assert (status, headers["connection"]) == (200, "close")
