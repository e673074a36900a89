"""Token exchange: upstream APIs get a token of their own, and the caller's appears nowhere but at the token endpoint."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import pytest

from gemel import Client, Context, DefinitionError, Principal, Refusal, Server
from gemel.auth.flow import Fetcher, HttpRequest
from gemel.auth.jose import generate_key, verify_jwt
from gemel.auth.server.exchange import TokenExchange
from gemel.auth.url_rules import UrlRules
from gemel.errors import AuthorizationFailed
from tests.observed import Observed, observing
from tests.transports.http_rig import Site, serving

#: The caller's token, which must not be passed on.
CANARY = "canary-7f3b9c1d5e"
SECRET = "client-secret-4a8e"


class Upstream:
    """An authorization server and an API on loopback; what they got."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.forms: list[dict[str, str]] = []
        self.answer: tuple[int, Any] | None = None
        self.lifetime: int | None = 3600
        self.gate: asyncio.Event | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/token"

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append({"path": scope["path"], "headers": headers, "body": body.decode()})
        status, answer = self._token(body) if scope["path"] == "/token" else (200, {"by": headers["authorization"]})
        if self.gate is not None:
            await self.gate.wait()
        start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        await send(start)
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def _token(self, body: bytes) -> tuple[int, Any]:
        self.forms.append({name: values[0] for name, values in parse_qs(body.decode()).items()})
        if self.answer is not None:
            return self.answer
        issued = {"access_token": f"upstream-{len(self.forms)}", "token_type": "Bearer"}
        return 200, {**issued, **({} if self.lifetime is None else {"expires_in": self.lifetime})}


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    made = Upstream()
    async with serving(Server("upstream"), routes={"/token": made, "/api": made}) as site:
        made.port = site.port
        yield made


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    yield from observing(monkeypatch)


def authenticate(scope: Any, headers: Any) -> Principal | Refusal | None:
    token = headers.get("authorization", "").partition(" ")[2]
    if not token:
        return None
    return Principal(token.split("-")[0]) if token != "bad" else Refusal(401, "Who are you?")


@asynccontextmanager
async def office(upstream: Upstream, **options: Any) -> AsyncIterator[tuple[Site, TokenExchange]]:
    given: dict[str, Any] = {"client_id": "notes", "client_secret": SECRET, "audience": "tickets", **options}
    exchange = TokenExchange(upstream.endpoint, **given)
    server: Server[Any] = Server("office")

    @server.tool
    async def tickets(ctx: Context[Any]) -> str:
        headers = await exchange.headers(ctx)
        async with Fetcher(UrlRules(upstream.api)) as fetcher:
            response = await fetcher.fetch(HttpRequest("GET", upstream.api, tuple(headers.items())))
        return str(json.loads(response.body)["by"])

    async with serving(server, authenticate=authenticate) as site:
        yield site, exchange


async def call(site: Site, era: Any, token: str | None) -> str:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with Client(f"http://127.0.0.1:{site.port}/mcp", era=era, headers=headers) as client:
        result = await client.call_tool("tickets", raise_on_error=False)
    return str(result.text)


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_the_token_of_the_caller_is_never_passed_on(
    era: Any, upstream: Upstream, observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    """AUTHS-07: only the token endpoint gets it, which belongs to the server that issued it."""
    caplog.set_level(logging.DEBUG)
    async with office(upstream, scopes=["read"]) as (site, exchange):
        assert await call(site, era, CANARY) == "Bearer upstream-1"
        upstream.answer = (400, {"error": "invalid_target", "error_description": f"no {CANARY} with {SECRET}"})
        failed = await call(site, era, f"{CANARY}-2")
        shown = repr(exchange)
    told = json.dumps([request for request in upstream.requests if request["path"] != "/token"])
    (token_request, *_) = [request for request in upstream.requests if request["path"] == "/token"]
    assert CANARY not in token_request["path"] + json.dumps(token_request["headers"])
    assert upstream.forms[0] == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": CANARY,
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "audience": "tickets",
        "scope": "read",
        "client_id": "notes",
    }
    for text in (told, failed, shown, caplog.text, observed.everything()):
        assert CANARY not in text
        assert SECRET not in text
    assert "invalid_target" in caplog.text


