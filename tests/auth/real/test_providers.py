"""Logins to a real authorization server that does what differs at identity providers, with a real browser.

The facts are those of `tests/auth/providers.py`; `tests/auth/client/test_providers.py` plays all of them without a browser.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import AuthorizationFailed, Client
from gemel.auth import BrowserLogin, JWTAuth, OAuth
from tests.auth.providers import PROVIDERS, Facts
from tests.auth.real.browser import Page
from tests.auth.real.person import PersonAtBrowser
from tests.auth.real.provider import SCOPES, AuthorizationServer, Settings, authorization_server
from tests.auth.real.servers import notes_server
from tests.auth.real.test_command_line import Shell
from tests.ports import free_port
from tests.serving import running

PORT = free_port()
URL = f"http://127.0.0.1:{PORT}/mcp"
#: Those whose differences show at the authorization server itself.
PLAYED = [facts for facts in PROVIDERS if facts.name in ("Cognito", "Entra ID", "GitHub", "Google")]
CLIENT: dict[str, Any] = {"client_id": "notes-client", "client_secret": "a secret of the client"}

played = pytest.mark.parametrize("facts", PLAYED, ids=lambda facts: facts.name)


def playing(facts: Facts) -> AbstractContextManager[AuthorizationServer]:
    """Run a provider at which the client was created by hand."""
    client = {
        **CLIENT,
        "application_type": "native",
        "redirect_uris": ["http://localhost/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": facts.options.get("auth_method", "client_secret_basic"),
    }
    settings = Settings(
        resources=[URL],
        default_resource=URL,
        clients=[client],
        registration=False,
        client_id_metadata_document=False,
        facts=facts._asdict(),
    )
    return authorization_server(settings)


def serving(provider: AuthorizationServer) -> AbstractAsyncContextManager[str]:
    """Run an MCP server at `URL`, which refuses tokens that were signed before the keys were replaced."""
    auth = JWTAuth(issuer=provider.issuer, audience=URL, required_scopes=["notes"])
    return running(notes_server(auth=auth), "http", port=PORT)


@contextmanager
def oauth(page: Page, provider: AuthorizationServer, **options: Any) -> Iterator[tuple[OAuth, PersonAtBrowser]]:
    """The client that was created at the provider, and who logs in."""
    with PersonAtBrowser(page) as person, closing(BrowserLogin(open_url=person.open, show=lambda text: None)) as login:
        yield OAuth(**CLIENT, issuer=provider.issuer, scopes=SCOPES, authorizer=login, **options), person


async def whoami(provider: AuthorizationServer, auth: OAuth) -> str:
    """Ask who is calling, on a connection of its own."""
    async with serving(provider), Client(URL, auth=auth) as client:
        return str((await client.call_tool("whoami")).text)


@played
async def test_a_login_at_a_provider_lasts_until_it_is_revoked(facts: Facts, page: Page) -> None:
    with playing(facts) as provider:
        with oauth(page, provider, **facts.options) as (auth, person):
            for revoked, logins in ((False, 1), (False, 1), (True, 2)):
                if revoked:
                    provider.revoke_grants()
                assert await whoami(provider, auth) == "ada: notes notes.write"
                assert len(person.opened) == logins
                provider.replace_keys()
        outcomes = [outcome == "success" for grant, outcome in provider.grants() if grant == "refresh_token"]
        assert outcomes == [True, False]


@pytest.mark.parametrize(
    "facts",
    [facts for facts in PLAYED if {"assume_pkce", "authorization_parameters"} & set(facts.options)],
    ids=lambda facts: facts.name,
)
async def test_without_its_options_a_login_fails_or_does_not_last(facts: Facts, page: Page) -> None:
    """Nothing of it is tried by itself."""
    with playing(facts) as provider, oauth(page, provider) as (auth, _):
        if facts.needed:
            assert await whoami(provider, auth) == "ada: notes notes.write"
            tokens = await auth.bind(URL).tokens()
            assert tokens is not None
            assert tokens.refresh_token is None
        else:
            with pytest.raises(AuthorizationFailed):
                await whoami(provider, auth)


@played
@pytest.mark.timeout(90)  # three processes
async def test_a_login_on_the_command_line_lasts(facts: Facts, page: Page, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CLIENT["client_secret"])
    words = ["--client-id", CLIENT["client_id"], "--client-secret-file", str(secret), "--scope", "notes"]
    options = facts.options
    if "resource" in options:
        words += ["--resource", "none"]
    if "assume_pkce" in options:
        words += ["--assume-pkce"]
    if "auth_method" in options:
        words += ["--auth-method", options["auth_method"]]
    for name, value in options.get("authorization_parameters", {}).items():
        words += ["--parameter", f"{name}={value}"]
    shell = Shell(tmp_path)
    with playing(facts) as provider:
        async with serving(provider):
            await shell.log_in(page, URL, "--issuer", provider.issuer, *words)
        for _ in range(2):
            async with serving(provider):
                code, out, err = await shell.run("call", URL, "whoami")
            assert (code, out.strip()) == (0, "ada: notes"), err
            provider.replace_keys()
        assert ("refresh_token", "success") in provider.grants()
