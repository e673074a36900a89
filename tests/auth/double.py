"""A double of an authorization server and of an MCP server that needs its tokens, on loopback; tests make it misbehave.

    async with AuthDouble() as double:
        async with Client(double.url, auth=OAuth(authorizer=double.person())) as client: ...

Both are correct by default. `double.change("/token", reply)` replaces an answer, by a function or by data; members of the
documents can be changed in place (`double.metadata`, `double.resource_metadata`). `double.requests` has what was asked.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

from gemel import AuthorizationFailed
from tests.transports.scripted_http import Answer, Asked, ScriptedServer

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("read", "write")]


class Reply:
    """An answer: a status, JSON or bytes, headers."""

    def __init__(
        self, status: int = 200, content: Any = None, headers: Mapping[str, str] | None = None, delay: float = 0
    ) -> None:
        self.status = status
        self.content = (
            content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        )
        self.headers = {"cache-control": "no-store", **(headers or {})}
        self.delay = delay


Answerer = Callable[[Asked], Reply | Awaitable[Reply]]


class AuthDouble:
    """Both servers. The authorization server is at `issuer`, the MCP server at `url`."""

    def __init__(self) -> None:
        self.authority = ScriptedServer(self._serve_authority)
        self.server = ScriptedServer(self._serve_server)
        #: Answers by path, in place of the right ones.
        self.changes: dict[str, Answerer] = {}
        #: Registered clients, codes with their request, and the scopes of valid tokens.
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, frozenset[str]] = {}
        self.refresh_tokens: dict[str, frozenset[str]] = {}
        #: What is needed for any request, and for the tool `write`.
        self.needed: frozenset[str] = frozenset()
        self.needed_to_write: frozenset[str] = frozenset()
        self.lifetime: float | None = 3600
        #: Whether clients may only ask for the scopes that they were registered with.
        self.are_scopes_registered = False
        #: Parameters of the redirect that are changed; None leaves one out.
        self.redirect_changes: dict[str, str | None] = {}
        self.redirect_additions: list[tuple[str, str]] = []
        #: What the person did: URLs that were opened.
        self.opened: list[str] = []

    async def __aenter__(self) -> Self:
        await self.authority.__aenter__()
        await self.server.__aenter__()
        self.issuer = f"http://127.0.0.1:{self.authority.port}"
        self.origin = f"http://127.0.0.1:{self.server.port}"
        self.url = f"{self.origin}/mcp"
        self.metadata: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
        }
        self.resource_metadata: dict[str, Any] = {"resource": self.url, "authorization_servers": [self.issuer]}
        #: The challenge of 401; None sends none.
        self.challenge: str | None = (
            f'Bearer resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp"'
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.server.__aexit__(*exc_info)
        await self.authority.__aexit__(*exc_info)

    # ---------------------------------------------------------------- for tests

    def change(self, path: str, answer: Answerer | Reply) -> None:
        """Replace the answer of a path, at either server."""
        self.changes[path] = answer if callable(answer) else lambda asked: answer

    def paths(self, server: ScriptedServer) -> list[str]:
        """The paths that were asked for, in order."""
        return [asked.path.partition("?")[0] for asked in server.asked]

    def forms(self, path: str) -> list[dict[str, str]]:
        """The parameters of requests to an endpoint of the authorization server."""
        return [dict(parse_qsl(asked.body.decode())) for asked in self.authority.asked if asked.path == path]

    def authorizations(self) -> list[dict[str, str]]:
        """The parameters of the pages that were opened."""
        return [dict(parse_qsl(urlsplit(url).query)) for url in self.opened]

    def grant(self, *scopes: str) -> tuple[str, str]:
        """Make an access and a refresh token."""
        access, refresh = f"at-{secrets.token_hex(8)}", f"rt-{secrets.token_hex(8)}"
        self.tokens[access] = self.refresh_tokens[refresh] = frozenset(scopes)
        return access, refresh

    def person(self, redirect_uri: str = "http://localhost:8765/callback") -> Person:
        """Somebody who opens pages and agrees to everything."""
        return Person(self, redirect_uri)

    @property
    def asked(self) -> list[Asked]:
        """All requests to both servers."""
        return [*self.authority.asked, *self.server.asked]

    # ---------------------------------------------------------------- the servers

    async def _serve_authority(self, asked: Asked, answer: Answer) -> None:
        routes: dict[str, Answerer] = {
            "/.well-known/oauth-authorization-server": lambda asked: Reply(200, self.metadata),
            "/authorize": self._authorize,
            "/token": self.answer_token,
            "/register": self._register,
            "/revoke": self._revoke,
        }
        await self._answer(asked, answer, routes)

    async def _serve_server(self, asked: Asked, answer: Answer) -> None:
        routes: dict[str, Answerer] = {
            "/.well-known/oauth-protected-resource/mcp": lambda asked: Reply(200, self.resource_metadata),
            "/mcp": self.answer_mcp,
        }
        await self._answer(asked, answer, routes)

    async def _answer(self, asked: Asked, answer: Answer, routes: Mapping[str, Answerer]) -> None:
        path = asked.path.partition("?")[0]
        make = self.changes.get(path) or routes.get(path) or (lambda asked: Reply(404))
        made = make(asked)
        reply = made if isinstance(made, Reply) else await made
        if reply.delay:
            await asyncio.sleep(reply.delay)
        kind = "" if "content-type" in reply.headers else "application/json"
        await answer.body(reply.content, kind, status=reply.status, headers=reply.headers)

    def answer_mcp(self, asked: Asked) -> Reply:
        """The right answer of the MCP server."""
        token = asked.headers.get("authorization", "").partition(" ")[2]
        if asked.method != "POST":
            return Reply(405)
        if token not in self.tokens or not self.needed <= self.tokens[token]:
            return Reply(401, headers={} if self.challenge is None else {"www-authenticate": self.challenge})
        message = json.loads(asked.body)
        method, scopes = message["method"], self.tokens[token]
        if "id" not in message:
            return Reply(202)
        if method == "tools/call" and message["params"]["name"] == "write" and not self.needed_to_write <= scopes:
            challenge = f'Bearer error="insufficient_scope", scope="{" ".join(sorted(self.needed_to_write))}"'
            return Reply(403, headers={"www-authenticate": challenge})
        results: dict[str, Any] = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
            "tools/list": {"tools": TOOLS, "ttlMs": 0, "cacheScope": "private"},
            "tools/call": {"content": [{"type": "text", "text": " ".join(sorted(scopes))}]},
        }
        if method not in results:
            error = {"code": -32601, "message": "no such method"}
            return Reply(404, {"jsonrpc": "2.0", "id": message["id"], "error": error})
        result = {"resultType": "complete", **results[method]}
        return Reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _register(self, asked: Asked) -> Reply:
        wish = asked.message
        client_id = f"client-{len(self.clients) + 1}"
        self.clients[client_id] = {**wish, "client_id": client_id}
        if wish.get("token_endpoint_auth_method") != "none":
            self.clients[client_id]["client_secret"] = f"secret-{secrets.token_hex(8)}"
        return Reply(201, self.clients[client_id])

    def _authorize(self, asked: Asked) -> Reply:
        query = dict(parse_qsl(urlsplit(asked.path).query))
        client = self.clients.get(query["client_id"])
        if client is None or not {"*", query["redirect_uri"]} & set(client["redirect_uris"]):
            return Reply(400, b"<h1>Unknown client</h1>", {"content-type": "text/html"})
        code = f"code-{secrets.token_hex(8)}"
        self.codes[code] = query
        fields: dict[str, str | None] = {"code": code, "state": query["state"], "iss": self.issuer}
        if self.are_scopes_registered and not {*query["scope"].split()} <= {*client["scope"].split()}:
            fields |= {"code": None, "error": "invalid_scope"}
        fields |= self.redirect_changes
        sent = [(name, value) for name, value in fields.items() if value is not None]
        location = f"{query['redirect_uri']}?{urlencode([*sent, *self.redirect_additions])}"
        return Reply(302, headers={"location": location})

    def answer_token(self, asked: Asked) -> Reply:
        """The right answer of the token endpoint."""
        form = dict(parse_qsl(asked.body.decode()))
        if not self._is_authenticated(asked, form):
            return Reply(401, {"error": "invalid_client"})
        if form["grant_type"] == "authorization_code":
            request = self.codes.pop(form["code"], None)
            if request is None or request["redirect_uri"] != form["redirect_uri"]:
                return Reply(400, {"error": "invalid_grant"})
            digest = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
            if digest != request["code_challenge"] or request["resource"] != form["resource"]:
                return Reply(400, {"error": "invalid_grant"})
            scopes = frozenset(request.get("scope", "").split())
        elif form["grant_type"] == "refresh_token" and form.get("refresh_token") in self.refresh_tokens:
            scopes = self.refresh_tokens.pop(form["refresh_token"])
        else:
            return Reply(400, {"error": "invalid_grant"})
        access, refresh = self.grant(*scopes)
        answer: dict[str, Any] = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh}
        if self.lifetime is not None:
            answer["expires_in"] = self.lifetime
        return Reply(200, answer)

    def _revoke(self, asked: Asked) -> Reply:
        form = dict(parse_qsl(asked.body.decode()))
        if not self._is_authenticated(asked, form):
            return Reply(401, {"error": "invalid_client"})
        self.tokens.pop(form["token"], None)
        self.refresh_tokens.pop(form["token"], None)
        return Reply(200)

    def _is_authenticated(self, asked: Asked, form: Mapping[str, str]) -> bool:
        client_id, secret = form.get("client_id", ""), form.get("client_secret")
        if asked.headers.get("authorization", "").startswith("Basic "):
            text = b64decode(asked.headers["authorization"][6:]).decode()
            client_id, secret = (unquote_plus(part) for part in text.split(":"))
        client = self.clients.get(client_id)
        return client is not None and client.get("client_secret") == secret


class Person:
    """Opens the page of a login and returns where it redirects to; see `Authorizer`."""

    def __init__(self, double: AuthDouble, redirect_uri: str) -> None:
        self._double = double
        self.redirect_uri = redirect_uri
        #: A login waits for this.
        self.ready = asyncio.Event()
        self.ready.set()

    async def authorize(self, url: str) -> str:
        """See `Authorizer`."""
        self._double.opened.append(url)
        await self.ready.wait()
        parts = urlsplit(url)
        try:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 443)
        except OSError:
            raise AuthorizationFailed("The person sees that the page can't be opened") from None
        writer.write(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        writer.close()
        await writer.wait_closed()
        lines = [line for line in head.split("\r\n") if line.lower().startswith("location: ")]
        assert lines, f"the person sees an error page: {head.splitlines()[0]}"
        redirect = lines[0].partition(": ")[2]
        assert redirect.startswith(self.redirect_uri), parse_qs(urlsplit(redirect).query)
        return redirect
