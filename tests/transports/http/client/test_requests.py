"""How the HTTP client's requests are made: the user's headers, authorization, redirects, proxies."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gemel import DefinitionError, HttpStatus, NotSent
from gemel.http1.client.pool import read_url, request_head
from gemel.http1.client.proxy import ProxyRoute, find_proxy, from_environment
from gemel.http1.client.wire import HeaderPairs
from gemel.transports.http.client.transport import HttpTransport
from tests.transports.scripted_http import Answer, Asked, ScriptedServer, Talking


async def answers(asked: Asked, answer: Answer) -> None:
    await answer.result(asked)


# --- headers ----------------------------------------------------------------------------------------------------------


async def test_headers_may_be_asked_for_before_each_request() -> None:
    """A token in a header may change."""
    counts = iter(range(10))

    async def later() -> Mapping[str, str]:
        await asyncio.sleep(0)
        return {"X-N": str(next(counts))}

    for given_headers in (lambda: {"X-N": str(next(counts))}, later):
        async with ScriptedServer(answers) as server, Talking(server.url, headers=given_headers) as client:
            await client.call()
            await client.call()
            first, second = (int(asked.headers["x-n"]) for asked in server.asked)
            assert second == first + 1


async def test_the_headers_of_the_protocol_and_of_the_connection_stay_ours() -> None:
    theirs = {
        "ACCEPT": "*/*",
        "Content-Type": "text/plain",
        "mcp-method": "x",
        "Content-Length": "1",
        "User-Agent": "me",
    }
    async with ScriptedServer(answers) as server, Talking(server.url, headers=theirs) as client:
        await client.call("tools/list", {"Mcp-Method": "tools/list"})
        (asked,) = server.asked
        assert asked.headers["accept"] == "application/json, text/event-stream"
        assert asked.headers["content-type"] == "application/json"
        assert asked.headers["mcp-method"] == "tools/list"
        assert asked.headers["user-agent"] == "me"


async def test_headers_that_can_not_be_made_mean_not_sent() -> None:
    def broken() -> Mapping[str, str]:
        raise OSError("no token file")

    async with Talking("http://127.0.0.1:9/", headers=broken) as client:
        with pytest.raises(NotSent, match="no token file"):
            await client.call()


@pytest.mark.parametrize("headers", [{"a b": "x"}, {"x": "a\r\nevil: 1"}, {"x": "\0"}, {"": "x"}, {"x": 1}, ["x"]])
def test_headers_that_no_request_can_carry_are_refused_at_once(headers: Any) -> None:
    with pytest.raises(DefinitionError):
        HttpTransport("http://127.0.0.1/", headers=headers)


@pytest.mark.parametrize(
    "url", ["", "mcp", "ftp://x/", "http://", "http://x:y/", "http://a b/", "http://u:p@x/", "http://x/a b"]
)
def test_what_is_no_url_of_a_server_is_refused_at_once(url: str) -> None:
    with pytest.raises(DefinitionError):
        HttpTransport(url)


@example([("x", "a\nevil: 1")])
@example([("x", "a\revil: 1")])
@example([("x", "a\r\nevil: 1")])
@example([("x: 1\r\nevil", "1")])
@given(st.lists(st.tuples(st.text(max_size=6), st.text(max_size=12)), max_size=4))
def test_no_header_can_add_a_line_to_a_request(headers: list[tuple[str, str]]) -> None:
    """Whatever the values hold, a head has exactly the lines that it should, or isn't written."""
    target = read_url("http://host/mcp?q=1")
    try:
        head = request_head("POST", target, headers, 3)
    except NotSent:
        return
    lines = head.split(b"\r\n")
    assert len(lines) == 4 + len(headers) + 2
    assert not any(mark in line for line in lines for mark in (b"\r", b"\n", b"\0"))


async def test_a_url_goes_to_the_server_as_it_is_without_its_fragment() -> None:
    async with ScriptedServer(answers) as server:
        async with Talking(f"http://127.0.0.1:{server.port}/a%20b/?x=1&y=%2F#part") as client:
            await client.call()
        assert server.asked[0].path == "/a%20b/?x=1&y=%2F"
        async with Talking(f"http://127.0.0.1:{server.port}") as client:
            await client.call()
        assert server.asked[1].path == "/"


# --- authorization ----------------------------------------------------------------------------------------------------


