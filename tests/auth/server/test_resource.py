"""A protected server over HTTP: who gets in, what the others are told, and where clients find the metadata."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from gemel import Context, DefinitionError, Principal, Server
from gemel.auth import StaticTokens, TokenAuth, TokenInvalid
from gemel.auth.challenge import parse_challenges
from gemel.transports.http.server.app import HttpApp
from tests.transports.http_rig import (
    JSON_HEADERS,
    Log,
    Reply,
    Site,
    handshake_call,
    initialize,
    make_server,
    modern,
    modern_call,
    serving,
)

SECRET = "canary-5f1c"
ANN = {"Authorization": f"Bearer {SECRET}"}
BOB = {"Authorization": "Bearer bob-7d20"}
ISSUER = "https://login.example.com"
WELL_KNOWN = "/.well-known/oauth-protected-resource"


class Verifier:
    """Knows a few tokens, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.callers = {
            SECRET: Principal("ann", frozenset({"notes"}), {"roles": ["a", {"b": 1}]}, None, "app"),
            "bob-7d20": Principal("bob", frozenset({"notes"})),
            "other-client": Principal("ann", frozenset({"notes"}), client="other"),
            "no-scope": Principal("eve"),
            "expired": Principal("old", frozenset({"notes"}), expires=time.time() - 1),
        }

    async def __call__(self, token: str) -> Principal | None:
        self.asked += 1
        if token == "revoked":
            raise TokenInvalid('the token was revoked "yesterday"\r\nX-Injected: 1')
        return self.callers.get(token)


def protected(**options: Any) -> TokenAuth:
    settings: Any = {"authorization_servers": [ISSUER], "required_scopes": ["notes"], **options}
    return TokenAuth(Verifier(), **settings)


def make(auth: Any) -> Server[Any]:
    server = make_server(Log(), auth=auth)

    @server.tool
    def who(ctx: Context[Any]) -> list[Any]:
        return [ctx.principal, sorted(ctx.scopes), len(ctx.claims)]

    @server.tool
    def change_claims(ctx: Context[Any]) -> str:
        """Try to change what other calls of the token see."""
        failures = 0
        changes: list[Callable[[Any], object]] = [
            lambda claims: claims.update(roles=["admin"]),
            lambda claims: claims["roles"].append("admin"),
            lambda claims: claims["roles"][1].update(b=2),
        ]
        for change in changes:
            try:
                change(ctx.claims)
            except (AttributeError, TypeError):
                failures += 1
        return f"{failures} {json.dumps([ctx.claims['roles'][0], dict(ctx.claims['roles'][1])])}"

    return server


def challenge_of(reply: Reply) -> dict[str, str]:
    (challenge,) = parse_challenges(reply.headers["www-authenticate"])
    assert challenge.scheme == "bearer"
    return dict(challenge.parameters)


def result_of(reply: Reply) -> Any:
    assert reply.status == 200, reply.body
    return reply.json()["result"]["structuredContent"]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving(make(protected()), sse_path="/sse") as site:
        yield site


# ---------------------------------------------------------------- who gets in


async def test_a_token_lets_its_caller_in_in_both_eras(site: Site) -> None:
    headers, body = modern_call("who")
    assert result_of(await site.ask({**headers, **ANN}, body)) == ["ann", ["notes"], 1]
    session = await site.session(**ANN)
    reply = await site.ask(session, handshake_call("who"))
    assert result_of(reply) == {"result": ["ann", ["notes"], 1]}


REFUSED: dict[str, tuple[dict[str, str], str, int, str | None]] = {
    "nothing": ({}, "", 401, None),
    "another scheme": ({"Authorization": "Basic YTpi"}, "", 401, None),
    "a token of nobody": ({"Authorization": "Bearer nobody"}, "", 401, "invalid_token"),
    "an expired token": ({"Authorization": "Bearer expired"}, "", 401, "invalid_token"),
    "a revoked token": ({"Authorization": "Bearer revoked"}, "", 401, "invalid_token"),
    "too few scopes": ({"Authorization": "Bearer no-scope"}, "", 403, "insufficient_scope"),
    "a scheme alone": ({"Authorization": "Bearer"}, "", 400, "invalid_request"),
    "two tokens": ({"Authorization": f"Bearer {SECRET} {SECRET}"}, "", 400, "invalid_request"),
    "a list of tokens": ({"Authorization": f"Bearer {SECRET}, Bearer {SECRET}"}, "", 400, "invalid_request"),
    "a quoted token": ({"Authorization": f'Bearer "{SECRET}"'}, "", 400, "invalid_request"),
    "a token beyond ASCII": ({"Authorization": "Bearer caf\xe9"}, "", 400, "invalid_request"),
    "a huge token": ({"Authorization": "Bearer " + "a" * 30_000}, "", 400, "invalid_request"),
    "a token in the URL": ({}, f"?access_token={SECRET}", 400, "invalid_request"),
    "a token in the URL, encoded": ({}, f"?access%5Ftoken={SECRET}", 400, "invalid_request"),
    "a token in the URL, with another letter encoded": ({}, f"?access_%74oken={SECRET}", 400, "invalid_request"),
    "a token in both": (ANN, f"?a=b&access_token={SECRET}", 400, "invalid_request"),
}

