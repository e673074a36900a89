"""A proxy, an identity provider that can misbehave, and browsers, all over HTTP on loopback."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from gemel import Context, Server
from gemel.auth.server.proxy.providers import OpenID, Provider
from gemel.auth.server.proxy.proxy import OAuthProxy
from gemel.backends import Backend
from gemel.http1.asgi import AsgiApp, Receive, Scope, Send
from tests.auth.hostile.cases import Request, Response
from tests.auth.hostile.wire import exchange
from tests.ports import free_port
from tests.serving import serving_app
from tests.transports.http_rig import modern_call

CALLBACK = "http://127.0.0.1:33418/callback"
WEB_CALLBACK = "https://app.test/callback"
VERIFIER = "a-verifier-of-more-than-43-characters-for-all-tests"
SECRET = "the-secret-of-the-application-at-the-provider"
FORM = ("Content-Type", "application/x-www-form-urlencoded")


def s256(verifier: str) -> str:
    """The PKCE challenge of a verifier."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def query_of(url: str) -> dict[str, str]:
    """The parameters of a URL."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


class Idp:
    """A test double of an identity provider. Whoever comes with a browser is logged in as `user`, without a question.

    Attributes:
        user: Claims of the user.
        change_claims: Changes the claims of an ID token.
        metadata: Changes of its metadata.
        answer: Replaces the parameters of the redirect back.
        rotates: Whether a refresh token is good once.
        refuses: The error that the token endpoint answers with.
        expires_in: Seconds of access tokens.
        granted: The scopes in token responses; None for no word of them.
        requests: What arrived: paths with their parameters.
        headers: The headers of these requests.
        held: Paths whose requests wait until the event is set.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.issuer = f"http://127.0.0.1:{port}"
        self.user: dict[str, Any] = {"sub": "user-1", "name": "Ada", "email": "ada@example.com"}
        self.change_claims: Callable[[dict[str, Any]], None] = lambda claims: None
        self.metadata: dict[str, Any] = {}
        self.answer: Callable[[dict[str, str]], dict[str, str]] = lambda parameters: parameters
        self.refuses: str | None = None
        self.expires_in: int | None = 3600
        self.granted: str | None = None
        self.sends_refresh_tokens = True
        self.sends_id_tokens = True
        self.renews_id_tokens = False
        self.rotates = False
        self._spent: set[str] = set()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.headers: list[dict[str, str]] = []
        self.held: dict[str, asyncio.Event] = {}
        self.documents: dict[str, Callable[[], tuple[int, bytes]]] = {}
        self._codes: dict[str, dict[str, str]] = {}
        self.tokens: list[str] = []

    def count(self, path: str) -> int:
        """How often a path was requested."""
        return sum(place == path for place, _ in self.requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while scope["method"] == "POST":
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        text = body if scope["method"] == "POST" else scope["query_string"]
        form = dict(parse_qsl(text.decode()))
        path: str = scope["path"]
        self.requests.append((path, form))
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.headers.append(headers)
        if path in self.held:
            await self.held[path].wait()
        if path in self.documents:
            status, content = self.documents[path]()
            kind = b"location" if status in (302, 307) else b"content-type"
            await _send(
                send,
                status,
                b"" if kind == b"location" else content,
                (kind, content if kind == b"location" else b"application/json"),
            )
            return
        if path == "/authorize":
            await self._authorize(form, send)
            return
        answers: dict[str, Callable[[], tuple[int, Any]]] = {
            "/.well-known/openid-configuration": lambda: (200, self._configuration()),
            "/token": lambda: self._token(form),
            "/userinfo": lambda: (200 if headers.get("authorization", "")[7:] in self.tokens else 401, self.user),
            "/revoke": lambda: (200, {}),
        }
        status, document = answers.get(path, lambda: (404, {}))()
        await _send(send, status, json.dumps(document).encode(), (b"content-type", b"application/json"))

    def _configuration(self) -> dict[str, Any]:
        names = {"authorization": "authorize", "token": "token", "userinfo": "userinfo", "revocation": "revoke"}
        endpoints = {f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in names.items()}
        return {"issuer": self.issuer, **endpoints, **self.metadata}

    async def _authorize(self, form: dict[str, str], send: Send) -> None:
        code = secrets.token_urlsafe(16)
        self._codes[code] = form
        parameters = self.answer({"code": code, "state": form.get("state", "")})
        location = f"{form['redirect_uri']}?{urlencode(parameters)}"
        await _send(send, 302, b"", (b"location", location.encode()))

    def _token(self, form: dict[str, str]) -> tuple[int, Any]:
        if self.refuses is not None:
            return 400, {"error": self.refuses}
        request: Mapping[str, str] = {}
        if form["grant_type"] == "authorization_code":
            request = self._codes.pop(form["code"])
            assert s256(form["code_verifier"]) == request["code_challenge"]
            assert form["redirect_uri"] == request["redirect_uri"]
        else:
            assert form["refresh_token"] in self.tokens
            if self.rotates:
                if form["refresh_token"] in self._spent:
                    return 400, {"error": "invalid_grant"}
                self._spent.add(form["refresh_token"])
        assert form["client_secret"] == SECRET
        answer: dict[str, Any] = {"access_token": f"upstream-{secrets.token_hex(8)}", "token_type": "Bearer"}
        if self.expires_in is not None:
            answer["expires_in"] = self.expires_in
        if self.granted is not None:
            answer["scope"] = self.granted
        if self.sends_refresh_tokens:
            answer["refresh_token"] = f"upstream-refresh-{secrets.token_hex(8)}"
        self.tokens += [value for name, value in answer.items() if name in ("access_token", "refresh_token")]
        if self.sends_id_tokens if request else self.renews_id_tokens:
            claims = {**self.user, "iss": self.issuer, "aud": form["client_id"]}
            if "nonce" in request:
                claims["nonce"] = request["nonce"]
            claims["exp"] = time.time() + 300
            self.change_claims(claims)
            parts = ({"alg": "RS256"}, claims)
            encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
            answer["id_token"] = ".".join([*encoded, "c2ln"])
        return 200, answer


async def _send(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    pairs = [(b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


class Browser:
    """A browser without scripts: cookies by port, as those of a host with one name, and pages.

    Args:
        address: The address that a trusted proxy says it has.
    """

    def __init__(self, address: str | None = None) -> None:
        self.address = address
        self.cookies: dict[int, dict[str, str]] = {}
        self.visited: list[str] = []

    async def request(
        self, method: str, url: str, form: Mapping[str, str] | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> Response:
        """Make one request."""
        self.visited.append(url)
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1"
        assert parts.port is not None
        jar = self.cookies.setdefault(parts.port, {})
        cookie = "; ".join(f"{name}={value}" for name, value in jar.items())
        more = (*headers, *([("Cookie", cookie)] if cookie else []), *([FORM] if form is not None else []))
        if self.address is not None:
            more = (*more, ("X-Forwarded-For", self.address))
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        body = b"" if form is None else urlencode(form).encode()
        response = await exchange(parts.port, Request(method, path, more, body))
        for value in response.all("set-cookie"):
            name, _, rest = value.partition("=")
            jar[name] = rest.partition(";")[0]
        return response

    async def open(
        self, url: str, until: str = CALLBACK, headers: tuple[tuple[str, str], ...] = ()
    ) -> tuple[str, Response]:
        """Open a URL and follow redirects, at most to one that begins with `until`, which is not opened."""
        for _ in range(10):
            response = await self.request("GET", url, headers=headers)
            if response.status not in (302, 303):
                return url, response
            (url,) = response.all("location")
            if url.startswith(until):
                return url, response
        raise AssertionError("too many redirects")

    async def submit(self, page: Response, decision: str = "allow", until: str = CALLBACK) -> tuple[str, Response]:
        """Press a button of the consent page and follow redirects."""
        action, fields = read_form(page)
        headers = (("Origin", action.removesuffix("/auth/consent")), ("Sec-Fetch-Site", "same-origin"))
        response = await self.request("POST", action, {**fields, "decision": decision}, headers)
        if response.status != 303:
            return action, response
        (url,) = response.all("location")
        return (url, response) if url.startswith(until) else await self.open(url, until)


def read_form(page: Response) -> tuple[str, dict[str, str]]:
    """The target of the form of a page, and its hidden fields."""
    text = page.body.decode()
    action = re.search(r'<form method="post" action="([^"]+)"', text)
    assert action is not None, text
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', text)
    return html.unescape(action[1]), {name: html.unescape(value) for name, value in fields}


class Rig:
    """A proxy and its provider, being served.

    Attributes:
        auth: The proxy.
        idp: The provider.
        port: The port of the proxy.
        issuer: The issuer of the proxy.
        resource: The URL of its MCP endpoint.
    """

    def __init__(self, port: int, idp: Idp, auth: OAuthProxy) -> None:
        self.port = port
        self.idp = idp
        self.auth = auth
        self.issuer = f"http://127.0.0.1:{port}"
        self.resource = f"{self.issuer}/mcp"

    async def get(self, path: str, *headers: tuple[str, str]) -> Response:
        """Make a GET request to the proxy."""
        return await exchange(self.port, Request("GET", path, headers))

    async def post(self, path: str, form: Mapping[str, str], *headers: tuple[str, str]) -> Response:
        """Send a form to the proxy."""
        return await exchange(self.port, Request("POST", path, (FORM, *headers), urlencode(form).encode()))

    async def register(self, *redirect_uris: str, **metadata: Any) -> str:
        """Register a client. Returns its id."""
        document = {"client_name": "A client", "redirect_uris": redirect_uris or (CALLBACK,), **metadata}
        headers = (("Content-Type", "application/json"),)
        response = await exchange(self.port, Request("POST", "/register", headers, json.dumps(document).encode()))
        assert response.status == 201, response.body
        client_id: str = json.loads(response.body)["client_id"]
        return client_id

    def parameters(self, client_id: str, **changes: str | None) -> dict[str, str]:
        """The parameters of a good authorization request, with changes; None leaves one out."""
        good = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": CALLBACK,
            "code_challenge": s256(VERIFIER),
            "code_challenge_method": "S256",
            "state": "state-of-the-client",
            "resource": self.resource,
        }
        return {name: value for name, value in {**good, **changes}.items() if value is not None}

    def authorize_url(self, client_id: str, **changes: str | None) -> str:
        """The URL that a client opens."""
        return f"{self.issuer}/authorize?{urlencode(self.parameters(client_id, **changes))}"

    async def login(self, client_id: str, browser: Browser | None = None, **changes: str | None) -> dict[str, str]:
        """Log in and agree. Returns the parameters that came back to the client."""
        browser = browser or Browser()
        until = changes.get("redirect_uri") or CALLBACK
        _, page = await browser.open(self.authorize_url(client_id, **changes), until)
        assert page.status == 200, page
        url, response = await browser.submit(page, until=until)
        assert url.startswith(until), (url, response)
        return query_of(url)

    async def exchange_code(self, client_id: str, code: str, **changes: str | None) -> Response:
        """Exchange a code."""
        good: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "client_id": client_id,
            "code": code,
            "code_verifier": VERIFIER,
            "redirect_uri": CALLBACK,
            "resource": self.resource,
        }
        form = {name: value for name, value in {**good, **changes}.items() if value is not None}
        return await self.post("/token", form)

    async def tokens(self, client_id: str | None = None, **changes: str | None) -> dict[str, Any]:
        """Log in as a whole. Returns the token response."""
        client_id = client_id or await self.register()
        answer = await self.login(client_id, None, **changes)
        response = await self.exchange_code(client_id, answer["code"])
        assert response.status == 200, response
        return {**json.loads(response.body), "client_id": client_id}

    async def refresh(self, client_id: str, refresh_token: str, **changes: str) -> Response:
        """Exchange a refresh token."""
        form = {"grant_type": "refresh_token", "client_id": client_id, "refresh_token": refresh_token, **changes}
        return await self.post("/token", form)

    async def call(self, token: str | None, tool: str = "whoami") -> Response:
        """Call a tool."""
        headers, body = modern_call(tool)
        pairs = [*headers.items(), *([("Authorization", f"Bearer {token}")] if token is not None else [])]
        return await exchange(self.port, Request("POST", "/mcp", tuple(pairs), json.dumps(body).encode()))


def serve_app(
    server: Server[Any], port: int, *, access_log: bool = False, trusted_proxies: Sequence[str] = (), **options: Any
) -> AbstractAsyncContextManager[str]:
    """Serve on a port, in this loop."""
    return serving_app(server.http_app(**options), port=port, access_log=access_log, trusted_proxies=trusted_proxies)


@asynccontextmanager
async def serve_idp() -> AsyncIterator[Idp]:
    """Serve a provider."""
    idp = Idp(free_port())
    async with serve_app(Server("provider"), idp.port, routes={"/authorize": idp, "/x/": idp, **_everything(idp)}):
        yield idp


def _everything(idp: Idp) -> dict[str, AsgiApp]:
    paths = ("/token", "/userinfo", "/revoke", "/clients/", "/.well-known/")
    return dict.fromkeys(paths, idp)


def provider_of(idp: Idp, **options: Any) -> Provider:
    """The provider as the proxy knows it."""
    return OpenID(
        **{"issuer": idp.issuer, "client_id": "proxy-app", "client_secret": SECRET, "title": "IdP", **options}
    )


@asynccontextmanager
async def serve_proxy(
    idp: Idp,
    *,
    provider: Provider | None = None,
    port: int | None = None,
    server_backend: Backend | str | None = None,
    access_log: bool = False,
    trusted_proxies: Sequence[str] = (),
    **options: Any,
) -> AsyncIterator[Rig]:
    """Serve a proxy in front of a provider."""
    port = port or free_port()
    auth = OAuthProxy(provider or provider_of(idp), **{"url": f"http://127.0.0.1:{port}/mcp", **options})
    server: Server[Any] = Server("notes", auth=auth, backend=server_backend)

    @server.tool
    async def whoami(ctx: Context[Any]) -> str:
        return json.dumps([ctx.principal, sorted(ctx.scopes), ctx.claims.get("name")])

    @server.tool(scopes=["notes.write"])
    async def write() -> str:
        return "written"

    @server.tool
    async def upstream(ctx: Context[Any]) -> str:
        return await auth.upstream_token(ctx.claims["grant"])

    async with serve_app(server, port, access_log=access_log, trusted_proxies=trusted_proxies):
        yield Rig(port, idp, auth)


@asynccontextmanager
async def rig(**options: Any) -> AsyncIterator[Rig]:
    """Serve a provider and a proxy in front of it."""
    async with serve_idp() as idp, serve_proxy(idp, **options) as site:
        yield site
