"""Tokens that a real authorization server binds to the key of a client, at a Gemel server that demands proofs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gemel import Client, HttpStatus
from gemel.auth import BrowserLogin, ClientCredentials, DPoP, DPoPProofs, JWTAuth, OAuth
from tests.auth.real.browser import Page
from tests.auth.real.foreign import foreign_client
from tests.auth.real.person import PersonAtBrowser
from tests.auth.real.provider import AuthorizationServer, Settings, authorization_server
from tests.auth.real.servers import notes_server
from tests.ports import free_port
from tests.serving import running

CALLBACK = f"http://127.0.0.1:{free_port()}/callback"
PORT = free_port()
URL = f"http://127.0.0.1:{PORT}/mcp"
PROGRAM: dict[str, Any] = {"client_id": "backup", "client_secret": "a secret of the backup program"}
PROGRAM_METADATA = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}


@pytest.fixture(scope="module", params=[False, True], ids=["no nonces", "nonces of both servers"])
def nonces(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def provider(nonces: bool, installed_provider: None) -> Iterator[AuthorizationServer]:
    clients = [{**PROGRAM, **PROGRAM_METADATA}]
    with authorization_server(Settings(resources=[URL], clients=clients, dpop_nonce=nonces)) as server:
        yield server


@pytest.fixture
async def url(nonces: bool, provider: AuthorizationServer) -> AsyncIterator[str]:
    proofs = DPoPProofs(required=True, nonces=nonces)
    auth = JWTAuth(issuer=provider.issuer, audience=URL, required_scopes=["notes"], dpop=proofs)
    async with running(notes_server(auth=auth), "http", port=PORT) as url:
        yield url


async def ask(url: str, auth: OAuth | ClientCredentials, calls: int = 1) -> list[str]:
    async with Client(url, auth=auth) as client:
        return [(await client.call_tool("whoami")).text for _ in range(calls)]


async def test_a_login_is_bound_to_a_key(url: str, page: Page) -> None:
    with PersonAtBrowser(page) as person:
        browser = BrowserLogin(host="127.0.0.1", timeout=15, open_url=person.open, show=lambda text: None)
        auth = OAuth(authorizer=browser, proof=DPoP())
        assert await ask(url, auth, 3) == ["ada: notes"] * 3
        tokens = await auth.bind(url).tokens()
    assert tokens is not None
    assert tokens.token_type == "DPoP"


async def test_a_program_is_bound_to_a_key(url: str) -> None:
    assert (
        await ask(url, ClientCredentials(**PROGRAM, scopes=["notes"], proof=DPoP()), 3) == ["client backup: notes"] * 3
    )


async def test_a_token_that_is_bound_to_no_key_is_refused(url: str) -> None:
    with pytest.raises(HttpStatus, match="bound to a key"):
        await ask(url, ClientCredentials(**PROGRAM, scopes=["notes"]))


async def test_the_official_client_is_bound_to_a_key(url: str, page: Page) -> None:
    def visit() -> list[dict[str, Any]]:
        with foreign_client("typescript", url, "auto", CALLBACK, "--dpop", page=page) as official:
            return [official.call("whoami"), official.call("whoami")]

    answers = await asyncio.to_thread(visit)
    assert [answer.get("result", {}).get("texts", answer) for answer in answers] == [["ada: notes"]] * 2
