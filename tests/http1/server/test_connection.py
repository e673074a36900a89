"""Our HTTP server's connections: requests out of any bytes, answers in their order, and an end for each."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import select
import sys
import tracemalloc
import weakref
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from gemel.http1.client.pool import IDLE_SECONDS, idle_limit
from gemel.http1.server import connection as http_connection
from gemel.http1.server import listener as http_listener
from gemel.http1.server.connection import HttpConnection
from gemel.http1.server.request import ServedRequest
from tests.transports.http_listening import HEAD_BYTES, Line, echo, get, listening, post
from tests.transports.loops import on_both_loops

JSON_TYPE = b"application/json"

# ---------------------------------------------------------------- requests out of bytes


@on_both_loops
async def test_a_request_may_come_in_any_pieces() -> None:
    request = post(b"hello", "X-Long: " + "x" * 100)
    async with listening() as house:
        line = await house.ask(*[request[n : n + 1] for n in range(len(request))])
        assert await line.answer() == (200, "POST /a hello")
        for cut in range(1, len(request), 17):
            await line.say(request[:cut], request[cut:])
            assert await line.answer() == (200, "POST /a hello")


@on_both_loops
async def test_a_head_that_was_received_before_is_read_the_same_again() -> None:
    """Nothing of a request may depend on whether the form of its head is known."""
    seen: list[dict[str, object]] = []

    async def serve(request: ServedRequest) -> None:
        seen.append({**request.scope, "headers": list(request.scope["headers"])})
        request.scope["path"] = "/changed"
        request.scope["headers"].append((b"x-added", b"by the app"))
        await echo(request)

    head, body = post(b"hello", "X: 1")[:-5], b"hello"
    pieces = [
        [head + body],
        [head + body],
        [head + b"other"],
        [head, body],
        [head + body[:2], body[2:]],
        [head[:20], head[20:] + body],
        [head + body + get("/next")],
        [head + body + head + b"again"],
        [b"\r\n" + head + body],
        [get("/next")],
        [get("/next")],
    ]
    async with listening(serve) as house:
        line = await house.ask()
        answers = []
        for sent in pieces * 2:
            await line.say(*sent)
            answers.append([await line.answer() for _ in range(b"".join(sent).count(b"HTTP/1.1"))])
        assert answers[: len(pieces)] == answers[len(pieces) :]
        assert answers[2] == [(200, "POST /changed other")]
        assert answers[7] == [(200, "POST /changed hello"), (200, "POST /changed again")]
        second = await house.ask(head + body)
        assert await second.answer() == (200, "POST /changed hello")
        assert seen[-1]["client"] == second.writer.get_extra_info("sockname")
    posts = [scope for scope in seen if scope["method"] == "POST"]
    assert all(scope["path"] == "/a" and scope["headers"] == posts[0]["headers"] for scope in posts)


@on_both_loops
async def test_requests_of_one_connection_have_a_task_and_a_context_each() -> None:
    """Also where Python runs a task until it first waits, before anything else."""
    seen: ContextVar[str] = ContextVar("seen", default="nobody")
    found: list[tuple[str, bool]] = []
    tasks: set[asyncio.Task[Any] | None] = set()

    async def serve(request: ServedRequest) -> None:
        body = (await request.read(100) or b"").decode()
        task = asyncio.current_task()
        before = seen.get()
        seen.set(body)
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            if body == "slow":
                group.create_task(asyncio.sleep(0.01))
        if body == "wrong":
            raise RuntimeError("a handler failed")
        found.append((before, asyncio.current_task() is task is not None))
        tasks.add(task)
        await request.respond(200, JSON_TYPE, seen.get().encode(), ())

    async with listening(serve) as house:
        line = await house.open()
        for body in ("fast", "slow", "fast", "slow"):
            await line.say(post(body.encode()))
            assert await line.answer() == (200, body)
        await line.say(post(b"wrong"))
        assert await line.answer() == (500, "Internal Server Error")
    assert found == [("nobody", True)] * 4
    assert len(tasks) == 4


@on_both_loops
async def test_a_body_may_come_in_chunks_and_its_trailers_are_nobodys_business() -> None:
    """RFC 9110 §6.5.1: what comes after the body must not pass for a header."""
    seen: list[list[tuple[bytes, bytes]]] = []

    async def serve(request: ServedRequest) -> None:
        await echo(request)
        seen.append(request.scope["headers"])

    chunked = get("/a", "Transfer-Encoding: chunked", method="POST")
    async with listening(serve) as house:
        line = await house.ask(
            chunked, b"3\r\nabc\r\n", b"2;ext=1\r\nde\r\n0\r\n", b"Authorization: me\r\n\r\n" + get("/b")
        )
        assert await line.answer() == (200, "POST /a abcde")
        assert await line.answer() == (200, "GET /b ")
    assert [name for name, _ in seen[0]] == [b"host", b"transfer-encoding"]
    assert [name for name, _ in seen[1]] == [b"host"]


@pytest.mark.parametrize(
    ("target", "path", "raw_path", "query"),
    [
        ("/a?b=c", "/a", b"/a", b"b=c"),
        ("/%C3%A9%20", "/é ", b"/%C3%A9%20", b""),
        ("http://other/x?y", "/x", b"/x", b"y"),
        ("http://other", "/", b"/", b""),
        ("*", "*", b"*", b""),
    ],
)
@on_both_loops
async def test_a_target_is_read_as_asgi_tells_it(target: str, path: str, raw_path: bytes, query: bytes) -> None:
    scopes = []

    async def serve(request: ServedRequest) -> None:
        scopes.append(request.scope)
        await request.respond(200, JSON_TYPE, b"", ())

    async with listening(serve) as house:
        line = await house.ask(get(target, "X: 1", "x: 2", "Y:  blanks  ", method="OPTIONS"))
        assert (await line.answer())[0] == 200
        client = line.writer.get_extra_info("sockname")
    scope = scopes[0]
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, raw_path, query)
    assert scope["headers"][1:3] == [(b"x", b"1"), (b"x", b"2")]
    assert (scope["method"], scope["http_version"], scope["scheme"]) == ("OPTIONS", "1.1", "http")
    assert (scope["client"], scope["server"]) == (client, ("127.0.0.1", house.port))


# ---------------------------------------------------------------- one after the other


@on_both_loops
async def test_requests_that_come_together_are_answered_one_after_the_other_in_their_order() -> None:
    running = 0

    async def serve(request: ServedRequest) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        await echo(request)

    async with listening(serve) as house:
        line = await house.ask(b"".join(post(b"x" * n, path=f"/{n}") for n in range(200)))
        for number in range(200):
            assert await line.answer() == (200, f"POST /{number} " + "x" * number)


@on_both_loops
async def test_pipelined_requests_wait_in_the_socket_and_not_in_memory() -> None:
    """Their number and their bytes are limited, however many a client sends."""
    gate = asyncio.Event()

    async def serve(request: ServedRequest) -> None:
        await gate.wait()
        await echo(request)

    tracemalloc.start()
    try:
        async with listening(serve) as house:
            line = await house.open()
            line.writer.transport.set_write_buffer_limits(high=1 << 30)
            flood = get("/a") * 400_000
            line.writer.write(flood)
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            for _ in range(50):
                await asyncio.sleep(0.005)
            read_ahead = tracemalloc.get_traced_memory()[1] - before
            del flood
            line.writer.transport.abort()
            gate.set()
    finally:
        tracemalloc.stop()
    assert read_ahead < 3 * 1024 * 1024


@on_both_loops
async def test_a_client_that_pipelines_does_not_hold_up_others() -> None:
    served: list[str] = []

    async def serve(request: ServedRequest) -> None:
        served.append(request.scope["path"])
        await echo(request)

    async with listening(serve) as house:
        other = await house.ask(get("/warm"))
        await other.answer()
        line = await house.ask(get("/flood") * 20_000)
        while served.count("/flood") < 100:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        count = len(served)
        await other.say(get("/other"))
        assert (await other.answer())[0] == 200
        assert served.index("/other") - count < 100
        line.writer.transport.abort()


@pytest.mark.parametrize("size", [1, 50_000])
@on_both_loops
async def test_pipelined_requests_with_bodies_are_all_answered(size: int) -> None:
    async with listening() as house:
        line = await house.open()
        line.writer.write(post(b"x" * size) * 300)
        for _ in range(300):
            assert await line.answer() == (200, "POST /a " + "x" * size)


@on_both_loops
async def test_work_that_goes_on_after_the_answer_does_not_hold_up_the_next_request() -> None:
    gate = asyncio.Event()

    async def serve(request: ServedRequest) -> None:
        await request.respond(202, b"", b"", ())
        await gate.wait()

    async with listening(serve) as house:
        line = await house.ask(get() + get() + get())
        assert [(await line.answer())[0] for _ in range(3)] == [202, 202, 202]
        assert len(house.listener.tasks) == 3
        gate.set()


@on_both_loops
async def test_a_client_that_does_not_read_gets_its_next_answer_when_it_does() -> None:
    """Answers that nobody reads must not pile up: the next request waits in the socket."""
    big = b"x" * (1 << 20)
    served = 0

    async def serve(request: ServedRequest) -> None:
        nonlocal served
        served += 1
        await request.respond(200, JSON_TYPE, big, ())

    async with listening(serve) as house:
        line = await house.ask(get() * 30)
        await asyncio.sleep(0.1)
        assert served < 15
        for _ in range(30):
            assert (await line.answer())[1] == big.decode()


@on_both_loops
async def test_a_client_that_leaves_is_noticed_at_once() -> None:
    left = asyncio.Event()

    async def serve(request: ServedRequest) -> None:
        request.watch(left.set)
        await left.wait()
        await request.respond(200, JSON_TYPE, b"nobody", ())

    async with listening(serve) as house:
        line = await house.ask(get() + get())
        await asyncio.sleep(0.05)
        line.writer.close()
        async with asyncio.timeout(5):
            await left.wait()


@on_both_loops
async def test_nothing_is_left_of_a_connection_that_is_over() -> None:
    """What stays in a cycle costs a search by the garbage collector, once per connection or request."""
    gc.collect()
    gc.disable()
    try:
        async with listening() as house:
            line = await house.ask(post(b"x") + post(b"y"))
            assert [await line.answer(), await line.answer()] == [(200, "POST /a x"), (200, "POST /a y")]
            (connection,) = house.listener.connections
            gone = weakref.ref(connection)
            del connection
            line.writer.close()
            async with asyncio.timeout(5):
                while gone() is not None:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)
    finally:
        gc.enable()


# ---------------------------------------------------------------- what is no request


@pytest.mark.parametrize(
    ("junk", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "method"),
        (b"GET / HTTP/1.1\nHost: a\n\n", "CRLF"),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "header"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", ""),
        (b"GET / HTTP/1.1\r\n\r\n", "Host"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "Host"),
        (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", "Host"),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "Host"),
        (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "Host"),
        (b"GET / HTTP/1.1\r\nHost: me@a\r\n\r\n", "Host"),
        (b"GET / HTTP/1.1\r\nHost: a:port\r\n\r\n", "Host"),
        (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "Host"),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "Host"),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "Content-Length"),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "Content-Length"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "Content-Length"),
        (b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n", ""),
    ],
)
@on_both_loops
async def test_what_is_no_request_gets_400_after_the_answers_to_those_before_it(junk: bytes, words: str) -> None:
    async with listening() as house:
        line = await house.ask(get("/1") + get("/2") + junk)
        assert [await line.answer(), await line.answer()] == [(200, "GET /1 "), (200, "GET /2 ")]
        status, headers = await line.head()
        assert (status, headers["connection"]) == (400, "close")
        assert words in (await line.rest()).decode()


@pytest.mark.parametrize("host", ["a", "a:80", "a:", "", "[::1]:80", "127.0.0.1:1", "xn--a.b_c~%41", " a \t"])
@on_both_loops
async def test_a_host_may_be_any_name_or_address_with_a_port(host: str) -> None:
    """RFC 9110 §7.2."""
    async with listening() as house:
        line = await house.ask(f"GET /a HTTP/1.1\r\nHost: {host}\r\n\r\nGET /b HTTP/1.0\r\n\r\n".encode())
        assert [await line.answer(), await line.answer()] == [(200, "GET /a "), (200, "GET /b ")]


@on_both_loops
async def test_a_body_that_breaks_off_into_nonsense_ends_its_request_and_no_other() -> None:
    done: list[bytes | None] = []

    async def serve(request: ServedRequest) -> None:
        done.append(await request.read(100))

    async with listening(serve) as house:
        line = await house.ask(get("/a", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\nzz\r\n")
        assert (await line.answer())[0] == 400
        assert await line.rest() == b""
        assert done == [None]


@on_both_loops
async def test_half_an_answer_is_cut_off_when_its_request_turns_out_to_be_nonsense() -> None:
    """A 400 in the middle of a response would be read as a part of it."""

    async def serve(request: ServedRequest) -> None:
        request.start(200, ())
        await request.piece(b"half", True)
        await asyncio.sleep(30)

    async with listening(serve) as house:
        line = await house.ask(get("/a", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\n")
        await line.head()
        assert await line.reader.readexactly(9) == b"4\r\nhalf\r\n"
        await line.say(b"zz\r\n")
        assert await line.rest() == b""
        for task in house.listener.tasks:
            task.cancel()


@on_both_loops
async def test_what_follows_the_last_request_is_not_looked_at() -> None:
    async with listening() as house:
        line = await house.ask(get("/1", "Connection: close") + b"\x00garbage")
        status, headers = await line.head()
        assert (status, headers["connection"]) == (200, "close")
        assert await line.rest() == b"GET /1 "


@pytest.mark.parametrize(
    "endless",
    [
        b"x" * 100,
        b"GET /" + b"x" * 100,
        get()[:-2] + b"X: ",
        get()[:-2] + b"A: b\r\n",
        get("/", "Transfer-Encoding: chunked", method="POST") + b"3;",
        get("/", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\n0\r\nX: ",
    ],
    ids=["junk", "target", "value", "line", "chunk size", "trailer"],
)
@on_both_loops
async def test_what_does_not_end_is_not_kept(endless: bytes) -> None:
    """No unbounded memory, whatever part of a request goes on for ever."""
    more = b"A: b\r\n" * 200 if endless.endswith(b"\n") else b"y" * 1200
    async with listening() as house:
        line = await house.ask(endless)
        for _ in range(2 + HEAD_BYTES // 1000):
            await asyncio.sleep(0.01)  # so that each piece comes by itself
            await line.say(more)
        assert (await line.answer())[0] in (400, 431)
        assert await line.rest() == b""


@on_both_loops
async def test_the_lines_of_a_head_that_does_not_end_are_limited() -> None:
    """Each of them takes more memory than it has bytes."""
    async with listening() as house:
        house.listener.head_lines = 50
        line = await house.ask(get()[:-2])
        await asyncio.sleep(0.01)  # so that the lines are not of the first piece
        await line.say(b"A: b\r\n" * 40)
        await asyncio.sleep(0.01)
        await line.say(b"\r\n")
        assert await line.answer() == (200, "GET /a ")
        line = await house.ask(get()[:-2])
        await asyncio.sleep(0.01)
        await line.say(b"A: b\r\n" * 60)
        assert (await line.answer())[0] == 431
        assert await line.rest() == b""


@on_both_loops
async def test_a_body_in_tiny_chunks_is_no_endless_head() -> None:
    async with listening() as house:
        line = await house.ask(get("/a", "Transfer-Encoding: chunked", method="POST"))
        for _ in range(40):
            await asyncio.sleep(0.001)
            await line.say(b"40\r\n" + b"x" * 64 + b"\r\n")
        await line.say(b"0\r\n\r\n")
        assert await line.answer() == (200, "POST /a " + "x" * 2560)


@on_both_loops
async def test_a_body_of_single_bytes_in_chunks_is_read() -> None:
    async with listening() as house:
        line = await house.ask(get("/a", "Transfer-Encoding: chunked", method="POST"))
        await line.say(b"1\r\nx\r\n" * (4 * HEAD_BYTES), b"0\r\n\r\n")
        assert await line.answer() == (200, "POST /a " + "x" * (4 * HEAD_BYTES))


@on_both_loops
async def test_chunk_extensions_are_limited() -> None:
    async with listening() as house:
        line = await house.ask(get("/a", "Transfer-Encoding: chunked", method="POST"))
        chunk = b"1;" + b"e" * (HEAD_BYTES // 2) + b"\r\nx\r\n"
        await line.say(*[chunk] * 8)
        assert await line.answer() == (400, "The chunks of this body have too much framing")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get(version="2.0"), 505),
        (get(version="0.9"), 505),
        (get(version="3.0"), 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (get("/a", "Transfer-Encoding: gzip, chunked", method="POST") + b"1\r\nx\r\n0\r\n\r\n", 501),
        (get("/a", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked", method="POST") + b"1\r\n", 501),
        (get("/a", "Transfer-Encoding: gzip", method="POST"), 400),
        (get("/a", "Transfer-Encoding: chunked", method="POST", version="1.0") + b"1\r\nx\r\n0\r\n\r\n", 400),
    ],
)
@on_both_loops
async def test_what_http_1_1_does_not_have_is_refused_and_nothing_after_it_is_served(
    request_bytes: bytes, status: int
) -> None:
    """RFC 9110 §15.6.6, RFC 9112 §6.1."""
    served: list[str] = []

    async def serve(request: ServedRequest) -> None:
        body = await request.read(100)
        if body is not None:
            served.append(request.scope["path"])
            await request.respond(200, JSON_TYPE, b"", ())

    async with listening(serve) as house:
        line = await house.ask(get("/before") + request_bytes + get("/after"))
        assert (await line.answer())[0] == 200
        assert (await line.head())[0] == status
        await line.rest()
        assert served == ["/before"]


@on_both_loops
async def test_a_client_of_http_1_0_gets_no_interim_response() -> None:
    async with listening() as house:
        body = b"Content-Length: 5"
        line = await house.ask(get("/a", body.decode(), "Expect: 100-continue", method="POST", version="1.0"), b"hello")
        assert await line.answer() == (200, "POST /a hello")


@on_both_loops
async def test_a_defect_of_ours_is_told_to_the_operator_and_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """httptools wraps what its callbacks raise: it must not pass for a fault of the client."""

    def broken(_self: object, _name: bytes, _value: bytes) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(HttpConnection, "on_header", broken)
    async with listening() as house:
        line = await house.open()
        with caplog.at_level(logging.ERROR, logger="gemel"):
            await line.say(get())
            assert await line.rest() == b""
    assert "ours" in caplog.text


# ---------------------------------------------------------------- other protocols


@on_both_loops
async def test_a_wish_for_another_protocol_is_left_aside_and_the_body_is_not_lost() -> None:
    """RFC 9110 §7.8. Java's client asks for h2c with the first request of every connection, which is often a POST."""
    scopes = []

    async def serve(request: ServedRequest) -> None:
        scopes.append(request.scope)
        await echo(request)

    wish = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAM", "X: y")
    whole, half = post(b"hello", *wish), post(b"again", *wish)
    async with listening(serve) as house:
        line = await house.ask(whole)
        assert await line.answer() == (200, "POST /a hello")
        await line.say(half[:-3], half[-3:])
        assert await line.answer() == (200, "POST /a again")
        await line.say(get("/b", "Connection: close, Upgrade", "Upgrade: websocket"))
        assert (await line.head())[1]["connection"] == "close"
        assert await line.rest() == b"GET /b "
    assert (b"x", b"y") in scopes[0]["headers"]
    assert not {b"upgrade", b"http2-settings"} & {name for name, _ in scopes[0]["headers"]}