REQUESTS: dict[str, tuple[str, str, Mapping[str, str], Any]] = {
    "stateless POST": ("POST", "/mcp", *modern_call("who")),
    "listen": ("POST", "/mcp", *modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})),
    "initialize": ("POST", "/mcp", JSON_HEADERS, initialize()),
    "call in a session": ("POST", "/mcp", {**JSON_HEADERS, "Mcp-Session-Id": "x"}, handshake_call("who")),
    "not JSON": ("POST", "/mcp", JSON_HEADERS, b"{"),
    "GET stream": ("GET", "/mcp", {"Accept": "text/event-stream", "Mcp-Session-Id": "x"}, b""),
    "DELETE": ("DELETE", "/mcp", {"Mcp-Session-Id": "x"}, b""),
    "PUT": ("PUT", "/mcp", {}, b""),
    "HTTP+SSE stream": ("GET", "/sse", {"Accept": "text/event-stream"}, b""),
    "HTTP+SSE message": ("POST", "/sse/messages", JSON_HEADERS, initialize()),
}


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("case", REFUSED)
async def test_everybody_else_is_refused_on_each_kind_of_request(site: Site, case: str, kind: str) -> None:
    """AUTHS-02 AUTHS-03 AUTHS-04 AUTHS-05 AUTHS-08 SEC-03 SEC-09."""
    method, path, headers, body = REQUESTS[kind]
    credentials, query, status, error = REFUSED[case]
    reply = await site.ask({**headers, **credentials}, body, method, path + query)
    assert reply.status == status, reply.body
    challenge = challenge_of(reply)
    assert challenge.get("error") == error
    assert ("error_description" in challenge) == (error is not None)
    assert challenge["scope"] == "notes"
    assert challenge["resource_metadata"] == f"http://127.0.0.1{WELL_KNOWN}/mcp"
    assert "x-injected" not in reply.headers
    assert SECRET not in str(reply.headers) + reply.body.decode()
    assert reply.json()["error"]["code"] == -32600


async def test_each_endpoint_of_an_app_names_its_own_metadata() -> None:
    auth = protected()
    await auth.close()  # there is no store of proofs to close
    auth.routes("/one")
    auth.routes("/two")
    for path in ("/one", "/two"):
        scope: Any = {
            "type": "http",
            "method": "POST",
            "path": path,
            "scheme": "http",
            "query_string": b"",
            "headers": [],
        }
        refusal = auth.refuse(scope, 401)
        assert f'{WELL_KNOWN}{path}"' in dict(refusal.headers)[b"www-authenticate"].decode()


async def test_scripts_of_pages_that_may_call_can_read_the_challenge() -> None:
    async with serving(make(protected()), allowed_origins=["https://app.example.com"]) as site:
        headers, body = modern_call("who")
        reply = await site.ask({**headers, "Origin": "https://app.example.com"}, body)
        assert reply.status == 401
        assert reply.headers["access-control-allow-origin"] == "https://app.example.com"
        assert reply.headers["vary"] == "Origin"
        barred = await site.ask({**headers, **ANN, "Origin": "https://evil.example.com"}, body)
        assert barred.status == 403
        assert "access-control-allow-origin" not in barred.headers


# ---------------------------------------------------------------- what is remembered, and for whom


async def test_a_verified_token_is_remembered() -> None:
    verifier = Verifier()
    async with serving(make(TokenAuth(verifier))) as site:
        headers, body = modern_call("who")
        for _ in range(5):
            await site.ask({**headers, **ANN}, body)
        assert verifier.asked == 1
        for _ in range(5):
            await site.ask({**headers, "Authorization": "Bearer nobody"}, body)
        assert verifier.asked == 6