async def test_the_authorization_is_asked_for_before_each_request() -> None:
    tokens = iter(["one", "two"])

    async def auth() -> str | None:
        await asyncio.sleep(0)
        return f"Bearer {next(tokens)}"

    old = {"authorization": "old"}
    async with ScriptedServer(answers) as server, Talking(server.url, auth=auth, headers=old) as client:
        await client.call()
        await client.call()
        assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer one", "Bearer two"]


async def test_without_a_value_no_authorization_is_sent() -> None:
    async with ScriptedServer(answers) as server, Talking(server.url, auth=lambda: None) as client:
        await client.call()
        assert "authorization" not in server.asked[0].headers


class Renewing:
    """Credentials that get a new token when the server refuses the current one."""

    def __init__(self, willing: bool = True) -> None:
        self.token = 0
        self.refusals: list[tuple[int, str]] = []
        self.asked: set[tuple[str, str]] = set()
        self._willing = willing

    async def headers(self, method: str, url: str, /) -> HeaderPairs:
        self.asked.add((method, url))
        return (("Authorization", f"Bearer {self.token}"),)

    async def refused(self, refusal: HttpStatus, sent: HeaderPairs, /) -> bool:
        self.refusals.append((refusal.status, sent[0][1]))
        if sent[0][1] == f"Bearer {self.token}":
            self.token += 1
        return self._willing


def needs(token: str) -> Callable[[Asked, Answer], Awaitable[None]]:
    async def script(asked: Asked, answer: Answer) -> None:
        if asked.headers.get("authorization") == token:
            await answer.result(asked)
        else:
            await answer.body(b"", status=401, headers={"www-authenticate": "Bearer"})

    return script


async def test_credentials_may_react_to_a_refusal_and_the_request_is_repeated() -> None:
    credentials = Renewing()
    async with ScriptedServer(needs("Bearer 2")) as server, Talking(server.url, auth=credentials) as client:
        assert await client.call() == {}
        assert credentials.refusals == [(401, "Bearer 0"), (401, "Bearer 1")]
        assert credentials.asked == {("POST", server.url)}
        assert len(server.asked) == 3


async def test_calls_that_are_refused_together_do_not_wait_for_one_another() -> None:
    """No lock is held during a request."""
    credentials = Renewing()
    async with ScriptedServer(needs("Bearer 1")) as server, Talking(server.url, auth=credentials) as client:
        await asyncio.gather(*(client.call() for _ in range(5)))
        assert credentials.token == 1
        assert len(server.asked) == 10


@pytest.mark.parametrize("willing", [True, False])
async def test_refusals_in_a_row_are_bounded(willing: bool) -> None:
    credentials = Renewing(willing)
    async with ScriptedServer(needs("never")) as server, Talking(server.url, auth=credentials) as client:
        with pytest.raises(HttpStatus) as caught:
            await client.call()
        assert caught.value.status == 401
        assert caught.value.headers["www-authenticate"] == "Bearer"
        assert len(server.asked) == (4 if willing else 1)


# --- redirects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_within_the_origin_is_followed_with_the_same_method_and_body(status: int) -> None:
    async def moved(asked: Asked, answer: Answer) -> None:
        if asked.path == "/mcp":
            await answer.body(b"moved", status=status, headers={"location": "/mcp/?a=1"})
        else:
            await answer.result(asked)

    async with ScriptedServer(moved) as server, Talking(server.url, headers={"X-K": "v"}) as client:
        await client.call()
        await client.call()
        paths = [asked.path for asked in server.asked]
        permanent = status in (301, 308)
        assert paths == (["/mcp", "/mcp/?a=1", "/mcp/?a=1"] if permanent else ["/mcp", "/mcp/?a=1"] * 2)
        assert server.asked[1].message["method"] == "tools/call"
        assert all(asked.method == "POST" and asked.headers["x-k"] == "v" for asked in server.asked)
        assert server.connections == 1