@on_both_loops
async def test_many_wishes_for_another_protocol_in_one_segment_are_left_aside() -> None:
    async with listening() as house:
        line = await house.ask(get("/a", "Connection: Upgrade", "Upgrade: h2c") * 3000)
        for _ in range(3000):
            assert await line.answer() == (200, "GET /a ")


@on_both_loops
async def test_a_wish_for_another_protocol_changes_no_limit_and_no_fault() -> None:
    """Its head is read twice, and must be counted once."""
    wish = ("Connection: Upgrade", "Upgrade: h2c")
    body = b"x" * (64 * HEAD_BYTES)
    async with listening() as house:
        line = await house.ask(post(body, *wish)[:-1], b"x")
        assert await line.answer() == (200, "POST /a " + body.decode())
        await line.say(get("/b", *wish) + b"\x00nonsense")
        assert await line.answer() == (200, "GET /b ")
        status, words = await line.answer()
        assert (status, "HTTP/1.1: " in words, "target" in words) == (400, True, False)


@on_both_loops
async def test_nonsense_waits_for_its_turn_behind_requests_that_a_slow_reader_holds_up() -> None:
    big = b"x" * (1 << 20)

    async def serve(request: ServedRequest) -> None:
        await request.respond(200, JSON_TYPE, big, ())

    async with listening(serve) as house:
        line = await house.ask(get() * 20)
        await asyncio.sleep(0.1)
        await line.say(b"\x00nonsense")
        await asyncio.sleep(0.1)
        for _ in range(20):
            assert (await line.answer())[1] == big.decode()
        assert (await line.answer())[0] == 400


