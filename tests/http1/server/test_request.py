"""One request of our HTTP server: its body as it comes, its response as bytes, and the face it shows to ASGI apps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from gemel.http1.asgi import HeaderPairs
from gemel.http1.server.request import BODY_AHEAD, ServedRequest, header_lines
from tests.transports.http_listening import Serve, echo, get, listening, post
from tests.transports.loops import on_both_loops

JSON_TYPE = b"application/json"


def asgi(app: Any) -> Serve:
    """An ASGI app as our server calls it."""

    async def serve(request: ServedRequest) -> None:
        await app(request.scope, request.receive, request.send)

    return serve


# ---------------------------------------------------------------- the body


@on_both_loops
async def test_a_client_that_asks_first_is_told_to_send_its_body_once_and_only_if_it_is_wanted() -> None:
    """RFC 9110 §10.1.1."""

    async def serve(request: ServedRequest) -> None:
        if request.scope["path"] == "/no":
            await request.respond(401, JSON_TYPE, b"no", ())
        else:
            await echo(request)

    async with listening(serve) as house:
        line = await house.ask(post(b"hello", "Expect: 100-Continue ")[:-5])
        assert (await line.head())[0] == 100
        await line.say(b"he", b"llo")
        assert await line.answer() == (200, "POST /a hello")
        await line.say(post(b"hello", "Expect: 100-continue"))
        assert await line.answer() == (200, "POST /a hello")
        await line.say(post(b"hello", "Expect: 100-continue", path="/no")[:-5])
        assert await line.answer() == (401, "no")


@on_both_loops
async def test_a_body_is_taken_up_to_its_limit_and_the_rest_stays_in_the_socket() -> None:
    sizes: list[int] = []

    async def serve(request: ServedRequest) -> None:
        body = await request.read(100_000)
        assert body is not None
        sizes.append(len(body))
        await request.respond(413, JSON_TYPE, b"", ())

    async with listening(serve) as house:
        line = await house.open()
        sending = asyncio.create_task(line.say(post(b"x" * (8 << 20))))
        assert (await line.answer())[0] == 413
        assert 100_000 < sizes[0] < 1 << 20
        await asyncio.wait([sending], timeout=5)


@on_both_loops
async def test_a_body_that_nobody_reads_is_not_kept() -> None:
    gate = asyncio.Event()
    kept: list[ServedRequest] = []

    async def serve(request: ServedRequest) -> None:
        kept.append(request)
        await gate.wait()
        await echo(request)

    body = b"x" * (1 << 20)
    async with listening(serve) as house:
        line = await house.open()
        sending = asyncio.create_task(line.say(post(body)))
        await asyncio.sleep(0.1)
        assert BODY_AHEAD < len(kept[0].body) < BODY_AHEAD + (1 << 19)
        gate.set()
        assert await line.answer() == (200, "POST /a " + body.decode())
        await sending


@pytest.mark.parametrize("size", [BODY_AHEAD, BODY_AHEAD + 1, 100_000, 300_000])
@on_both_loops
async def test_a_large_body_that_was_there_before_it_was_wanted_holds_up_no_other_request(size: int) -> None:
    """A connection that took no more for a while must take up again, whenever its body is read."""

    async def serve(request: ServedRequest) -> None:
        await asyncio.sleep(0.02)
        body = await request.read(1 << 20)
        await request.respond(200, JSON_TYPE, b"%d" % len(body or b""), ())

    async with listening(serve) as house:
        line = await house.open()
        for _ in range(3):
            await line.say(post(b"x" * size))
            assert await line.answer() == (200, str(size))


@on_both_loops
async def test_a_client_that_leaves_in_the_middle_of_its_body_has_no_body() -> None:
    bodies: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def serve(request: ServedRequest) -> None:
        bodies.put_nowait(await request.read(100))

    async with listening(serve) as house:
        line = await house.ask(post(b"hello")[:-2])
        await asyncio.sleep(0.02)
        line.writer.close()
        async with asyncio.timeout(5):
            assert await bodies.get() is None


# ---------------------------------------------------------------- the response


@on_both_loops
async def test_a_response_carries_the_date() -> None:
    """RFC 9110 §6.6.1."""
    async with listening() as house:
        line = await house.ask(get())
        assert parsedate_to_datetime((await line.head())[1]["date"]).year >= 2024


@pytest.mark.parametrize(
    "bad", [(b"x", b"a\r\nset-cookie: me"), (b"x", b"a\x00"), (b"x y", b"a"), (b"x:", b"a"), (b"", b"a")]
)
@on_both_loops
async def test_no_header_can_become_two(bad: tuple[bytes, bytes], caplog: pytest.LogCaptureFixture) -> None:
    """Response splitting: what an application puts into a value may come from somebody else."""

    async def serve(request: ServedRequest) -> None:
        await request.respond(200, JSON_TYPE, b"fine", (bad,))

    with pytest.raises(ValueError, match="can't be an HTTP header"):
        header_lines((bad,))
    async with listening(serve) as house:
        line = await house.ask(get())
        with caplog.at_level(logging.CRITICAL, logger="gemel"):
            assert await line.answer() == (500, "Internal Server Error")


@pytest.mark.parametrize(
    ("status", "headers", "length", "last"),
    [
        (200, (), "4", False),
        (299, ((b"x-a", b"b"),), "4", False),
        (202, ((b"Connection", b"Close"),), "4", True),
        (204, (), None, False),
    ],
)
@on_both_loops
async def test_a_whole_response_says_how_long_it_is(
    status: int, headers: HeaderPairs, length: str | None, last: bool
) -> None:
    async def serve(request: ServedRequest) -> None:
        await request.respond(status, JSON_TYPE, b"" if status == 204 else b"four", headers)

    async with listening(serve) as house:
        line = await house.ask(get() + get(method="HEAD") + get("/", "Connection: close"))
        for method in ("GET",) if last else ("GET", "HEAD", "GET"):
            got, found = await line.head()
            assert (got, found.get("content-length")) == (status, length)
            assert found["content-type"] == "application/json"
            if length and method == "GET":
                assert await line.reader.readexactly(4) == b"four"
        assert await line.rest() == b""


@on_both_loops
async def test_a_response_in_pieces_leaves_piece_by_piece() -> None:
    async def serve(request: ServedRequest) -> None:
        request.start(200, ((b"x", b"y"), (b"Transfer-Encoding", b"mine")))
        await request.piece(b"", True)
        await request.piece(b"one", True)
        await request.piece(b"", True)
        await request.piece(b"two", False)

    async with listening(serve) as house:
        line = await house.ask(get() + get())
        for _ in range(2):
            status, headers = await line.head()
            assert (status, headers["x"], headers["transfer-encoding"]) == (200, "y", "chunked")
            assert await line.reader.readexactly(21) == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
        old = await house.ask(get(version="1.0"))
        assert "transfer-encoding" not in (await old.head())[1]
        assert await old.rest() == b"onetwo"


@on_both_loops
async def test_a_piece_waits_for_a_slow_reader_and_fails_when_it_leaves() -> None:
    sent = 0
    left: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()

    async def serve(request: ServedRequest) -> None:
        nonlocal sent
        request.start(200, ())
        try:
            while True:
                await request.piece(b"x" * 65536, True)
                sent += 1
        except OSError as exc:
            left.set_result(exc)

    async with listening(serve) as house:
        line = await house.ask(get())
        await line.head()
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.05)
        assert not left.done()
        line.writer.transport.abort()
        async with asyncio.timeout(5):
            assert "closed the connection" in str(await left)


@pytest.mark.parametrize("failure", [ZeroDivisionError("secret"), None])
@on_both_loops
async def test_a_request_that_ends_without_a_response_gets_one_without_details(
    failure: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(request: ServedRequest) -> None:
        if failure is not None:
            raise failure

    async with listening(serve) as house:
        with caplog.at_level(logging.CRITICAL, logger="gemel"):
            line = await house.ask(get())
            assert await line.answer() == (500, "Internal Server Error")
            assert await line.rest() == b""


@on_both_loops
async def test_a_request_that_fails_in_the_middle_of_its_response_cuts_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A response that ended in good order would pass for a whole one."""

    async def serve(request: ServedRequest) -> None:
        request.start(200, ())
        await request.piece(b"half", True)
        raise ZeroDivisionError

    async with listening(serve) as house:
        with caplog.at_level(logging.CRITICAL, logger="gemel"):
            line = await house.ask(get() + get())
            await line.head()
            assert await line.rest() == b"4\r\nhalf\r\n"


