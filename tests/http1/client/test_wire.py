"""The default wire of the HTTP client: what it keeps, reuses and throws away, and the corners of HTTP/1.1."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from gemel import ConnectionLost, InvalidResponse, NotSent
from gemel.http1.client.pool import SocketWire, idle_limit, read_url
from gemel.http1.client.wire import WireResponse
from tests.transports.scripted_http import Answer, Asked, ScriptedServer, until


@pytest.fixture
async def wire() -> AsyncIterator[SocketWire]:
    made = SocketWire()
    yield made
    await made.close()


async def content(response: WireResponse) -> bytes:
    parts = []
    while piece := await response.read():
        parts.append(piece)
    return b"".join(parts)


async def fetch(wire: SocketWire, url: str, body: bytes | None = b"{}") -> bytes:
    return await content(await wire.open("POST", url, [], body))


def raw(*responses: bytes) -> Any:
    """A server that answers the nth request with the nth bytes, as they are; b"" closes."""
    left = list(responses)

    async def script(asked: Asked, answer: Answer) -> None:
        data = left.pop(0)
        if data:
            await answer.raw(data)
        else:
            answer.close()

    return script


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def test_a_response_of_each_framing_is_read_to_its_end(wire: SocketWire) -> None:
    framings = [
        OK,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1;ext=1\r\nk\r\n0\r\nx-trailer: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
    ]
    async with ScriptedServer(raw(*framings, OK)) as server:
        for _ in range(4):
            assert await fetch(wire, server.url) == b"ok"
        assert server.connections == 1


async def test_content_without_a_length_lasts_until_the_server_closes(wire: SocketWire) -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.raw(b"HTTP/1.1 200 OK\r\n\r\nok")
        answer.close()

    async with ScriptedServer(script) as server:
        assert await fetch(wire, server.url) == b"ok"
        assert await fetch(wire, server.url) == b"ok"
        assert server.connections == 2


@pytest.mark.parametrize("headers", [b"HTTP/1.1 200 OK\r\nconnection: close", b"HTTP/1.0 200 OK"])
async def test_a_connection_that_the_server_will_close_is_not_used_again(wire: SocketWire, headers: bytes) -> None:
    response = headers + b"\r\ncontent-length: 2\r\n\r\nok"
    async with ScriptedServer(raw(response, response)) as server:
        assert await fetch(wire, server.url) == b"ok"
        assert await fetch(wire, server.url) == b"ok"
        assert server.connections == 2


async def test_a_connection_that_the_server_closed_while_idle_is_not_used_again(wire: SocketWire) -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.raw(OK)
        answer.close()

    async with ScriptedServer(script) as server:
        for _ in range(3):
            assert await fetch(wire, server.url) == b"ok"
            await until(lambda: server.open == 0)
            await asyncio.sleep(0.01)


CLOSING = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno"


async def test_a_request_that_met_the_end_of_an_idle_connection_is_sent_on_another(wire: SocketWire) -> None:
    """The server has not read it (RFC 9110 §15.5.9)."""
    bodies: list[bytes] = []
    held = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        bodies.append(asked.body)
        if len(bodies) <= 2:
            if len(bodies) == 2:
                held.set()
            await held.wait()  # so that two connections are open
        await answer.raw(CLOSING if asked.body == b"again" and bodies.count(b"again") <= 2 else OK)

    async with ScriptedServer(script) as server:
        assert await asyncio.gather(*(fetch(wire, server.url, b"first") for _ in range(2))) == [b"ok", b"ok"]
        assert server.connections == 2
        assert await fetch(wire, server.url, b"again") == b"ok"
        assert bodies == [b"first", b"first", b"again", b"again", b"again"]
        assert server.connections == 3


@pytest.mark.parametrize(
    "responses",
    [
        pytest.param((CLOSING,), id="on a new connection"),
        pytest.param((OK, CLOSING.replace(b"connection: close\r\n", b"")), id="on a connection that goes on"),
    ],
)
async def test_other_refusals_with_408_are_answers(wire: SocketWire, responses: tuple[bytes, ...]) -> None:
    async with ScriptedServer(raw(*responses)) as server:
        for _ in responses[1:]:
            assert await fetch(wire, server.url) == b"ok"
        assert (await wire.open("POST", server.url, [], b"{}")).status == 408


async def test_what_follows_a_whole_answer_is_ignored_and_ends_the_connection(wire: SocketWire) -> None:
    """As when a server that stops tells that it closes the connection (RFC 9112 §6.3)."""
    async with ScriptedServer(raw(OK + CLOSING, OK)) as server:
        assert await fetch(wire, server.url) == b"ok"
        assert await fetch(wire, server.url) == b"ok"
        assert server.connections == 2


@pytest.mark.parametrize("seconds", [0.1, 0.6])
async def test_a_close_that_the_blocked_event_loop_has_not_seen_yet_is_noticed(
    wire: SocketWire, seconds: float
) -> None:
    """A script that does something slow between two calls, while the server in its own process goes on."""
    requests = 0

    def serve() -> None:
        nonlocal requests
        for _ in range(2):
            near, _ = listener.accept()
            with near:
                while b"{}" not in near.recv(4096):
                    pass
                requests += 1
                near.sendall(OK)
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert await fetch(wire, url) == b"ok"
        time.sleep(seconds)  # noqa: ASYNC251 # the loop must not see the close before the next request
        assert await fetch(wire, url) == b"ok"
    thread.join(5)
    assert requests == 2


async def test_an_idle_connection_is_closed_after_its_time_and_not_used_after_it() -> None:
    wire = SocketWire(idle=0.05)
    async with ScriptedServer(raw(OK, OK)) as server:
        await fetch(wire, server.url)
        await until(lambda: server.open == 0)
        await fetch(wire, server.url)
        assert server.connections == 2
        await wire.close()


async def test_a_connection_whose_time_ran_out_while_the_loop_was_blocked_is_not_used() -> None:
    wire = SocketWire(idle=0.1)
    async with ScriptedServer(raw(OK, OK)) as server:
        await fetch(wire, server.url)
        time.sleep(0.2)  # noqa: ASYNC251 # nothing may close it before the next request
        await fetch(wire, server.url)
        assert server.connections == 2
        await wire.close()


def test_the_servers_word_on_idle_time_counts() -> None:
    assert idle_limit("timeout=5, max=100", 4.0) == 4.0
    assert idle_limit("timeout=30", 4.0) == 29.0
    assert idle_limit("timeout=1", 4.0) == 0.0
    assert idle_limit("timeout=999999", 4.0) == 60.0
    assert idle_limit("max=100", 4.0) == 4.0


@pytest.mark.parametrize("early", [True, False])
async def test_bytes_that_nobody_asked_for_are_never_taken_for_the_next_answer(wire: SocketWire, early: bool) -> None:
    """Response splitting: a second response in the queue must not answer another request."""
    evil = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.path == "/first":
            await answer.raw(OK + (evil if early else b""))
            if not early:
                await asyncio.sleep(0.02)
                await answer.raw(evil)
        else:
            await answer.raw(OK)

    async with ScriptedServer(script) as server:
        url = f"http://127.0.0.1:{server.port}"
        try:
            await fetch(wire, f"{url}/first")
        except InvalidResponse:
            assert early
        await asyncio.sleep(0.05)
        assert await fetch(wire, f"{url}/second") == b"ok"
        assert server.connections == 2


async def test_a_server_that_speaks_first_is_not_spoken_to(wire: SocketWire) -> None:
    """What came before the request can't be its answer."""

    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hasty, "127.0.0.1", 0) as server:
        target = read_url(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        connection = await wire._connect(target, None)
        await until(lambda: not connection.usable, seconds=2)
        assert not any(wire._idle.values())


async def test_an_answer_before_the_request_was_read_is_taken_and_the_connection_dropped(wire: SocketWire) -> None:
    """413 while a large body is still on its way."""

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 X\r\ncontent-length: 2\r\n\r\nno")
        await writer.drain()
        await gone.wait()
        writer.close()

    gone = asyncio.Event()
    async with await asyncio.start_server(early, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        response = await wire.open("POST", url, [], b"x" * 20_000_000)
        assert response.status == 413
        assert await content(response) == b"no"
        assert not any(wire._idle.values())
        gone.set()


async def test_a_reader_that_does_not_read_stops_the_server_not_the_memory(wire: SocketWire) -> None:
    sent = 0

    async def flood(asked: Asked, answer: Answer) -> None:
        nonlocal sent
        await answer.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 200000000\r\n\r\n")
        for _ in range(2000):
            await answer.raw(b"x" * 100_000)
            sent += 100_000

    async with ScriptedServer(flood) as server:
        response = await wire.open("POST", server.url, [], b"{}")
        stuck = -1
        while stuck != sent:
            stuck = sent
            await asyncio.sleep(0.1)
        assert sent < 50_000_000
        assert len(await content(response)) == 200_000_000


async def test_releasing_a_response_wakes_who_reads_it_and_closes_the_connection(wire: SocketWire) -> None:
    closed = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.stream()
        await answer.gone()
        closed.set()

    async with ScriptedServer(script) as server:
        response = await wire.open("POST", server.url, [], b"{}")
        reading = asyncio.create_task(response.read())
        await asyncio.sleep(0)
        response.close()
        response.close(drain=True)
        with pytest.raises(ConnectionLost):
            await reading
        async with asyncio.timeout(5):
            await closed.wait()


async def test_a_stream_that_is_to_be_finished_may_not_bring_much_more(wire: SocketWire) -> None:
    """Bounded in bytes as well as in time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gemel.http1.client.connection.DRAIN_SECONDS", 60.0)
        await finish_what_does_not_end(wire)


async def finish_what_does_not_end(wire: SocketWire) -> None:
    closed = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.stream()
        try:
            while True:
                await answer.chunk(b"x" * 1000)
                await asyncio.sleep(0)
        finally:
            closed.set()

    async with ScriptedServer(script) as server:
        response = await wire.open("POST", server.url, [], b"{}")
        await response.read()
        response.close(drain=True)
        async with asyncio.timeout(5):
            await closed.wait()


async def test_a_closed_wire_sends_nothing_and_fails_what_waits() -> None:
    wire = SocketWire()

    async def hanging(asked: Asked, answer: Answer) -> None:
        await answer.gone()

    async with ScriptedServer(hanging) as server:
        waiting = asyncio.create_task(fetch(wire, server.url))
        await until(lambda: len(server.asked) == 1)
        await wire.close()
        await wire.close()
        with pytest.raises(ConnectionLost):
            await waiting
        with pytest.raises(NotSent):
            await fetch(wire, server.url)
        assert server.connections == 1


async def test_cancelling_while_connecting_leaves_nothing_open(wire: SocketWire) -> None:
    async with ScriptedServer(raw()) as server:
        task = asyncio.create_task(fetch(wire, server.url))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.02)
        assert server.open == 0
        assert not server.asked


async def test_a_host_name_is_tried_at_each_of_its_addresses(wire: SocketWire) -> None:
    """`localhost` is often ::1 first, where nobody listens."""
    async with ScriptedServer(raw(OK, OK)) as server:
        assert await fetch(wire, f"http://localhost:{server.port}/") == b"ok"


async def test_one_wire_talks_to_several_origins(wire: SocketWire) -> None:
    """Authorization servers live elsewhere."""
    async with ScriptedServer(raw(OK, OK)) as one, ScriptedServer(raw(OK, OK)) as two:
        for server in (one, two, one, two):
            assert await fetch(wire, server.url) == b"ok"
        assert (one.connections, two.connections) == (1, 1)


@given(st.binary(max_size=200))
def test_any_bytes_in_place_of_a_response_end_in_one_of_our_errors(data: bytes) -> None:
    """The fuzz invariant, at the client's end of the wire."""

    async def scenario() -> None:
        async def script(asked: Asked, answer: Answer) -> None:
            await answer.raw(data)
            answer.close()

        wire = SocketWire()
        async with ScriptedServer(script) as server:
            try:
                async with asyncio.timeout(5):
                    await fetch(wire, server.url)
            except (ConnectionLost, InvalidResponse):
                pass
            finally:
                await wire.close()

    asyncio.run(scenario())


def test_the_wire_works_the_same_on_uvloop() -> None:
    async def scenario() -> None:
        for test in (
            test_a_response_of_each_framing_is_read_to_its_end,
            test_content_without_a_length_lasts_until_the_server_closes,
            test_a_reader_that_does_not_read_stops_the_server_not_the_memory,
            test_an_answer_before_the_request_was_read_is_taken_and_the_connection_dropped,
            test_releasing_a_response_wakes_who_reads_it_and_closes_the_connection,
            test_a_host_name_is_tried_at_each_of_its_addresses,
            test_a_stream_that_is_to_be_finished_may_not_bring_much_more,
        ):
            wire = SocketWire()
            await test(wire)
            await wire.close()

    uvloop.run(scenario())
