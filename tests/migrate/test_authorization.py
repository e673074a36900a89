"""Rewritten programs that authorize their callers, served over HTTP: who got in before gets in, and nobody else."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import Server
from gemel.auth import jose
from tests.auth.server.issuer import Issuer, issuing
from tests.migrate.expectations import PROGRAMS, load
from tests.transports.http_rig import Reply, Site, modern_call, serving

pytest.importorskip("libcst")
from gemel.migrate import migrate_source  # needs libcst

ENDPOINT = "http://127.0.0.1:8000/mcp"


def rewritten(name: str) -> dict[str, Any]:
    """The names of a rewritten program."""
    path = Path(PROGRAMS, f"{name}.py")
    return load(path, migrate_source(path.read_text(encoding="utf-8")).source)


@asynccontextmanager
async def served(name: str, monkeypatch: pytest.MonkeyPatch, issuer: Issuer | None = None) -> AsyncIterator[Site]:
    """Serve a rewritten program that trusts an issuer."""
    if issuer is not None:
        monkeypatch.setenv("ISSUER", issuer.url)
    server: Server[Any] = rewritten(name)["mcp"]
    async with serving(server) as site:
        yield site


async def ask(site: Site, token: str | None, tool: str = "whoami", **arguments: Any) -> Reply:
    """Call a tool with a token."""
    headers, body = modern_call(tool, **arguments)
    return await site.ask({**headers, **({"Authorization": f"Bearer {token}"} if token else {})}, body)


async def text(site: Site, token: str, tool: str = "whoami", **arguments: Any) -> Any:
    """What a tool answers a caller who gets in."""
    reply = await ask(site, token, tool, **arguments)
    assert reply.status == 200, (reply.status, reply.headers, reply.body)
    return reply.json()["result"]["structuredContent"]


async def test_tokens_of_a_keycloak_realm_are_for_this_server_and_have_the_scopes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The original checked issuer, algorithm and scopes; Gemel checks the audience besides."""
    async with issuing() as issuer:
        issuer.key = jose.generate_key("RS256", kid="first")
        issuer.keys = {"keys": [jose.public_jwk(issuer.key)]}
        good: dict[str, Any] = {"aud": ENDPOINT, "scope": "openid notes"}
        async with served("fastmcp_auth_keycloak", monkeypatch, issuer) as site:
            expires = int(time.time()) + 60
            token = issuer.token(**good, exp=expires)
            assert await text(site, token) == f"ann of {issuer.url}: notes, openid, {expires + 30}.0"
            assert (await ask(site, None)).status == 401
            assert (await ask(site, issuer.token(**{**good, "aud": "http://127.0.0.1:9000/mcp"}))).status == 401
            assert (await ask(site, issuer.token(**{**good, "aud": None}))).status == 401
            assert (await ask(site, issuer.token(**good, iss="https://other.example.com"))).status == 401
            assert (await ask(site, issuer.token(**{**good, "scope": "notes"}))).status == 403
            other = jose.generate_key("ES256", kid="other")
            issuer.keys = {"keys": [jose.public_jwk(issuer.key), jose.public_jwk(other)]}
            assert (await ask(site, issuer.token(other, **good))).status == 401


async def test_a_remote_verifier_keeps_its_audience_and_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    async with issuing() as issuer, served("fastmcp_auth_remote", monkeypatch, issuer) as site:
        assert await text(site, issuer.token(aud="notes")) == "ann"
        assert (await ask(site, None)).status == 401
        assert (await ask(site, issuer.token(aud="mail"))).status == 401
        assert (await ask(site, issuer.token(aud="notes", scope="mail"))).status == 403
        assert set(issuer.paths()) == {"/keys"}


async def test_an_introspected_token_is_asked_about_each_time_and_for_this_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with issuing() as issuer, served("fastmcp_auth_introspection", monkeypatch, issuer) as site:
        base = {"active": True, "sub": "ann", "client_id": "app", "aud": ENDPOINT}
        issuer.answers = {"good": base, "wrong": {**base, "aud": "https://other.example.com"}, "bare": {**base}}
        del issuer.answers["bare"]["aud"]
        assert await text(site, "good") == "ann"
        assert [(await ask(site, token)).status for token in (None, "wrong", "bare", "unknown")] == [401] * 4
        issuer.answers["good"] = {"active": False}
        assert (await ask(site, "good")).status == 401


async def test_static_tokens_keep_scopes_and_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served("fastmcp_auth_static", monkeypatch) as site:
        assert await text(site, "ann-token") == "hello ann"
        assert await text(site, "ann-token", "admin") == ["app", "admin", "notes"]
        assert (await ask(site, "bob-token")).status == 403
        assert (await ask(site, "ann")).status == 401
        assert (await ask(site, None)).status == 401


async def test_a_verifier_of_the_program_judges_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served("fastmcp_auth_verifier", monkeypatch) as site:
        assert await text(site, "good") == "ann a"
        assert [(await ask(site, token)).status for token in (None, "other", "weak")] == [401, 401, 403]
    names = rewritten("mcp2_auth")
    async with serving(names["mcp"]) as site:
        assert await text(site, "good") == "ann by app: admin notes"
        assert [(await ask(site, token)).status for token in (None, "other", "weak", "old")] == [401, 401, 403, 401]
        del names["KNOWN"]["good"]
        assert (await ask(site, "good")).status == 401


async def test_a_route_beside_the_endpoint_is_served_and_hosts_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.docs.serving import asgi

    names = rewritten("mcp2_asgi")
    async with asgi(names["app"]) as base:
        assert await _status(f"{base}/health") == 200
        assert await _status(f"{base}/health", method="POST") == 405
        assert await _status(f"{base}/mcp", Host="evil.example.com") == 403
        assert await _status(f"{base}/mcp", Host="notes.example.com") != 403
        assert await _status(f"{base}/mcp", Origin="https://evil.example.com") == 403


async def test_a_mounted_server_is_protected_and_its_metadata_is_at_the_root_of_the_host() -> None:
    from tests.docs.serving import asgi

    async with asgi(rewritten("fastmcp_auth_mounted")["app"]) as base:
        assert await _status(f"{base}/notes/mcp", method="POST") == 401
        for path in ("oauth-protected-resource/notes/mcp", "oauth-authorization-server/notes"):
            assert await _status(f"{base}/.well-known/{path}") == 200
        assert await _status(f"{base}/notes/authorize") == 400


async def _status(url: str, method: str = "GET", **headers: str) -> int:
    """The status of a request."""
    import asyncio
    import urllib.error
    import urllib.request

    def read() -> int:
        request = urllib.request.Request(url, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as exc:
            return exc.code

    return await asyncio.to_thread(read)
