"""CORS: pages of listed origins may ask and read; https://fetch.spec.whatwg.org/#http-cors-protocol."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from gemel import Principal, Refusal, Server
from gemel.auth import StaticTokens
from tests.transports.http_rig import JSON_HEADERS, Reply, initialize, modern_call, serving

PAGE = "https://app.example.com"
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,mcp-protocol-version,content-type",
}
engines = pytest.mark.parametrize("engine", ["gemel", "uvicorn"])
Engine = Literal["gemel", "uvicorn"]


def weather(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("weather", **options)

    @server.tool
    async def forecast() -> str:
        return "sunny"

    return server


def listed(value: str) -> set[str]:
    return {name.strip().lower() for name in value.split(",")}


def check_readable(reply: Reply, origin: str = PAGE) -> None:
    assert reply.headers["access-control-allow-origin"] == origin
    assert reply.headers["vary"] == "Origin"
    assert {"mcp-session-id", "www-authenticate"} <= listed(reply.headers["access-control-expose-headers"])
    assert "access-control-allow-credentials" not in reply.headers


def check_closed(reply: Reply) -> None:
    assert not [name for name in reply.headers if name.startswith("access-control")]


@engines
async def test_a_page_may_ask_first_and_read_every_answer(engine: Engine) -> None:
    headers, call = modern_call("forecast", 1)
    async with serving(weather(), engine=engine, allowed_origins=[PAGE]) as site:
        preflight = await site.ask(PREFLIGHT, b"", "OPTIONS")
        assert (preflight.status, preflight.body) == (204, b"")
        check_readable(preflight)
        assert listed(preflight.headers["access-control-allow-methods"]) == {"get", "post", "delete"}
        allowed = listed(preflight.headers["access-control-allow-headers"])
        assert allowed == {"authorization", "mcp-protocol-version", "content-type"}
        session = await site.ask({**JSON_HEADERS, "Origin": PAGE}, initialize())
        assert "mcp-session-id" in session.headers
        for reply in (
            session,
            await site.ask({**headers, "Origin": PAGE}, call),
            await site.ask({**headers, "Origin": PAGE}, b"no JSON"),
            await site.ask({**headers, "Origin": PAGE}, {**call, "method": "acme/nothing"}),
            await site.ask({"Origin": PAGE, "Accept": "text/event-stream", "Mcp-Session-Id": "gone"}, b"", "GET"),
        ):
            check_readable(reply)


@engines
async def test_an_event_stream_can_be_read(engine: Engine) -> None:
    async with serving(weather(), engine=engine, allowed_origins=[PAGE]) as site:
        session = await site.session(Origin=PAGE)
        stream = await site.listen(session)
        head = await stream.head()
        assert head.headers["access-control-allow-origin"] == PAGE
        stream.close()


@pytest.mark.parametrize(
    ("options", "origin"),
    [
        ({}, PAGE),
        ({"allowed_origins": [PAGE]}, "https://evil.example.com"),
        ({"allowed_origins": [PAGE]}, "http://app.example.com"),
        ({"allowed_origins": [PAGE]}, "https://app.example.com.evil.com"),
        ({"allowed_origins": [PAGE]}, "http://localhost:5173"),  # may call, as pages of loopback may
        ({"allowed_origins": [PAGE]}, "null"),
    ],
)
async def test_a_page_that_is_not_listed_reads_nothing(options: Any, origin: str) -> None:
    headers, call = modern_call("forecast", 1)
    async with serving(weather(), **options) as site:
        for reply in (
            await site.ask({**PREFLIGHT, "Origin": origin}, b"", "OPTIONS"),
            await site.ask({**headers, "Origin": origin}, call),
        ):
            check_closed(reply)


@pytest.mark.parametrize("origin", [PAGE, "null", "vscode-webview://id"])
async def test_any_origin_is_named_and_never_a_star(origin: str) -> None:
    headers, call = modern_call("forecast", 1)
    async with serving(weather(), allowed_origins=["*"]) as site:
        check_readable(await site.ask({**headers, "Origin": origin}, call), origin)


async def test_what_comes_from_no_page_is_answered_as_before() -> None:
    headers, call = modern_call("forecast", 1)
    async with serving(weather(), allowed_origins=[PAGE]) as site:
        check_closed(await site.ask(headers, call))
        assert (await site.ask({}, b"", "OPTIONS")).status == 405
        assert (await site.ask({"Origin": PAGE}, b"", "OPTIONS")).status == 405  # no preflight


async def test_a_name_that_is_not_served_is_refused_before() -> None:
    async with serving(weather(), allowed_origins=[PAGE]) as site:
        assert (await site.ask({**PREFLIGHT, "Host": "evil.example.com"}, b"", "OPTIONS")).status == 403


async def test_a_page_reads_the_challenge_and_asks_without_a_token() -> None:
    tokens = StaticTokens({"secret": Principal("ann")})
    headers, call = modern_call("forecast", 1)
    async with serving(weather(auth=tokens), allowed_origins=[PAGE]) as site:
        assert (await site.ask(PREFLIGHT, b"", "OPTIONS")).status == 204
        refused = await site.ask({**headers, "Origin": PAGE}, call)
        assert refused.status == 401
        assert "www-authenticate" in refused.headers
        check_readable(refused)
        check_readable(await site.ask({**headers, "Origin": PAGE, "Authorization": "Bearer secret"}, call))


async def test_a_refusal_of_the_authors_own_can_be_read() -> None:
    def authenticate(scope: Any, headers: Any) -> Refusal:
        return Refusal(401, "Who are you?", ((b"www-authenticate", b"Bearer"),))

    headers, call = modern_call("forecast", 1)
    async with serving(weather(), allowed_origins=[PAGE], authenticate=authenticate) as site:
        check_readable(await site.ask({**headers, "Origin": PAGE}, call))