@on_both_loops
async def test_it_is_no_proxy() -> None:
    async with listening() as house:
        line = await house.ask(b"CONNECT there:443 HTTP/1.1\r\nHost: there\r\n\r\n")
        assert (await line.answer())[0] == 405
        assert await line.rest() == b""


@pytest.mark.parametrize("wish", [(), ("Connection: keep-alive",)])
@on_both_loops
async def test_a_client_of_http_1_0_gets_its_answer_and_the_end(wish: tuple[str, ...]) -> None:
    async with listening() as house:
        line = await house.ask(get("/a", *wish, version="1.0"))
        status, headers = await line.head()
        assert (status, headers["connection"]) == (200, "close")
        assert await line.rest() == b"GET /a "


# ---------------------------------------------------------------- ends


@on_both_loops
async def test_a_client_that_sends_no_more_gets_the_answer_it_waits_for() -> None:
    """A half-closed connection; 100 Continue finds out whether it is closed for good."""
    gate = asyncio.Event()

    async def serve(request: ServedRequest) -> None:
        await gate.wait()
        await echo(request)

    async with listening(serve) as house:
        line = await house.ask(post(b"1") + post(b"2"))
        line.writer.write_eof()
        assert (await line.head())[0] == 100
        gate.set()
        assert await line.answer() == (200, "POST /a 1")
        assert await line.answer() == (200, "POST /a 2")
        assert await line.rest() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is looked for from time to time")
