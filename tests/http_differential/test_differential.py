"""Our HTTP server reads raw requests as other servers do; `make http-differential` adds proxies in front of it."""

from __future__ import annotations

import pytest

from tests.http_differential.requests import cases
from tests.http_differential.run import SILENCE, Seen, compare, judge, read


@pytest.mark.timeout(120)  # each of 150 cases may need the time after which a server counts as silent
async def test_our_server_reads_requests_as_others_do() -> None:
    assert SILENCE < 1
    assert await compare(cases(), ("gemel", "uvicorn-h11", "uvicorn-httptools"), verbose=False) == []


def test_the_judge_finds_what_is_wrong() -> None:
    case = next(case for case in cases() if case.strict)
    fine = Seen((200,), ("GET /case ''",))
    assert judge(case, {"gemel": fine}) is not None
    assert judge(case, {"gemel": Seen((400,), ()), "other": fine}) is None
    loose = next(case for case in cases() if not case.strict)
    assert judge(loose, {"gemel": fine, "other": fine}) is None
    assert judge(loose, {"gemel": fine, "other": Seen((200,), ("GET /last ''",))}) is not None
    assert judge(loose, {"gemel": Seen((200, 200), ("POST /case ''", "GET /smuggled ''")), "other": fine}) is not None


def test_responses_are_taken_apart() -> None:
    text = b'{"method": "GET", "path": "/x", "body": ""}'
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
    refused = b"HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\nno"
    assert read(plain + chunked + refused) == Seen((200, 200, 400), ("GET /x ''", "GET /x ''"))
    assert read(b"") == Seen((), ())
