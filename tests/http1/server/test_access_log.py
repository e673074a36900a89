"""The access log, and the clients behind trusted proxies."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from gemel.http1.server.access_log import with_access_log, with_trusted_proxies
from gemel.http1.server.request import ServedRequest
from tests.transports.http_listening import JSON_TYPE, echo, get, listening, post
from tests.transports.loops import until

#: The address of a client behind proxies.
CLIENT = "203.0.113.7"


async def test_each_request_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(with_access_log(echo)) as house:
        with caplog.at_level(logging.INFO, "gemel.access"):
            line = await house.ask(post(b"hello", path="/a?b=%FF") + get("/x", version="1.0"))
            await line.answer()
            await line.rest()
            await until(lambda: not house.listener.tasks)
    lines = [record.getMessage() for record in caplog.records if record.name == "gemel.access"]
    assert [text.rsplit(" ", 2)[0] for text in lines] == [
        '127.0.0.1 - "POST /a?… HTTP/1.1" 200 13 bytes',
        '127.0.0.1 - "GET /x HTTP/1.0" 200 7 bytes',
    ]
    first = next(vars(record) for record in caplog.records if record.name == "gemel.access")
    assert (first["http_client"], first["http_principal"]) == ("127.0.0.1", None)
    assert (first["http_method"], first["http_path"], first["http_status"]) == ("POST", "/a?…", 200)
    assert (first["http_bytes"], first["http_ms"] >= 0) == (13, True)


async def test_a_response_that_goes_on_without_a_task_is_logged_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests: list[ServedRequest] = []

    async def begin(request: ServedRequest) -> None:
        request.start(200, ((b"content-length", b"7"),))
        await request.piece(b"one,", True)
        requests.append(request)
        request.detach()

    async with listening(with_access_log(begin)) as house:
        with caplog.at_level(logging.INFO, "gemel.access"):
            line = await house.ask(get("/"))
            await until(lambda: bool(requests) and not house.listener.tasks)
            assert not caplog.records
            requests[0].run(lambda request: request.piece(b"two", False))
            assert await line.answer() == (200, "one,two")
            await until(lambda: not house.listener.tasks)
    [message] = [record.getMessage() for record in caplog.records if record.name == "gemel.access"]
    assert message.rsplit(" ", 2)[0] == '127.0.0.1 - "GET / HTTP/1.1" 200 7 bytes'


async def forwarded(headers: Sequence[str], proxies: Sequence[str]) -> tuple[str, str]:
    """The client's address and scheme as the app sees them."""
    seen: list[tuple[str, str]] = []

    async def serve(request: ServedRequest) -> None:
        seen.append((request.scope["client"][0], request.scope["scheme"]))
        await request.respond(200, JSON_TYPE, b"", ())

    async with listening(with_trusted_proxies(serve, proxies)) as house:
        line = await house.ask(get("/", *headers))
        await line.answer()
    return seen[0]


@pytest.mark.parametrize(
    ("value", "client"),
    [
        (CLIENT, CLIENT),
        (f"spoofed, 198.51.100.1, {CLIENT}", CLIENT),
        (f"{CLIENT}, 127.0.0.9", CLIENT),
        (f"{CLIENT}:4711", CLIENT),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("nonsense", "127.0.0.1"),
        (f"{CLIENT}, nonsense", "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
async def test_the_client_is_the_last_address_that_is_not_a_trusted_proxy(value: str, client: str) -> None:
    headers = [f"X-Forwarded-For: {value}", "X-Forwarded-Proto: https"]
    assert await forwarded(headers, ["127.0.0.0/8"]) == (client, "https")


async def test_forwarded_headers_of_others_are_ignored() -> None:
    headers = [f"X-Forwarded-For: {CLIENT}", "X-Forwarded-Proto: https"]
    assert await forwarded(headers, ["10.0.0.0/8", "unix"]) == ("127.0.0.1", "http")