@on_both_loops
async def test_a_client_that_closes_while_it_is_served_is_noticed_without_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is asked next may depend on it: a proxy serves one caller less."""
    monkeypatch.setattr(http_listener, "TICK", 3600)
    monkeypatch.setattr(http_connection, "RESET_WAIT", 3600)
    begun, noticed = asyncio.Event(), asyncio.Event()

    async def serve(request: ServedRequest) -> None:
        begun.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        noticed.set()

    async with listening(serve) as house:
        files = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            line = await house.ask(get("/a"))
            async with asyncio.timeout(5):
                await begun.wait()
                line.writer.close()
                await noticed.wait()
            begun.clear()
            noticed.clear()
            await line.writer.wait_closed()
        async with asyncio.timeout(5):
            while len(os.listdir("/proc/self/fd")) > files:  # noqa: ASYNC110 - counted, not signalled
                await asyncio.sleep(0)


@on_both_loops
async def test_a_client_that_closes_is_noticed_where_no_file_is_left_for_its_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, noticed = asyncio.Event(), asyncio.Event()

    async def serve(request: ServedRequest) -> None:
        begun.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        noticed.set()

    async with listening(serve) as house:
        line = await house.ask(get("/a"))
        async with asyncio.timeout(5):
            await begun.wait()
            monkeypatch.setattr(select, "epoll", no_file, raising=False)
            line.writer.close()
            await noticed.wait()
        await line.writer.wait_closed()


def no_file() -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def say_for_ever(line: Line) -> None:
    while True:
        await line.say(b"x" * 1000)


@on_both_loops
async def test_who_is_turned_away_before_its_body_came_can_read_why() -> None:
    """Closing while the client still sends would take the answer away; nor is the rest of the body taken for a request."""

    async def serve(request: ServedRequest) -> None:
        await request.respond(413, JSON_TYPE, b"too much", ())

    async with listening(serve) as house:
        line = await house.ask(get("/a", "Content-Length: 9000000", method="POST"))
        await asyncio.sleep(0.05)
        await line.say(*[get("/smuggled") * 100] * 20)
        status, headers = await line.head()
        assert (status, headers["connection"]) == (413, "close")
        assert await line.rest() == b"too much"


@on_both_loops
async def test_who_goes_on_sending_after_the_last_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "TICK", 0.02)

    async def serve(request: ServedRequest) -> None:
        await request.respond(413, JSON_TYPE, b"", ())

    async with listening(serve) as house:
        line = await house.ask(get("/a", "Content-Length: 9000000", method="POST"))
        assert (await line.answer())[0] == 413
        async with asyncio.timeout(5):
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                await say_for_ever(line)


@pytest.mark.parametrize(
    "said", [b"", b"POST /mcp HT", post(b"hello")[:-3]], ids=["nothing", "half a head", "half a body"]
)
@on_both_loops
async def test_a_connection_that_does_not_get_on_is_closed(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "TICK", 0.02)

    async def serve(request: ServedRequest) -> None:
        await request.respond(200, JSON_TYPE, b"", ())

    async with listening(serve if b"\r\n" in said else echo) as house:
        line = await house.ask(said)
        assert (await line.rest()).endswith(b"\r\n\r\n" if b"\r\n" in said else b"")


@on_both_loops
async def test_a_connection_may_be_idle_between_two_requests_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "TICK", 0.01)
    monkeypatch.setattr(http_connection, "IDLE", 40)
    async with listening() as house:
        line = await house.ask(get())
        await line.answer()
        tick = house.listener.tick
        assert await line.rest() == b""
        assert house.listener.tick - tick >= 39
        # What a client was busy with before doesn't count for the next head.
        line = await house.ask(get())
        await line.answer()
        tick = house.listener.tick
        while house.listener.tick < tick + 30:  # noqa: ASYNC110 - it is the clock itself
            await asyncio.sleep(0.01)
        await line.say(get("/late")[:-2])
        await asyncio.sleep(0.03)
        await line.say(b"\r\n")
        assert await line.answer() == (200, "GET /late ")


@on_both_loops
async def test_an_idle_connection_is_kept_for_longer_than_its_clients_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that uses it until then, as ours does, meets no close."""
    monkeypatch.setattr(http_listener, "TICK", 0.01)
    async with listening() as house:
        line = await house.ask(get())
        _, headers = await line.head()
        told = int(headers["keep-alive"].removeprefix("timeout="))
        await line.reader.readexactly(int(headers["content-length"]))
        tick = house.listener.tick
        while house.listener.tick < tick + told + 1:  # noqa: ASYNC110 - it is the clock itself
            await asyncio.sleep(0.01)
        await line.say(get("/again"))
        assert await line.answer() == (200, "GET /again ")
        assert IDLE_SECONDS < idle_limit(headers["keep-alive"], IDLE_SECONDS) < told