async def test_a_remembered_token_is_refused_once_it_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = Verifier()
    verifier.callers["short"] = Principal("ann", frozenset({"notes"}), expires=time.time() + 1000)
    async with serving(make(TokenAuth(verifier, remember=None))) as site:
        headers, body = modern_call("who")
        request = {**headers, "Authorization": "Bearer short"}
        assert (await site.ask(request, body)).status == 200
        later = time.time() + 1001
        monkeypatch.setattr(time, "time", lambda: later)
        reply = await site.ask(request, body)
        assert (reply.status, challenge_of(reply)["error"]) == (401, "invalid_token")


@pytest.mark.parametrize(
    ("options", "asked"), [({"remember": 0}, 4), ({"remembered": 0}, 4), ({"remembered": 1}, 4), ({}, 2)]
)
async def test_memory_of_tokens_is_bounded(options: dict[str, Any], asked: int) -> None:
    verifier = Verifier()
    auth = TokenAuth(verifier, **options)
    async with serving(make(auth)) as site:
        headers, body = modern_call("who")
        for caller in (ANN, BOB, ANN, BOB):
            assert (await site.ask({**headers, **caller}, body)).status == 200
    assert verifier.asked == asked


async def test_a_handler_can_not_change_what_other_calls_of_the_token_see(site: Site) -> None:
    headers, body = modern_call("change_claims")
    for _ in range(2):
        reply = await site.ask({**headers, **ANN}, body)
        assert reply.json()["result"]["content"][0]["text"] == '3 ["a", {"b": 1}]'


async def test_a_session_belongs_to_a_caller_and_a_client(site: Site) -> None:
    """SEC-01."""
    session = await site.session(**ANN)
    for other in ("Bearer bob-7d20", "Bearer other-client"):
        assert (await site.ask({**session, "Authorization": other}, handshake_call("who"))).status == 404
        assert (await site.ask({**session, "Authorization": other}, b"", "DELETE")).status == 404
        stream = await site.listen({**session, "Authorization": other})
        assert (await stream.reply()).status == 404
    assert (await site.ask(session, handshake_call("who"))).status == 200


async def test_sessions_are_no_authorization(site: Site) -> None:
    session = await site.session(**ANN)
    without = {name: value for name, value in session.items() if name != "Authorization"}
    assert (await site.ask(without, handshake_call("who"))).status == 401


# ---------------------------------------------------------------- metadata


async def metadata(site: Site, path: str, method: str = "GET", **headers: str) -> Reply:
    return await site.ask(headers, b"", method, path)


async def test_metadata_is_at_the_path_of_the_endpoint_and_at_the_root(site: Site) -> None:
    """AUTHS-01 AUTHS-03."""
    for path in (f"{WELL_KNOWN}/mcp", WELL_KNOWN):
        reply = await metadata(site, path, Origin="https://anybody.example.com")
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["access-control-allow-origin"] == "*"
        assert reply.json() == {
            "resource": "http://127.0.0.1/mcp",
            "authorization_servers": [ISSUER],
            "scopes_supported": ["notes"],
            "bearer_methods_supported": ["header"],
        }
    preflight = await metadata(site, WELL_KNOWN, "OPTIONS", Origin="https://anybody.example.com")
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, "*")
    assert (await metadata(site, WELL_KNOWN, "POST")).status == 405
    assert (await metadata(site, WELL_KNOWN, Host="evil.example.com")).status == 403


async def test_no_token_is_needed_for_metadata_and_none_is_verified() -> None:
    verifier = Verifier()
    async with serving(make(TokenAuth(verifier, authorization_servers=[ISSUER]))) as site:
        assert (await metadata(site, WELL_KNOWN, Authorization="Bearer nobody")).status == 200
    assert verifier.asked == 0


