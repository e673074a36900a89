"""Flows and the fetcher that drives them, against a real server on loopback."""

from __future__ import annotations

import pytest

from gemel import AuthorizationFailed
from gemel.auth import flow as flows
from gemel.auth.flow import Fetcher, FetchFailed, Flow, HttpRequest, HttpResponse
from gemel.auth.url_rules import UrlRefused, UrlRules
from tests.transports.scripted_http import Answer, Asked, ScriptedServer

SECRET = "canary-3f9a"


def fetcher_for(server: ScriptedServer) -> Fetcher:
    return Fetcher(UrlRules(server.url), proxy="")


async def test_a_flow_gets_its_responses_and_its_failures() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.body(asked.path.encode() + asked.body, status=404 if asked.path == "/a" else 200)

    def flow(base: str) -> Flow[list[str]]:
        first = yield HttpRequest("GET", f"{base}/a")
        second = yield HttpRequest("POST", f"{base}/b", [("X-Name", "v")], b"!")
        third = ""
        try:
            yield HttpRequest("GET", "http://10.0.0.1/")
        except UrlRefused:
            third = "refused"
        return [f"{first.status}{first.body.decode()}", second.body.decode(), third]

    async with ScriptedServer(script) as server, fetcher_for(server) as fetcher:
        assert await fetcher.run(flow(f"http://127.0.0.1:{server.port}")) == ["404/a", "/b!", "refused"]
        assert server.asked[1].headers["x-name"] == "v"


async def test_no_more_than_the_limit_is_read_of_a_response() -> None:
    sent = 0

    async def script(asked: Asked, answer: Answer) -> None:
        nonlocal sent
        await answer.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n")
        for _ in range(1600):
            await answer.raw(bytes(65536))
            sent += 65536

    async with ScriptedServer(script) as server, fetcher_for(server) as fetcher:
        with pytest.raises(FetchFailed, match="more than 1048576 bytes"):
            await fetcher.fetch(HttpRequest("GET", server.url))
    assert sent < 16 << 20  # what the buffers of two sockets hold comes on top of the limit


async def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "REQUEST_SECONDS", 0.05)

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.gone()

    async with ScriptedServer(script) as server, fetcher_for(server) as fetcher:
        with pytest.raises(FetchFailed, match="no answer within"):
            await fetcher.fetch(HttpRequest("GET", server.url))


async def test_a_lost_get_is_repeated_once_and_a_post_is_not() -> None:
    """The server may close an idle connection while a request is on its way. Only GET surely changed nothing there."""
    left = [True]

    async def script(asked: Asked, answer: Answer) -> None:
        if left and left.pop():
            answer.reset()
        else:
            await answer.body(b"here")

    async with ScriptedServer(script) as server, fetcher_for(server) as fetcher:
        assert (await fetcher.fetch(HttpRequest("GET", server.url))).body == b"here"
        assert len(server.asked) == 2
        left[:] = [True, True]
        with pytest.raises(FetchFailed, match="without an answer"):
            await fetcher.fetch(HttpRequest("GET", server.url))
        left[:] = [True]
        with pytest.raises(FetchFailed, match="without an answer"):
            await fetcher.fetch(HttpRequest("POST", server.url, (), b"x"))
        assert [asked.method for asked in server.asked] == ["GET"] * 4 + ["POST"]


async def test_redirects_are_followed_checked_and_bounded_and_lose_the_secrets() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        places = {"/1": "/2", "/2": "/end", "/in": "http://10.0.0.1/x", "/file": "file:///etc/passwd", "/loop": "/loop"}
        if asked.path in places and asked.method == "GET":
            await answer.body(status=302, headers={"location": places[asked.path]})
        elif asked.path in places:
            await answer.body(status=307, headers={"location": "/stolen"})
        else:
            await answer.body(b"end")

    async with ScriptedServer(script) as server, fetcher_for(server) as fetcher:
        base = f"http://127.0.0.1:{server.port}"
        response = await fetcher.fetch(HttpRequest("GET", f"{base}/1", [("Authorization", SECRET), ("Accept", "a/b")]))
        assert (response.status, response.body, response.url) == (200, b"end", f"{base}/end")
        assert server.asked[0].headers["authorization"] == SECRET
        assert all("authorization" not in asked.headers for asked in server.asked[1:])
        assert server.asked[-1].headers["accept"] == "a/b"
        for path in ("/in", "/file"):
            with pytest.raises(UrlRefused):
                await fetcher.fetch(HttpRequest("GET", base + path))
        with pytest.raises(FetchFailed, match="more than 3 redirects"):
            await fetcher.fetch(HttpRequest("GET", f"{base}/loop"))
        assert (await fetcher.fetch(HttpRequest("POST", f"{base}/1", (), b"x"))).status == 307
        assert "/stolen" not in [asked.path for asked in server.asked]


async def test_a_server_that_is_not_there_is_an_authorization_failure() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        answer.close()

    async with ScriptedServer(script) as server, fetcher_for(server) as fetcher:
        with pytest.raises(FetchFailed, match="closed the connection"):
            await fetcher.fetch(HttpRequest("GET", server.url))
        with pytest.raises(AuthorizationFailed):
            await fetcher.fetch(HttpRequest("GET", "http://127.0.0.1:1/"))


def test_nothing_secret_is_in_a_representation() -> None:
    request = HttpRequest("POST", f"https://u:{SECRET}@a.example/token?code={SECRET}", [("a", SECRET)], SECRET.encode())
    response = HttpResponse(200, {"set-cookie": SECRET}, SECRET.encode(), f"https://a.example/?t={SECRET}")
    assert SECRET not in repr([request, response, {"r": (request, response)}])