@pytest.mark.parametrize(("header", "paths"), [("Connection: close", ["/a"]), ("Accept: */*", ["/a", "/b", "/c"])])
@on_both_loops
async def test_what_follows_a_request_that_takes_long_is_read_as_if_it_did_not(
    header: str, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last request of a connection nothing is taken for one."""
    monkeypatch.setattr(http_listener, "TICK", 0.01)
    gate, served = asyncio.Event(), list[str]()

    async def serve(request: ServedRequest) -> None:
        served.append(request.scope["path"])
        await gate.wait()
        await request.respond(200, JSON_TYPE, b"", ())

    async with listening(serve) as house:
        line = await house.ask(get("/a", header))
        for path in ("/b", "/c"):
            tick = house.listener.tick
            while house.listener.tick < tick + 5:  # noqa: ASYNC110 - it is the clock itself
                await asyncio.sleep(0.01)
            await line.say(get(path))
        gate.set()
        for _ in paths:
            assert (await line.answer())[0] == 200
    assert served == paths


@on_both_loops
async def test_a_reader_that_reads_nothing_is_cut_off_and_a_slow_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "TICK", 0.01)
    big = b"x" * (32 << 20)

    async def serve(request: ServedRequest) -> None:
        await request.respond(200, JSON_TYPE, big, ())

    async with listening(serve) as house:
        house.listener.stall = 30
        idle, slow = await house.ask(get()), await house.ask(get())
        await slow.head()
        got, ticks = 0, house.listener.tick
        while len(house.listener.connections) == 2:
            got += len(await slow.reader.readexactly(1 << 17))
            await asyncio.sleep(0.01)
        assert house.listener.tick > ticks
        assert len(await slow.reader.readexactly(len(big) - got)) == len(big) - got
        await slow.say(get())
        await slow.head()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await idle.reader.readexactly(len(big))


@on_both_loops
async def test_while_the_server_ends_answers_are_the_last_of_their_connection() -> None:
    gate = asyncio.Event()

    async def serve(request: ServedRequest) -> None:
        await gate.wait()
        await echo(request)

    async with listening(serve) as house:
        busy, idle = await house.ask(get()), await house.open()
        while not house.listener.tasks:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        house.listener.drain()
        with pytest.raises(ConnectionRefusedError):
            await house.open()
        await idle.say(get("/b"))
        gate.set()
        for line, path in ((busy, "/a"), (idle, "/b")):
            status, headers = await line.head()
            assert (status, headers["connection"]) == (200, "close")
            assert await line.rest() == f"GET {path} ".encode()


@on_both_loops
async def test_at_the_end_idle_connections_are_closed_in_good_order_and_all_others_cut() -> None:
    async def serve(request: ServedRequest) -> None:
        await (asyncio.sleep(30) if request.scope["path"] == "/slow" else echo(request))

    async with listening(serve) as house:
        slow, idle = await house.ask(get("/slow")), await house.ask(get())
        await idle.answer()
        await house.listener.end(0.05)
        status, headers = await idle.head()
        assert (status, headers["connection"]) == (408, "close")
        assert b"HTTP/" not in await idle.rest()
        house.listener.close()
        with suppress(ConnectionResetError):
            assert await slow.rest() == b""


@on_both_loops
async def test_a_request_that_meets_the_end_of_its_connection_is_not_served() -> None:
    """It is answered with 408: the client may send it again, since nothing of it was read (RFC 9110 §15.5.9)."""
    served: list[str] = []

    async def serve(request: ServedRequest) -> None:
        served.append(request.scope["path"])
        await echo(request)

    async with listening(serve) as house:
        line = await house.ask(get("/first"))
        assert await line.answer() == (200, "GET /first ")
        line.writer.write(get("/second"))  # before the server's end of the connection has arrived
        house.listener.drain()
        house.listener.close_unused()
        status, headers = await line.head()
        assert (status, headers["connection"]) == (408, "close")
        await line.rest()
        assert served == ["/first"]


@on_both_loops
async def test_a_new_connection_may_send_its_first_request_while_the_server_stops() -> None:
    async with listening() as house:
        line = await house.open()
        while not house.listener.connections:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        house.listener.drain()
        house.listener.close_unused()
        await line.say(get("/first"))
        status, headers = await line.head()
        assert (status, headers["connection"]) == (200, "close")