@pytest.mark.parametrize(
    ("public", "path", "document", "serves"),
    [
        ("https://n.example/mcp", "/mcp", "/.well-known/oauth-protected-resource/mcp", f"{WELL_KNOWN}/mcp"),
        # the proxy strips /notes
        ("https://n.example/notes/mcp", "/mcp", "/notes/.well-known/oauth-protected-resource", WELL_KNOWN),
        # the proxy maps one path to another, and the well-known one as it is
        ("https://n.example/notes", "/mcp", "/.well-known/oauth-protected-resource/notes", f"{WELL_KNOWN}/notes"),
        ("https://n.example", "/", "/.well-known/oauth-protected-resource", WELL_KNOWN),
        ("https://n.example:8443/mcp/", "/mcp/", "/.well-known/oauth-protected-resource/mcp/", f"{WELL_KNOWN}/mcp"),
    ],
)
async def test_a_public_url_comes_before_what_the_request_shows(
    public: str, path: str, document: str, serves: str
) -> None:
    async with serving(make(protected(resource=public)), path=path) as site:
        headers, body = modern_call("who")
        reply = await site.ask(headers, body, path=path)
        origin = public.partition("//")[2].partition("/")[0]
        assert challenge_of(reply)["resource_metadata"] == f"https://{origin}{document}"
        answered = await metadata(site, serves)
        assert answered.json()["resource"] == public
        assert "max-age" in answered.headers["cache-control"]


@asynccontextmanager
async def serving_starlette(*routes: Any) -> AsyncIterator[Site]:
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=list(routes)), port=0, log_level="error", lifespan="off"))
    task = asyncio.get_running_loop().create_task(server.serve())
    async with asyncio.timeout(10):
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
    site = Site(server.servers[0].sockets[0].getsockname()[1])
    try:
        yield site
    finally:
        site.close()
        server.should_exit = True
        await task


async def follow(site: Site, path: str) -> Any:
    """What a client does: call without a token, fetch what the challenge names."""
    headers, body = modern_call("who")
    reply = await site.ask(headers, body, path=path)
    assert reply.status == 401
    url = challenge_of(reply)["resource_metadata"]
    got = await metadata(site, "/" + url.partition("//")[2].partition("/")[2])
    assert got.status == 200, url
    return got.json()["resource"]


@pytest.mark.parametrize("public", [False, True])
async def test_the_challenge_leads_to_the_metadata_where_the_server_is_mounted(public: bool) -> None:
    def app(path: str) -> HttpApp:
        return make(protected(resource=f"https://n.example{path}" if public else None)).http_app()

    below, itself = app("/notes/mcp"), app("/tools")
    async with serving_starlette(Mount("/notes", below), Mount("/tools", itself)) as site:
        base = "https://n.example" if public else "http://127.0.0.1"
        assert await follow(site, "/notes/mcp") == f"{base}/notes/mcp"
        assert await follow(site, "/tools/") == f"{base}/tools"


async def test_several_endpoints_of_one_app_have_their_own_metadata_at_its_root() -> None:
    first, second = protected(resource="https://n.example/a/mcp"), protected(resource="https://n.example/b/mcp")
    routes = {**second.routes("/b/mcp"), **first.routes("/a/mcp")}
    parent = [Route(path, endpoint=app) for path, app in routes.items()]
    mounts = [Mount("/a", make(first).http_app()), Mount("/b", make(second).http_app())]
    async with serving_starlette(*parent, *mounts) as site:
        for path, name in ((f"{WELL_KNOWN}/a/mcp", "a"), (f"{WELL_KNOWN}/b/mcp", "b"), (WELL_KNOWN, "a")):
            assert (await metadata(site, path)).json()["resource"] == f"https://n.example/{name}/mcp"
        assert await follow(site, "/a/mcp") == "https://n.example/a/mcp"
        assert await follow(site, "/b/mcp") == "https://n.example/b/mcp"


async def test_scopes_that_no_resource_demands_are_not_named() -> None:
    """AUTHS-12."""
    auth = protected(required_scopes=["notes", "offline_access"], scopes_supported=["x", "offline_access"])
    async with serving(make(auth)) as site:
        headers, body = modern_call("who")
        assert challenge_of(await site.ask(headers, body))["scope"] == "notes"
        assert (await metadata(site, WELL_KNOWN)).json()["scopes_supported"] == ["x"]


# ---------------------------------------------------------------- static tokens, mistakes


async def test_static_tokens_say_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "gemel")
    async with serving(make(StaticTokens({SECRET: "ann"}))) as site:
        headers, body = modern_call("who")
        assert result_of(await site.ask({**headers, **ANN}, body))[0] == "ann"
        reply = await site.ask({**headers, **BOB}, body)
        assert (reply.status, challenge_of(reply)["error"]) == (401, "invalid_token")
        assert "resource_metadata" not in challenge_of(reply)
        assert (await metadata(site, WELL_KNOWN)).status == 404
    assert "static tokens" in caplog.text
    assert SECRET not in caplog.text


