"""A person logs in with a real browser at a real authorization server, and comes back to Gemel's loopback address."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from gemel.auth.client.user import BrowserLogin
from tests.auth.real.browser import Browser, Page
from tests.auth.real.login import Person
from tests.auth.real.person import PersonAtBrowser
from tests.auth.real.provider import AuthorizationServer, Settings, authorization_server

RESOURCE = "http://127.0.0.1:9/mcp"
VERIFIER = "v" * 43


@pytest.fixture(scope="module")
def provider(installed_provider: None) -> Iterator[AuthorizationServer]:
    with authorization_server(Settings(resources=[RESOURCE])) as running:
        yield running


def register(provider: AuthorizationServer, redirect_uri: str) -> str:
    client = {
        "client_name": "notes",
        "redirect_uris": [redirect_uri],
        "application_type": "native",
        "token_endpoint_auth_method": "none",
    }
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{provider.issuer}/reg", json.dumps(client).encode(), headers)
    with urllib.request.urlopen(request) as response:
        return str(json.load(response)["client_id"])


def authorization_url(provider: AuthorizationServer, redirect_uri: str) -> str:
    challenge = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
    query = {
        "client_id": register(provider, redirect_uri),
        "response_type": "code",
        "redirect_uri": redirect_uri,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "state": "the state",
        "resource": RESOURCE,
        "scope": "notes",
    }
    return f"{provider.issuer}/auth?{urlencode(query)}"


async def log_in(provider: AuthorizationServer, page: Page, person: Person, **options: Any) -> dict[str, str]:
    with PersonAtBrowser(page, person) as at_browser:
        login = BrowserLogin(open_url=at_browser.open, show=lambda text: None, **options)
        try:
            url = await login.authorize(authorization_url(provider, login.redirect_uri))
            assert url.startswith(login.redirect_uri)
            return dict(parse_qsl(urlsplit(url).query))
        finally:
            login.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_login_in_the_browser_comes_back_with_a_code(
    provider: AuthorizationServer, page: Page, host: str
) -> None:
    answer = await log_in(provider, page, Person(), host=host)
    assert answer["state"] == "the state"
    assert answer["iss"] == provider.issuer
    assert answer["code"]
    assert "code" not in page.text  # the page that the person sees last


async def test_a_refusal_in_the_browser_comes_back_as_an_error(provider: AuthorizationServer, browser: Browser) -> None:
    page = browser.page()
    answer = await log_in(provider, page, Person(consents=False))
    page.close()
    assert answer["error"] == "access_denied"
    assert "code" not in answer
