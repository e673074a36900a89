"""The proxy as clients use it: metadata, registration, login in a browser, tokens, calls."""

from __future__ import annotations

import asyncio
import json

from gemel import Client
from gemel.auth import GitHub, OAuth, OAuthProxy
from tests.auth.hostile.cases import challenges
from tests.auth.proxy.rig import CALLBACK, SECRET, Browser, query_of, rig, s256


async def test_a_client_registers_a_person_logs_in_and_the_client_calls_a_tool() -> None:
    async with rig(scopes=["notes", "notes.write"]) as site:
        refused = await site.call(None)
        assert refused.status == 401
        where = challenges(refused)["bearer"]["resource_metadata"]
        assert where == f"{site.issuer}/.well-known/oauth-protected-resource/mcp"
        resource = json.loads((await site.get("/.well-known/oauth-protected-resource/mcp")).body)
        assert (resource["resource"], resource["authorization_servers"]) == (site.resource, [site.issuer])
        metadata = json.loads((await site.get("/.well-known/oauth-authorization-server")).body)
        assert metadata["issuer"] == site.issuer
        assert metadata["authorization_response_iss_parameter_supported"] is True
        assert metadata["client_id_metadata_document_supported"] is True
        assert metadata["code_challenge_methods_supported"] == ["S256"]

        client_id = await site.register()
        answer = await site.login(client_id, scope="notes")
        assert (answer["state"], answer["iss"]) == ("state-of-the-client", site.issuer)
        response = await site.exchange_code(client_id, answer["code"])
        assert response.status == 200
        assert response.all("cache-control") == ["no-store"]
        tokens = json.loads(response.body)
        assert (tokens["token_type"], tokens["scope"]) == ("Bearer", "notes")
        called = await site.call(tokens["access_token"])
        assert called.status == 200, called
        assert "user-1" in called.body.decode()
        assert "Ada" in called.body.decode()


async def test_both_legs_have_pkce_and_the_provider_sees_nothing_of_the_client() -> None:
    async with rig() as site:
        client_id = await site.register()
        await site.login(client_id)
        (form,) = [form for path, form in site.idp.requests if path == "/authorize"]
        assert form["redirect_uri"] == site.auth.callback_url == f"{site.issuer}/auth/callback"
        assert form["code_challenge_method"] == "S256"
        assert form["code_challenge"] != s256("")
        assert form["client_id"] == "proxy-app"
        assert client_id not in str(form)
        assert "state-of-the-client" not in str(form)
        assert CALLBACK not in str(form)


async def test_the_tokens_of_the_provider_serve_calls_there_and_never_reach_the_client() -> None:
    async with rig() as site:
        browser = Browser()
        client_id = await site.register()
        answer = await site.login(client_id, browser)
        response = await site.exchange_code(client_id, answer["code"])
        seen = str(response) + str(browser.visited)
        assert not any(token in seen for token in site.idp.tokens)
        assert SECRET not in seen
        assert SECRET not in repr(site.auth)
        token = json.loads(response.body)["access_token"]
        assert site.idp.tokens[0] in (await site.call(token, "upstream")).body.decode()


async def test_a_person_who_says_no_is_not_sent_to_the_provider() -> None:
    async with rig() as site:
        browser = Browser()
        _, page = await browser.open(site.authorize_url(await site.register()))
        url, _ = await browser.submit(page, "deny")
        answer = query_of(url)
        assert (answer["error"], answer["iss"]) == ("access_denied", site.issuer)
        assert site.idp.count("/authorize") == 0


class Person:
    """Logs in to the proxy with a browser, for Gemel's own client."""

    redirect_uri = CALLBACK

    def __init__(self) -> None:
        self.browser = Browser()
        self.opened: list[str] = []

    async def authorize(self, url: str) -> str:
        self.opened.append(url)
        _, page = await self.browser.open(url)
        back, _ = await self.browser.submit(page)
        return back


async def test_our_client_logs_in_registers_and_refreshes() -> None:
    async with rig(scopes=["notes"], access_ttl=0.5) as site:
        person = Person()
        async with Client(site.resource, auth=OAuth(authorizer=person)) as client:
            assert "Ada" in (await client.call_tool("whoami")).text
            await asyncio.sleep(0.6)
            assert "Ada" in (await client.call_tool("whoami")).text
        assert len(person.opened) == 1
        assert query_of(person.opened[0])["resource"] == site.resource


async def test_our_client_steps_up_to_the_scopes_that_a_tool_needs() -> None:
    async with rig(scopes=["notes", "notes.write"], required_scopes=["notes"]) as site:
        person = Person()
        async with Client(site.resource, auth=OAuth(authorizer=person)) as client:
            assert '"notes"' in (await client.call_tool("whoami")).text
            assert "written" in (await client.call_tool("write")).text
        assert [set(query_of(url)["scope"].split()) for url in person.opened][-1] == {"notes", "notes.write"}


async def test_a_client_of_2025_03_26_finds_everything_at_the_base_url() -> None:
    """AUTHS-13: without metadata of a resource the server is its own authorization server, with default paths."""
    async with rig() as site:
        assert (await site.call(None)).status == 401
        metadata = json.loads((await site.get("/.well-known/oauth-authorization-server")).body)
        paths = {name: metadata[f"{name}_endpoint"] for name in ("authorization", "token", "registration")}
        base = site.issuer
        assert paths == {
            "authorization": f"{base}/authorize",
            "token": f"{base}/token",
            "registration": f"{base}/register",
        }
        tokens = await site.tokens(resource=None)
        assert (await site.call(tokens["access_token"])).status == 200


async def test_below_a_path_that_a_gateway_removes() -> None:
    auth = OAuthProxy(
        GitHub(client_id="a", client_secret="b"), url="https://gw.test/notes/mcp", issuer="https://gw.test/notes"
    )
    local = auth.routes("/mcp")
    assert {"/authorize", "/token", "/register", "/revoke", "/auth/consent", "/auth/callback"} <= set(local)
    assert {"/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server/notes"} <= set(local)
    kept = auth.routes("/notes/mcp")
    assert {"/notes/authorize", "/notes/token", "/notes/auth/callback"} <= set(kept)
    assert auth.callback_url == "https://gw.test/notes/auth/callback"
