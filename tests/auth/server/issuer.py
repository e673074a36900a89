"""An authorization server on loopback for tests of protected servers: metadata, keys, introspection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from gemel import Context
from gemel.auth import jose
from gemel.server.context import served_call
from tests.transports.http_rig import Log, Reply, Site, make_server, modern_call, serving
from tests.transports.scripted_http import Answer, Asked, ScriptedServer

AUDIENCE = "https://notes.example.com/mcp"


class Issuer:
    """Answers what its attributes say, and remembers what was asked.

    Attributes:
        key: The key that signs tokens.
        keys: The published key set.
        metadata: The metadata, without the issuer's own URL until it is served.
        status: The status of every answer.
        delay: Seconds before an answer.
        quick: The bodies of requests that are answered at once.
        drops: How many of the next requests lose their connections.
        answers: What introspection says, by token.
        asked: The requests, in order.
    """

    def __init__(self) -> None:
        self.key = jose.generate_key("ES256", kid="first")
        self.keys: Any = {"keys": [jose.public_jwk(self.key)]}
        self.metadata: dict[str, Any] = {}
        self.status = 200
        self.delay = 0.0
        self.drops = 0
        self.quick: set[bytes] = set()
        self.answers: dict[str, dict[str, Any]] = {}
        self.asked: list[Asked] = []
        self.url = ""
        #: Serves it.
        self.server: ScriptedServer | None = None

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def token(self, key: jose.WebKey | None = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A good access token with changes; None leaves a claim out."""
        base = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ann",
            "client_id": "app",
            "exp": int(time.time()) + 60,
            "scope": "notes",
        }
        content = {name: value for name, value in {**base, **claims}.items() if value is not None}
        return jose.sign_jwt(content, key or self.key, header={"typ": "at+jwt", **(header or {})})

    def rotate(self, kid: str) -> None:
        """Publish a new key in place of the old one."""
        self.key = jose.generate_key("ES256", kid=kid)
        self.keys = {"keys": [jose.public_jwk(self.key)]}

    async def _wait(self, answer: Answer) -> bool:
        """Wait before an answer. Returns whether the client is still there."""
        gone = asyncio.ensure_future(answer.gone())
        await asyncio.wait([gone], timeout=self.delay)
        there = gone.cancel()
        await asyncio.wait([gone])
        return there

    async def answer(self, asked: Asked, answer: Answer) -> None:
        self.asked.append(asked)
        if self.drops:
            self.drops -= 1
            answer.reset()
            return
        if self.delay and asked.body not in self.quick and not await self._wait(answer):
            return
        if asked.path == "/keys":
            await answer.json(self.keys, self.status)
        elif asked.path.endswith("/introspect"):
            token = parse_qs(asked.body.decode())["token"][0]
            await answer.json(self.answers.get(token, {"active": False}), self.status)
        elif asked.path.startswith("/.well-known/oauth-authorization-server"):
            await answer.json(self.metadata, self.status)
        else:
            await answer.json({}, 404)


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    """Serve an issuer on a free port."""
    issuer = Issuer()
    async with ScriptedServer(issuer.answer) as server:
        issuer.server = server
        issuer.url = f"http://127.0.0.1:{server.port}"
        issuer.metadata = {
            "issuer": issuer.url,
            "jwks_uri": f"{issuer.url}/keys",
            "introspection_endpoint": f"{issuer.url}/introspect",
        }
        yield issuer


@asynccontextmanager
async def protected_by(auth: Any) -> AsyncIterator[Site]:
    """Serve a server that the tool `who` tells about its caller."""
    server = make_server(Log(), auth=auth)

    @server.tool
    def who(ctx: Context[Any]) -> dict[str, Any]:
        caller = served_call(ctx).call.origin.caller
        assert caller is not None
        return {"name": ctx.principal, "scopes": sorted(ctx.scopes), "client": caller.client, "claims": len(ctx.claims)}

    async with serving(server) as site:
        yield site


async def ask(site: Site, token: str) -> Reply:
    """Call `who` with a token."""
    headers, body = modern_call("who")
    return await site.ask({**headers, "Authorization": f"Bearer {token}"}, body)


async def who(site: Site, token: str) -> Any:
    """What `who` says to a caller who gets in."""
    reply = await ask(site, token)
    assert reply.status == 200, (reply.status, reply.headers, reply.body)
    return reply.json()["result"]["structuredContent"]
