"""Clients log in to a Gemel server that a real authorization server protects: ours and the official ones, in both eras."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import pytest

from gemel import AuthorizationFailed, Client
from gemel.auth import BrowserLogin, ClientCredentials, DeviceLogin, IntrospectionAuth, JWTAuth, OAuth
from tests.auth.real.browser import Browser, Page
from tests.auth.real.foreign import CLIENTS, foreign_client
from tests.auth.real.login import Person
from tests.auth.real.person import PersonAtBrowser
from tests.auth.real.provider import AuthorizationServer, Settings, authorization_server
from tests.auth.real.servers import notes_server
from tests.ports import free_port
from tests.serving import running

Era = Literal["2025", "auto"]
ERAS: tuple[Era, ...] = ("2025", "auto")
#: Where foreign clients expect the browser. Nobody listens there: the test reads the URL from the browser.
CALLBACK = f"http://127.0.0.1:{free_port()}/callback"
PORT = free_port()
URL = f"http://127.0.0.1:{PORT}/mcp"
DOCUMENT_URL = "https://editor.test/client.json"
PROGRAM: dict[str, Any] = {"client_id": "backup", "client_secret": "a secret of the backup program"}
SETTINGS = Settings(
    resources=[URL, "http://127.0.0.1:9/other"],
    clients=[
        {
            **PROGRAM,
            "grant_types": ["client_credentials"],
            "redirect_uris": [],
            "response_types": [],
            "token_endpoint_auth_method": "client_secret_basic",
        },
    ],
    documents={
        DOCUMENT_URL: {
            "client_id": DOCUMENT_URL,
            "client_name": "Editor",
            "redirect_uris": ["http://127.0.0.1/callback", CALLBACK],
            "application_type": "native",
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
    },
)


@pytest.fixture(scope="module")
def provider(installed_provider: None) -> Iterator[AuthorizationServer]:
    with authorization_server(SETTINGS) as server:
        yield server


@pytest.fixture(autouse=True)
def as_configured(provider: AuthorizationServer) -> None:
    """Undo what the test before has changed."""
    provider.change(
        access_token_seconds=SETTINGS.access_token_seconds,
        dpop_nonce=False,
        token_format="jwt",
        client_id_metadata_document=False,
        resources=SETTINGS.resources,
    )


@pytest.fixture
async def url(provider: AuthorizationServer) -> AsyncIterator[str]:
    auth = JWTAuth(issuer=provider.issuer, audience=URL, required_scopes=["notes"])
    async with running(notes_server(auth=auth), "http", port=PORT) as url:
        yield url


def login(person: PersonAtBrowser, **options: Any) -> OAuth:
    return OAuth(
        authorizer=BrowserLogin(host="127.0.0.1", timeout=15, open_url=person.open, show=lambda text: None), **options
    )


async def ask(url: str, auth: OAuth | ClientCredentials, tool: str, era: Era = "auto", **arguments: str) -> str:
    async with Client(url, auth=auth, era=era) as client:
        return (await client.call_tool(tool, arguments)).text


@pytest.mark.parametrize("era", ERAS)
async def test_a_person_logs_in_once_and_again_for_a_further_scope(
    provider: AuthorizationServer, url: str, page: Page, era: Era
) -> None:
    """oidc-provider lets a client that registered itself ask for the scopes of its registration only: another is needed."""
    with PersonAtBrowser(page) as person:
        auth = login(person)
        assert await ask(url, auth, "whoami", era) == "ada: notes"
        assert await ask(url, auth, "whoami", era) == "ada: notes"
        assert len(person.opened) == 1
        assert await ask(url, auth, "add", era, text="a note") == "added a note"
        assert await ask(url, auth, "whoami", era) == "ada: notes notes.write"
        assert len(person.opened) == 3


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_the_official_clients_log_in_once(
    provider: AuthorizationServer, url: str, page: Page, client: str, era: Era
) -> None:
    """They can't ask for further scopes here; test_proxy.py has that."""

    def visit() -> tuple[list[Any], int]:
        with foreign_client(client, url, era, CALLBACK, page=page) as official:
            answers = [official.call("whoami"), official.call("whoami")]
            return [answer.get("result", {}).get("texts", answer) for answer in answers], len(official.authorized)

    texts, logins = await asyncio.to_thread(visit)
    assert texts == [["ada: notes"], ["ada: notes"]]
    assert logins == 1


async def test_a_refused_login_ends_the_connection_with_one_error(url: str, page: Page) -> None:
    with (
        PersonAtBrowser(page, Person(consents=False)) as person,
        pytest.raises(AuthorizationFailed, match="access_denied"),
    ):
        await ask(url, login(person), "whoami")
    assert len(person.opened) == 1


async def test_an_expired_token_is_refreshed_and_the_refresh_token_rotates(
    provider: AuthorizationServer, url: str, page: Page
) -> None:
    provider.change(access_token_seconds=1)
    before = len(provider.grants())
    with PersonAtBrowser(page) as person:
        auth = login(person)
        for _ in range(3):
            assert await ask(url, auth, "whoami") == "ada: notes"
            await asyncio.sleep(1.1)  # the lifetime of the token
    assert len(person.opened) == 1
    grants = provider.grants()[before:]
    assert grants.count(("refresh_token", "success")) >= 2
    assert {outcome for _, outcome in grants} == {"success"}