# ---------------------------------------------------------------- ASGI apps


@on_both_loops
async def test_an_asgi_app_reads_bodies_and_answers_whole_or_in_pieces() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        if request.url.path == "/pieces":

            async def pieces() -> AsyncIterator[bytes]:
                async for piece in request.stream():
                    if piece:
                        yield piece.upper()

            await StreamingResponse(pieces())(scope, receive, send)
        else:
            await JSONResponse({"length": len(await request.body())})(scope, receive, send)

    async with listening(asgi(app)) as house:
        line = await house.ask(post(b"x" * 1000) + get("/", method="HEAD"))
        assert await line.answer() == (200, '{"length":1000}')
        assert (await line.head())[1]["content-length"] == "12"
        begun = await house.ask(post(b"hello", path="/pieces")[:-3])
        await begun.head()
        assert await begun.reader.readexactly(7) == b"2\r\nHE\r\n"
        await begun.say(b"llo")
        assert await begun.reader.readexactly(13) == b"3\r\nLLO\r\n0\r\n\r\n"
        await begun.say(post(b"1"))
        assert await begun.answer() == (200, '{"length":1}')


@on_both_loops
async def test_an_asgi_app_hears_that_its_client_left_or_has_its_answer() -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if scope["path"] == "/answer":
            await Response(b"x")(scope, receive, send)
        heard.put_nowait((await receive())["type"])
        if scope["path"] == "/leave":
            with pytest.raises(OSError, match="closed the connection"):
                await Response(b"x")(scope, receive, send)
            heard.put_nowait("refused")

    async with listening(asgi(app)) as house:
        line = await house.ask(get("/answer"))
        assert await heard.get() == "http.disconnect"
        assert await line.answer() == (200, "x")
        await line.say(get("/leave"))
        line.writer.close()
        async with asyncio.timeout(5):
            assert [await heard.get(), await heard.get()] == ["http.disconnect", "refused"]