async def test_each_static_token_that_is_taken_can_be_sent() -> None:
    token = "azAZ09-._~+/=="
    async with serving(make(StaticTokens({token: "ann"}))) as site:
        headers, body = modern_call("who")
        assert (await site.ask({**headers, "Authorization": f"Bearer {token}"}, body)).status == 200


def test_no_secret_shows() -> None:
    for auth in (StaticTokens({SECRET: "ann"}), protected()):
        assert SECRET not in repr(auth)
    assert "1984" not in repr(Principal("ann", claims={"born": "1984"}))


async def verify(token: str) -> Principal | None:
    return None


MISTAKES: dict[str, tuple[Any, str]] = {
    "unknown option": (lambda: TokenAuth(verify, scopes=["a"]), "TokenAuth has no option 'scopes'"),  # type: ignore[call-arg]  # a mistake
    "no function": (lambda: TokenAuth("secret"), "verify='secret' is not possible"),  # type: ignore[arg-type]  # a mistake
    "scope as text": (lambda: TokenAuth(verify, required_scopes="a b"), "write a list of scopes"),
    "blank in a scope": (lambda: TokenAuth(verify, required_scopes=["a b"]), "write a list of scopes"),
    "http issuer": (lambda: TokenAuth(verify, authorization_servers=["http://x.example"]), "https URLs"),
    "resource is no URL": (lambda: TokenAuth(verify, resource="notes"), "public URL of the endpoint"),
    "http resource": (lambda: TokenAuth(verify, resource="http://x.example/mcp"), "public URL of the endpoint"),
    "no static tokens": (lambda: StaticTokens({}), "needs callers by their tokens"),
    "blank in a token": (lambda: StaticTokens({"a b": "ann"}), "a token is a text of"),
    "a token that no header can carry": (lambda: StaticTokens({"what?!": "ann"}), "a token is a text of"),
    "no caller": (lambda: StaticTokens({"a": None}), "not NoneType"),  # type: ignore[dict-item]  # a mistake
    "a class": (lambda: Server("x", auth=StaticTokens), "write auth="),  # type: ignore[arg-type]  # a mistake
    "a text": (lambda: Server("x", auth="secret"), "write auth="),  # type: ignore[arg-type]  # a mistake
    "both ways": (
        lambda: Server("x", auth=protected()).http_app(authenticate=lambda scope, headers: "ann"),
        "exclude each other",
    ),
    "mounted": (lambda: Server("outer").mount(Server("inner", auth=protected())), "give auth= to 'outer', too"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_line(mistake: str) -> None:
    make_it, text = MISTAKES[mistake]
    with pytest.raises(DefinitionError) as raised:
        make_it()
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
    assert mistake != "a text" or "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("method", "status", "has_document"),
    [("GET", 200, True), ("HEAD", 200, False), ("OPTIONS", 204, False), ("POST", 405, False)],
)
@pytest.mark.parametrize("url", [None, "https://api.example/mcp"], ids=["by request", "public"])
async def test_metadata_are_served_as_http_says(method: str, status: int, has_document: bool, url: str | None) -> None:
    """RFC 9728 §3.1, RFC 9110 §8.6: caches may keep what does not depend on the request; 204 has no length."""
    auth = TokenAuth(Verifier(), authorization_servers=[ISSUER], resource=url)
    sent: list[Any] = []

    async def receive() -> Any: ...

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": "/", "headers": [(b"accept", b"*/*"), (b"host", b"a.example")]}
    await auth.routes("/mcp")[f"{WELL_KNOWN}/mcp"](scope, receive, send)
    start, body = sent
    headers = dict(start["headers"])
    assert start["status"] == status
    assert bool(body["body"]) is has_document
    assert (b"content-length" in headers) is (status != 204)
    if status == 200:
        assert headers[b"cache-control"] == (b"public, max-age=3600" if url else b"no-store")
        assert int(headers[b"content-length"]) > 0
    if has_document:
        document = json.loads(body["body"])
        assert document["resource"] == (url or "http://a.example/mcp")
        assert "scopes_supported" not in document


async def test_a_remembered_token_ends_when_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()

    async def verify(token: str) -> Principal:
        return Principal("ann", expires=now + 100)

    async with serving(make_server(Log(), auth=TokenAuth(verify, remember=600))) as site:
        for later, status in ((0, 200), (99, 200), (101, 401)):
            monkeypatch.setattr(time, "time", lambda at=now + later: at)
            headers, body = modern("tools/list")
            assert (await site.ask({**headers, **ANN}, body)).status == status