async def test_a_revoked_grant_leads_to_a_login(provider: AuthorizationServer, url: str, page: Page) -> None:
    provider.change(access_token_seconds=1)
    with PersonAtBrowser(page) as person:
        auth = login(person)
        assert await ask(url, auth, "whoami") == "ada: notes"
        provider.revoke_grants()
        await asyncio.sleep(1.1)  # the lifetime of the token
        assert await ask(url, auth, "whoami") == "ada: notes"
    assert len(person.opened) == 2
    assert ("refresh_token", "invalid_grant") in provider.grants()


async def test_a_forgotten_client_registers_anew(provider: AuthorizationServer, url: str, page: Page) -> None:
    provider.change(access_token_seconds=1)
    with PersonAtBrowser(page) as person:
        auth = login(person)
        assert await ask(url, auth, "whoami") == "ada: notes"
        provider.forget_clients()
        await asyncio.sleep(1.1)  # the lifetime of the token
        assert await ask(url, auth, "whoami") == "ada: notes"
    assert len(person.opened) == 2


async def test_tokens_of_new_keys_are_accepted_at_once(
    provider: AuthorizationServer, url: str, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemel.auth.server.jwks.PAUSE", 0.0)  # the keys were fetched a moment ago
    for name in ("ada", "grace"):
        page = browser.page()
        with PersonAtBrowser(page, Person(name)) as person:
            assert await ask(url, login(person), "whoami") == f"{name}: notes"
        page.close()
        provider.replace_keys()


@pytest.mark.parametrize("algorithm", ["PS256", "ES256", "EdDSA"])
async def test_each_algorithm_of_the_authorization_server_is_understood(algorithm: Any) -> None:
    with authorization_server(Settings(**{**_members(SETTINGS), "algorithm": algorithm})) as provider:
        auth = JWTAuth(issuer=provider.issuer, audience=URL, required_scopes=["notes"])
        async with running(notes_server(auth=auth), "http", port=PORT) as url:
            program = ClientCredentials(**PROGRAM, scopes=["notes"])
            assert await ask(url, program, "whoami") == "client backup: notes"


def _members(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in Settings.__dataclass_fields__}


async def test_a_program_logs_in_without_a_person(provider: AuthorizationServer, url: str) -> None:
    assert await ask(url, ClientCredentials(**PROGRAM, scopes=["notes"]), "whoami") == "client backup: notes"


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_official_clients_log_in_without_a_person(
    provider: AuthorizationServer, url: str, client: str
) -> None:
    def visit() -> dict[str, Any]:
        with foreign_client(client, url, "auto", "--credentials", *PROGRAM.values()) as official:
            return official.call("whoami")

    answer = await asyncio.to_thread(visit)
    assert answer["result"]["texts"] == ["client backup: notes"], answer


@pytest.mark.parametrize("client", ["gemel", *CLIENTS])
async def test_a_client_with_a_metadata_document_need_not_register(
    provider: AuthorizationServer, url: str, page: Page, client: str
) -> None:
    provider.change(client_id_metadata_document=True, registration=False)
    try:
        if client == "gemel":
            with PersonAtBrowser(page) as person:
                assert await ask(url, login(person, client_metadata_url=DOCUMENT_URL), "whoami") == "ada: notes"
        else:

            def visit() -> dict[str, Any]:
                with foreign_client(client, url, "auto", CALLBACK, DOCUMENT_URL, page=page) as official:
                    return official.call("whoami")

            answer = await asyncio.to_thread(visit)
            assert answer["result"]["texts"] == ["ada: notes"], answer
    finally:
        provider.change(registration=True)


async def test_opaque_tokens_are_introspected(provider: AuthorizationServer, page: Page) -> None:
    provider.change(token_format="opaque")
    auth = IntrospectionAuth(issuer=provider.issuer, audience=URL, required_scopes=["notes"], **PROGRAM, remember=0)
    async with running(notes_server(auth=auth), "http", port=PORT) as url:
        with PersonAtBrowser(page) as person:
            assert await ask(url, login(person), "whoami") == "ada: notes"


async def test_a_token_for_another_server_is_refused(provider: AuthorizationServer, url: str) -> None:
    """The authorization server is asked for another resource; the tokens that it issues then are of no use here."""
    provider.change(resources=["http://127.0.0.1:9/other"])
    with pytest.raises(AuthorizationFailed, match="invalid_target"):
        await ask(url, ClientCredentials(**PROGRAM, scopes=["notes"]), "whoami")


async def test_a_person_logs_in_on_another_device(provider: AuthorizationServer, url: str, page: Page) -> None:
    shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def until_the_code_was_entered(seconds: float) -> None:
        text = await shown
        place, code = re.search(r"http\S+/device", text), re.search(r"[A-Z]{4}-[A-Z]{4}", text)
        assert place is not None, text
        assert code is not None, text
        await asyncio.to_thread(Person().enter_code, page, place[0], code[0])

    auth = OAuth(authorizer=DeviceLogin(show=shown.set_result, sleep=until_the_code_was_entered))
    assert await ask(url, auth, "whoami") == "ada: notes"
    assert ("urn:ietf:params:oauth:grant-type:device_code", "success") in provider.grants()
