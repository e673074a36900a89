"""Requests of one connection whose heads have the same form: they are read as the parser reads them."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.http1.server.head_form import HeadForm
from gemel.http1.server.request import ServedRequest
from tests.transports.http_listening import listening

HEAD = (
    "POST /a?b=1 HTTP/1.1",
    "Host: localhost",
    "User-Agent: test",
    "Accept:\t*/*",
    "Authorization: Bearer abc",
    "traceparent: 00-1-2-01",
    "X-Request-Id: 1",
    "Content-Length: 5",
)


def request(*changes: tuple[str, str], body: bytes = b"hello") -> bytes:
    text = "\r\n".join((*HEAD, "", ""))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text.encode("latin-1") + body


#: Two requests that say what varies: everything that may.
FIRST = request()
SECOND = request(
    ("test", "another"),
    ("*/*", "a/b"),
    ("abc", "longer.token"),
    ("1-2", "3-4"),
    ("Id: 1", "Id: 22"),
    ("5\r\n", "2\r\n"),
    body=b"hi",
)

THIRD = {
    "the same": FIRST,
    "other values": request(("abc", "x" * 900), ("1-2", "a-b"), ("Id: 1", "Id: a b"), ("test", "t\xe9\tst")),
    "an empty value": request(("Id: 1", "Id: ")),
    "a blank before a value": request(("Id: 1", "Id:  \t1")),
    "a blank behind a value": request(("Id: 1", "Id: 1 \t")),
    "no blank": request(("Id: 1", "Id:1")),
    "a control character": request(("abc", "a\x01c")),
    "NUL": request(("abc", "a\x00c")),
    "DEL": request(("abc", "a\x7fc")),
    "a line feed": request(("abc", "a\nx-evil: 1")),
    "a carriage return": request(("abc", "a\rb")),
    "one more header": request(("abc", "abc\r\nx-more: 1")),
    "a header less": request(("traceparent: 00-1-2-01\r\n", "")),
    "a value on two lines": request(("abc", "abc\r\n more")),
    "another order": request(("traceparent: 00-1-2-01", "x-request-id: 1"), ("X-Request-Id: 1", "traceparent: 2")),
    "other capitals": request(("traceparent", "TraceParent")),
    "another target": request(("/a?b=1", "/c")),
    "another method": request(("POST", "PUT")),
    "another host": request(("localhost", "example.com")),
    "a malformed host": request(("localhost", "local host")),
    "no host": request(("Host: localhost\r\n", "")),
    "two hosts": request(("User-Agent: test", "Host: localhost")),
    "closing": request(("X-Request-Id: 1", "Connection: close")),
    "HTTP/1.0": request(("HTTP/1.1", "HTTP/1.0")),
    "an upgrade": request(("X-Request-Id: 1", "Connection: upgrade\r\nUpgrade: h2c")),
    "chunks": request(("Content-Length: 5", "Transfer-Encoding: chunked"), body=b"5\r\nhello\r\n0\r\n\r\n"),
    "chunks and a length": request(("X-Request-Id: 1", "Transfer-Encoding: chunked")),
    "two lengths": request(("X-Request-Id: 1", "Content-Length: 4")),
    "a longer length": request(("5\r\n", "05\r\n")),
    "a length with a sign": request(("5\r\n", "+5\r\n")),
    "a length that is no number": request(("5\r\n", "five\r\n")),
    "a length in other digits": request(("5\r\n", "\xb2\r\n")),
    "no length": request(("5\r\n", "\r\n")),
    "an empty body": request(("5\r\n", "0\r\n"), body=b""),
    "a huge length": request(("5\r\n", "99999999999999999999\r\n")),
    "more than its length": request(body=b"hello" + FIRST),
}


async def seen_and_answered(*requests: bytes) -> tuple[list[object], bytes]:
    """What the application sees of the last of some requests of one connection, and how the server answers that."""
    seen: list[object] = []

    async def serve(served: ServedRequest) -> None:
        scope = {name: value for name, value in served.scope.items() if name not in ("client", "server")}
        seen.append((scope, await served.read(100)))
        await served.respond(200, b"text/plain", b"yes", ())

    async with listening(serve) as house:
        line = await house.ask()
        for before in requests[:-1]:
            await line.say(before)
            assert (await line.answer())[0] == 200
        seen.clear()
        line.writer.write(requests[-1])
        line.writer.write_eof()
        answer = await line.reader.read()
    lines = answer.split(b"\r\n")
    return seen, b"\r\n".join(line for line in lines if not line.startswith(b"date: "))


@pytest.mark.parametrize("third", THIRD.values(), ids=THIRD)
async def test_a_request_is_read_alike_with_and_without_a_form(third: bytes) -> None:
    """Also a malformed one, or one that other headers come with: what an earlier request said decides nothing."""
    assert await seen_and_answered(FIRST, FIRST, SECOND, third) == await seen_and_answered(third)


class Parsed:
    """What the parser says of one request: its headers and its body."""

    def __init__(self, data: bytes) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.requests = 0
        self.is_complete = False
        httptools.HttpRequestParser(self).feed_data(data)

    def on_message_begin(self) -> None:
        self.requests += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True


def form_of(*requests: bytes) -> HeadForm:
    form: HeadForm | None = None
    for each in requests:
        head, scope = each[: each.index(b"\r\n\r\n") + 4], {"method": "POST", "headers": Parsed(each).headers}
        form = HeadForm(scope) if form is None else form.joined(head, scope)
    assert form is not None
    return form


@pytest.mark.parametrize("name", ["the same", "other values", "an empty value", "a longer length", "an empty body"])
def test_a_form_reads_what_varies(name: str) -> None:
    read = form_of(FIRST, SECOND).read(THIRD[name])
    assert read is not None
    assert (read[0]["headers"], read[1]) == (Parsed(THIRD[name]).headers, Parsed(THIRD[name]).body)


def test_a_form_of_equal_heads_reads_other_lengths_only() -> None:
    form = form_of(FIRST, FIRST)
    assert form.read(request(("5\r\n", "2\r\n"), body=b"hi")) is not None
    assert form.read(request(("abc", "abd"))) is None
    assert form.varying == {b"content-length"}


def test_one_head_has_no_form_yet() -> None:
    assert form_of(FIRST).read(FIRST) is None


@given(st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=8), st.binary(max_size=20))
def test_what_a_form_reads_the_parser_reads_too(token: bytes, trace: bytes, length: bytes, body: bytes) -> None:
    data = (
        SECOND.replace(b"longer.token", token).replace(b"3-4", trace).replace(b": 2\r\n", b": %b\r\n" % length)[:-2]
        + body
    )
    read = form_of(FIRST, SECOND).read(data)
    if read is not None:
        parsed = Parsed(data)
        assert parsed.is_complete
        assert parsed.requests == 1
        assert (read[0]["headers"], read[1]) == (parsed.headers, parsed.body)


@given(st.text('abc \t:,;="', max_size=20), st.integers(0, 99))
def test_usual_values_are_read_by_the_form(token: str, size: int) -> None:
    form, body = form_of(FIRST, SECOND), b"x" * size
    read = form.read(request(("abc", f"x{token}x"), ("5\r\n", f"{size}\r\n"), body=body))
    assert read is not None
    assert read[1] == body
    assert (b"authorization", f"Bearer x{token}x".encode()) in read[0]["headers"]
