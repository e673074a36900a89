"""Clients register and log in to an OAuth proxy in front of a real authorization server that registers nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import pytest

from gemel import AuthorizationFailed, Client
from gemel.auth import BrowserLogin, OAuth, OAuthProxy, OpenID
from tests.auth.real.browser import Page
from tests.auth.real.foreign import CLIENTS, foreign_client
from tests.auth.real.login import Person
from tests.auth.real.person import PersonAtBrowser
from tests.auth.real.provider import AuthorizationServer, Settings, authorization_server
from tests.auth.real.servers import notes_server
from tests.ports import free_port
from tests.serving import running

PORT = free_port()
URL = f"http://127.0.0.1:{PORT}/mcp"
#: Where foreign clients expect the browser. Nobody listens there: the test reads the URL from the browser.
CALLBACK = f"http://127.0.0.1:{free_port()}/callback"
APPLICATION: dict[str, Any] = {"client_id": "notes", "client_secret": "the secret of the one registered application"}


@pytest.fixture(scope="module")
def provider(installed_provider: None) -> Iterator[AuthorizationServer]:
    application = {
        **APPLICATION,
        "redirect_uris": [f"http://127.0.0.1:{PORT}/auth/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "client_secret_post",
    }
    with authorization_server(Settings(clients=[application], registration=False)) as server:
        yield server


@pytest.fixture
async def url(provider: AuthorizationServer) -> AsyncIterator[str]:
    auth = OAuthProxy(
        OpenID(issuer=provider.issuer, **APPLICATION),
        url=URL,
        scopes=["notes", "notes.write"],
        required_scopes=["notes"],
    )
    async with running(notes_server(auth=auth), "http", port=PORT) as url:
        yield url


def login(person: PersonAtBrowser) -> OAuth:
    return OAuth(authorizer=BrowserLogin(host="127.0.0.1", timeout=15, open_url=person.open, show=lambda text: None))


async def ask(url: str, auth: OAuth, tool: str, era: Literal["2025", "auto"] = "auto", **arguments: str) -> str:
    async with Client(url, auth=auth, era=era) as client:
        return (await client.call_tool(tool, arguments)).text


@pytest.mark.parametrize("era", ["2025", "auto"])
async def test_a_person_logs_in_and_again_for_a_further_scope(
    provider: AuthorizationServer, url: str, page: Page, era: Literal["2025", "auto"]
) -> None:
    """The second login finds the person logged in with the provider: one redirect leads through all servers."""
    with PersonAtBrowser(page) as person:
        auth = login(person)
        assert await ask(url, auth, "whoami", era) == "ada: notes"
        assert await ask(url, auth, "add", era, text="a note") == "added a note"
        assert await ask(url, auth, "whoami", era) == "ada: notes notes.write"
    assert len(person.opened) == 2
    assert all(opened.startswith(f"http://127.0.0.1:{PORT}/") for opened in person.opened)


@pytest.mark.parametrize("era", ["2025", "auto"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_the_official_clients_log_in_and_again_for_a_further_scope(
    provider: AuthorizationServer, url: str, page: Page, client: str, era: str
) -> None:
    def visit() -> tuple[list[Any], int]:
        with foreign_client(client, url, era, CALLBACK, page=page) as official:
            answers = [official.call("whoami"), official.call("whoami"), official.call("add", text="a note")]
            return [answer.get("result", {}).get("texts", answer) for answer in answers], len(official.authorized)

    texts, logins = await asyncio.to_thread(visit)
    assert texts == [["ada: notes"], ["ada: notes"], ["added a note"]]
    assert logins == 2


@pytest.mark.parametrize(
    "person", [Person(allows=False), Person(consents=False)], ids=["at our page", "at the provider"]
)
async def test_a_refusal_reaches_the_client(
    provider: AuthorizationServer, url: str, page: Page, person: Person
) -> None:
    with PersonAtBrowser(page, person) as at_browser, pytest.raises(AuthorizationFailed, match="access_denied"):
        await ask(url, login(at_browser), "whoami")
    assert page.url.startswith("http://127.0.0.1:")
    assert "error=access_denied" in page.url


async def test_the_consent_page_names_the_client_and_cannot_be_framed(
    provider: AuthorizationServer, url: str, page: Page
) -> None:
    with PersonAtBrowser(page, Person(allows=False)) as person, pytest.raises(AuthorizationFailed):
        await ask(url, login(person), "whoami")
    await asyncio.to_thread(page.open, person.opened[0])
    text = await asyncio.to_thread(lambda: page.text)
    assert "Gemel" in text
    assert URL in text
    await asyncio.to_thread(page.open, provider.jwks_uri)
    assert await asyncio.to_thread(page.frame_url, person.opened[0]) == "chrome-error://chromewebdata/"
    assert await asyncio.to_thread(page.frame_url, provider.jwks_uri) == provider.jwks_uri