@pytest.mark.parametrize("with_auth", [True, False])
async def test_a_redirect_to_another_origin_is_refused_and_nothing_is_sent_there(with_auth: bool) -> None:
    """Neither the message nor the credentials reach a server that nobody named."""
    async with ScriptedServer(answers) as other:

        async def away(asked: Asked, answer: Answer) -> None:
            await answer.body(status=307, headers={"location": other.url})

        options: dict[str, Any] = {"auth": lambda: "Bearer secret"} if with_auth else {}
        async with ScriptedServer(away) as server, Talking(server.url, **options) as client:
            with pytest.raises(HttpStatus, match="not the same scheme, host and port") as caught:
                await client.call()
            assert caught.value.status == 307
            assert other.url in str(caught.value)
        assert other.connections == 0


@pytest.mark.parametrize(
    ("status", "location"), [(303, "/x"), (307, ""), (307, "http://[broken"), (308, "file:///etc")]
)
async def test_a_redirect_that_can_not_be_followed_is_refused(status: int, location: str) -> None:
    async def away(asked: Asked, answer: Answer) -> None:
        await answer.body(status=status, headers={"location": location} if location else None)

    async with ScriptedServer(away) as server, Talking(server.url) as client:
        with pytest.raises(HttpStatus):
            await client.call()
        assert len(server.asked) == 1


async def test_redirects_in_a_circle_end() -> None:
    async def circle(asked: Asked, answer: Answer) -> None:
        await answer.body(status=307, headers={"location": "/mcp"})

    async with ScriptedServer(circle) as server, Talking(server.url) as client:
        with pytest.raises(HttpStatus, match="redirects"):
            await client.call()
        assert len(server.asked) == 6


# --- proxies ----------------------------------------------------------------------------------------------------------


async def test_a_plain_request_goes_to_the_proxy_with_the_whole_url() -> None:
    async with ScriptedServer(answers) as proxy:
        async with Talking("http://far.example/mcp?a=1", proxy=f"http://me:p%40ss@127.0.0.1:{proxy.port}") as client:
            await client.call()
        (asked,) = proxy.asked
        assert asked.path == "http://far.example/mcp?a=1"
        assert asked.headers["host"] == "far.example"
        assert asked.headers["proxy-authorization"] == "Basic " + b64encode(b"me:p@ss").decode()


async def test_a_proxy_that_refuses_the_tunnel_means_not_sent() -> None:
    async def refuse(asked: Asked, answer: Answer) -> None:
        assert (asked.method, asked.path) == ("CONNECT", "far.example:443")
        await answer.body(b"", status=407)

    async with ScriptedServer(refuse) as proxy:
        client = Talking("https://far.example/mcp", proxy=f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(NotSent, match="407"):
            async with client:
                await client.call()


ENVIRONMENT = {
    "http_proxy": "http://p:1",
    "https_proxy": "q:2",
    "no_proxy": "inner.example, .corp,10.0.0.1,only.example:81",
}


@pytest.mark.parametrize(
    ("scheme", "host", "port", "expected"),
    [
        ("http", "far.example", 80, "p"),
        ("https", "far.example", 443, "q"),
        ("http", "inner.example", 80, None),
        ("http", "a.inner.example", 80, None),
        ("http", "notinner.example", 80, "p"),
        ("http", "x.corp", 80, None),
        ("https", "10.0.0.1", 443, None),
        ("http", "only.example", 81, None),
        ("http", "only.example", 80, "p"),
        ("http", "localhost", 80, None),
        ("http", "127.1.2.3", 80, None),
        ("http", "127.evil.example", 80, "p"),
        ("https", "::1", 443, None),
    ],
)
def test_the_environment_names_the_proxy_and_who_needs_none(
    scheme: str, host: str, port: int, expected: str | None
) -> None:
    route = from_environment(ENVIRONMENT, scheme, host, port)
    assert (route.host if route else None) == expected


def test_a_cgi_request_header_is_no_proxy() -> None:
    """CVE-2016-5385."""
    assert from_environment({"http_proxy": "http://p:1", "request_method": "GET"}, "http", "far.example", 80) is None


def test_a_star_in_no_proxy_exempts_everything() -> None:
    assert from_environment({"all_proxy": "http://p:1", "no_proxy": "*"}, "http", "far.example", 80) is None


def test_a_setting_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    assert find_proxy(None, "https", "far.example", 443) == ProxyRoute("p", 1)
    assert find_proxy("", "https", "far.example", 443) is None
    assert find_proxy("http://r:9", "https", "far.example", 443) == ProxyRoute("r", 9)
    with pytest.raises(DefinitionError):
        find_proxy("socks5://r:9", "https", "far.example", 443)