async def test_a_token_is_requested_once_for_calls_at_the_same_time_and_kept_until_it_ends(upstream: Upstream) -> None:
    upstream.gate = asyncio.Event()
    async with office(upstream) as (site, _):
        calls = [asyncio.create_task(call(site, "2026", CANARY)) for _ in range(5)]
        async with asyncio.timeout(10):
            while not upstream.forms:  # noqa: ASYNC110 - counted, not signalled
                await asyncio.sleep(0.01)
        upstream.gate.set()
        assert set(await asyncio.gather(*calls)) == {"Bearer upstream-1"}
        assert await call(site, "2026", CANARY) == "Bearer upstream-1"
        assert len(upstream.forms) == 1
        assert await call(site, "2026", "other") == "Bearer upstream-2"


@pytest.mark.parametrize("lifetime", [None, 10])
async def test_a_token_that_ends_soon_or_does_not_say_when_is_used_once(
    upstream: Upstream, lifetime: int | None
) -> None:
    upstream.lifetime = lifetime
    async with office(upstream) as (site, _):
        assert [await call(site, "2026", CANARY) for _ in range(2)] == ["Bearer upstream-1", "Bearer upstream-2"]


async def test_the_tokens_that_are_kept_are_bounded(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemel.auth.server.exchange._KEPT", 2)
    async with office(upstream) as (site, exchange):
        for name in ("a", "b", "c", "d"):
            await call(site, "2026", name)
        assert len(exchange._kept) == 2


@pytest.mark.parametrize(
    "answer",
    [
        (400, {"error": "invalid_grant"}),
        (500, {"error": f"a {CANARY} b"}),
        (200, {"access_token": CANARY, "token_type": "Bearer"}),
        (200, {"access_token": "x", "token_type": "DPoP"}),
        (200, {"access_token": "x", "token_type": "N_A"}),
        (200, []),
        (302, {}),
    ],
)
async def test_what_can_not_be_exchanged_fails_the_call_and_says_nothing_of_the_token(
    upstream: Upstream, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.answer = answer
    async with office(upstream) as (site, _):
        assert "failed unexpectedly" in await call(site, "2026", CANARY)
    assert [request for request in upstream.requests if request["path"] == "/api"] == []
    assert CANARY not in caplog.text


async def test_the_server_can_sign_its_requests_with_a_key(upstream: Upstream) -> None:
    key = generate_key("ES256")
    async with office(upstream, client_secret=None, key=key) as (site, _):
        assert await call(site, "2026", CANARY) == "Bearer upstream-1"
    (form,) = upstream.forms
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    claims = verify_jwt(form["client_assertion"], key)[1]
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("notes", "notes", upstream.endpoint)
    assert "authorization" not in upstream.requests[0]["headers"]


async def test_without_a_caller_who_was_authenticated_there_is_nothing_to_exchange(upstream: Upstream) -> None:
    async with office(upstream) as (site, exchange):
        assert "failed unexpectedly" in await call(site, "2026", None)
    server: Server[Any] = Server("local")

    @server.tool
    async def tickets(ctx: Context[Any]) -> str:
        try:
            return await exchange.token(ctx)
        except AuthorizationFailed as exc:
            return str(exc)

    async with Client(server, principal="anna") as client:
        assert "not authorized over HTTP" in (await client.call_tool("tickets")).text
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("endpoint", "options", "text"),
    [
        ("https://login.example.com/token", {}, "client_id"),
        ("login.example.com", {"client_id": "notes"}, "URL of a token endpoint"),
        ("https://login.example.com/token", {"client_id": "notes", "scope": "a"}, "no option 'scope'"),
        ("https://login.example.com/token", {"client_id": "notes", "scopes": "a"}, "one string"),
    ],
)
def test_a_mistake_in_the_options_is_one_line(endpoint: str, options: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        TokenExchange(endpoint, **options)