@on_both_loops
async def test_starlette_is_told_of_a_client_that_leaves_in_the_middle_of_its_body() -> None:
    told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await Request(scope, receive).body()
        except ClientDisconnect:
            told.set_result(True)

    async with listening(asgi(app)) as house:
        line = await house.ask(post(b"hello")[:-1])
        await asyncio.sleep(0.02)
        line.writer.close()
        async with asyncio.timeout(5):
            assert await told


START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}


@pytest.mark.parametrize(
    ("messages", "got"),
    [
        ([{"type": "http.response.body", "body": b"x"}], 500),
        ([START, START], 500),
        ([{"type": "http.response.trailers"}], 500),
        ([START, {"type": "http.response.body", "body": b"longer"}], 0),
        ([START, {"type": "http.response.body", "body": b"s"}], 0),
        ([START, {"type": "http.response.body", "body": b"four"}, {"type": "http.response.body"}], 200),
    ],
)
@on_both_loops
async def test_an_app_that_breaks_the_rules_hurts_its_own_response_only(
    messages: list[dict[str, Any]], got: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async with listening(asgi(app)) as house:
        with caplog.at_level(logging.ERROR, logger="gemel"):
            line = await house.ask(get())
            if got:
                assert (await line.answer())[0] == got
            else:
                assert await line.rest() == b""
    assert "a request failed" in caplog.text
