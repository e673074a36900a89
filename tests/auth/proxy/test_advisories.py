"""What went wrong in other OAuth proxies and authorization servers, and does not here. Each test names the report."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from gemel import Server
from gemel.auth import GitHub, OAuthProxy
from gemel.auth.client.token_request import ASSERTION_TYPE
from gemel.auth.flow import HttpRequest
from gemel.auth.jose import WebKey, generate_key, public_jwk, sign_jwt
from gemel.auth.server.proxy import documents, grants
from gemel.backends import MemoryBackend, SqliteBackend
from gemel.errors import AuthorizationFailed, DefinitionError
from tests.auth.hostile.cases import Request, Response, challenges
from tests.auth.hostile.wire import exchange
from tests.auth.proxy.rig import (
    CALLBACK,
    SECRET,
    VERIFIER,
    WEB_CALLBACK,
    Browser,
    Rig,
    provider_of,
    query_of,
    read_form,
    rig,
    serve_app,
    serve_idp,
    serve_proxy,
)
from tests.ports import free_port

NAVIGATION = (("Sec-Fetch-Site", "none"),)
CROSS_SITE = (("Sec-Fetch-Site", "cross-site"),)


async def upstream_url(site: Rig, browser: Browser, client_id: str) -> str:
    """Agree, and stop at the URL of the provider."""
    _, page = await browser.open(site.authorize_url(client_id))
    url, _ = await browser.submit(page, until=f"{site.idp.issuer}/authorize")
    return url


# ---------------------------------------------------------------- consent


async def test_a_login_can_not_be_finished_in_another_browser() -> None:
    """CVE-2026-27124, GHSA-rww4-4w9c-7733: the attacker agrees, and sends the URL of the provider to the victim."""
    async with rig() as site:
        attacker, victim = Browser(), Browser()
        url = await upstream_url(site, attacker, await site.register())
        _, response = await victim.open(url)
        assert (response.status, response.all("location")) == (403, [])
        # Not even one that has a login of its own under way, nor after the attacker's callback came to nothing.
        await upstream_url(site, victim, await site.register())
        _, response = await victim.open(url)
        assert response.status == 403
        assert site.idp.count("/token") == 0
        back, _ = await attacker.open(url)
        assert "code" in query_of(back)


async def test_a_client_is_never_allowed_because_another_one_was() -> None:
    """AUTHS-14. FastMCP #2056, Security Best Practices "Confused Deputy Problem": the provider remembers our one application."""
    async with rig(remember_consent=3600) as site:
        victim = Browser()
        await site.login(await site.register(client_name="Good"), victim)
        evil = await site.register(client_name="Evil")
        _, page = await victim.open(site.authorize_url(evil), headers=NAVIGATION)
        assert page.status == 200
        assert b"Evil" in page.body


async def test_the_person_is_asked_each_time_by_default() -> None:
    """GHSA-6x8h-498w-gv8c, FastMCP #3960: a malicious server passes the login of a known client on to this one."""
    async with rig() as site:
        victim, client_id = Browser(), await site.register()
        await site.login(client_id, victim)
        for headers in (NAVIGATION, CROSS_SITE, ()):
            _, page = await victim.open(site.authorize_url(client_id), headers=headers)
            assert page.status == 200
            read_form(page)


async def test_a_remembered_consent_counts_only_for_the_same_request_that_no_other_site_started() -> None:
    """GHSA-6x8h-498w-gv8c, and consent by cookie for more than was shown."""
    async with rig(remember_consent=3600, scopes=["read", "write"]) as site:
        browser, client_id = Browser(), await site.register(CALLBACK, f"{CALLBACK}2")
        await site.login(client_id, browser, scope="read")
        url, _ = await browser.open(site.authorize_url(client_id, scope="read"), headers=NAVIGATION)
        assert "code" in query_of(url)
        asked: list[tuple[dict[str, Any], Any, Browser]] = [
            ({}, CROSS_SITE, browser),
            ({}, (("Sec-Fetch-Site", "same-site"),), browser),
            ({}, (), browser),
            ({"scope": "read write"}, NAVIGATION, browser),
            ({"redirect_uri": f"{CALLBACK}2"}, NAVIGATION, browser),
            ({}, NAVIGATION, Browser()),
        ]
        for changes, headers, who in asked:
            _, page = await who.open(site.authorize_url(client_id, **{"scope": "read", **changes}), headers=headers)
            assert page.status == 200, (changes, headers)
            read_form(page)


async def test_a_page_that_was_loaded_twice_can_be_sent() -> None:
    """FastMCP #4814: a second GET of the page made the form of the first one useless."""
    async with rig() as site:
        browser, url = Browser(), site.authorize_url(await site.register())
        _, first = await browser.open(url)
        await browser.open(url)
        back, _ = await browser.submit(first)
        assert "code" in query_of(back)


async def test_a_form_that_was_sent_twice_is_one_login() -> None:
    async with rig() as site:
        browser, client_id = Browser(), await site.register()
        _, page = await browser.open(site.authorize_url(client_id))
        until = f"{site.idp.issuer}/authorize"
        first, _ = await browser.submit(page, until=until)
        second, _ = await browser.submit(page, until=until)
        assert query_of(first) == query_of(second)
        back, _ = await browser.open(second)
        assert "code" in query_of(back)
        _, late = await browser.submit(page)
        assert (late.status, late.all("location")) == (400, [])


async def test_the_form_of_one_browser_is_useless_in_another() -> None:
    """FastMCP #3519: an attacker's form, with the token of its own page, was accepted from the victim."""
    async with rig() as site:
        attacker, victim, url = Browser(), Browser(), site.authorize_url(await site.register())
        _, page = await attacker.open(url)
        await victim.open(url)
        _, response = await victim.submit(page)
        assert response.status == 403
        assert site.idp.count("/authorize") == 0


async def test_cookies_do_not_grow_with_the_number_of_clients() -> None:
    """FastMCP #3747: a cookie held every client, until proxies refused the header."""
    async with rig(remember_consent=3600) as site:
        browser = Browser()
        for number in range(12):
            await site.login(await site.register(client_name=f"Client {number}"), browser)
        cookies = browser.cookies[site.port]
        assert len(cookies) == 1
        assert len(str(cookies)) < 100


async def test_nobody_reaches_the_provider_without_agreeing() -> None:
    """Security Best Practices: `state` is set only after consent."""
    async with rig() as site:
        browser = Browser()
        _, page = await browser.open(site.authorize_url(await site.register()))
        assert site.idp.issuer not in page.body.decode()
        assert site.idp.count("/authorize") == 0


async def test_the_rules_for_proxies_with_one_application_at_the_provider() -> None:
    """SEC-08: consent per client, safe against forgery and frames, exact redirect URIs, `state` after consent and once."""
    async with rig(remember_consent=3600) as site:
        browser, client_id = Browser(), await site.register()
        _, page = await browser.open(site.authorize_url(client_id))
        (policy,) = page.all("content-security-policy")
        assert "frame-ancestors 'none'" in policy
        action, fields = read_form(page)
        foreign = (("Origin", "https://evil.test"),)
        forged = await browser.request("POST", action, {**fields, "decision": "allow"}, foreign)
        assert forged.status == 403
        assert not any("state=" in cookie for cookie in browser.cookies[site.port].values())
        assert site.idp.count("/authorize") == 0
        url, _ = await browser.submit(page, until=f"{site.idp.issuer}/authorize")
        response = await browser.request("GET", url)
        (callback,) = response.all("location")
        assert (await browser.request("GET", callback)).status == 303
        assert (await browser.request("GET", callback)).status == 400
        _, other = await browser.open(site.authorize_url(client_id, redirect_uri=f"{CALLBACK}/"))
        assert (other.status, other.all("location")) == (400, [])
        silent, _ = await browser.open(site.authorize_url(client_id), headers=NAVIGATION)
        assert "code" in query_of(silent)
        _, asked = await browser.open(site.authorize_url(await site.register(client_name="B")), headers=NAVIGATION)
        read_form(asked)


# ---------------------------------------------------------------- responses of the provider


async def test_a_response_is_good_once() -> None:
    async with rig() as site:
        browser = Browser()
        back = await upstream_url(site, browser, await site.register())
        response = await browser.request("GET", back)
        (callback,) = response.all("location")
        assert (await browser.request("GET", callback)).status == 303
        again = await browser.request("GET", callback)
        assert (again.status, again.all("location")) == (400, [])
        assert site.idp.count("/token") == 1


async def test_of_two_equal_responses_at_once_one_is_good() -> None:
    async with rig() as site:
        browser = Browser()
        response = await browser.request("GET", await upstream_url(site, browser, await site.register()))
        (callback,) = response.all("location")
        answers = await asyncio.gather(*(browser.request("GET", callback) for _ in range(5)))
        assert sorted(answer.status for answer in answers) == [303, 400, 400, 400, 400]
        assert site.idp.count("/token") == 1


@pytest.mark.parametrize(
    ("advertised", "iss", "accepted"),
    [
        (True, "@ISSUER@", True),
        (True, "https://evil.test", False),
        (True, "@ISSUER@/", False),
        (True, None, False),
        (False, "https://evil.test", False),
        (False, None, True),
    ],
)
async def test_the_response_of_another_provider_is_refused(advertised: bool, iss: str | None, accepted: bool) -> None:
    """Mix-up, RFC 9207 §2.4: nothing of such a response is used, its error as little as its code."""
    async with rig() as site:
        site.idp.metadata["authorization_response_iss_parameter_supported"] = advertised
        more = {} if iss is None else {"iss": iss.replace("@ISSUER@", site.idp.issuer)}
        site.idp.answer = lambda parameters: {**parameters, **more}
        browser = Browser()
        url, response = await browser.open(await upstream_url(site, browser, await site.register()))
        assert ("code" in query_of(url) and response.status == 303) is accepted
        assert site.idp.count("/token") == accepted


async def test_an_error_of_the_provider_reaches_the_client_in_our_words() -> None:
    async with rig() as site:
        site.idp.answer = lambda parameters: {
            "error": "canary<script>",
            "error_description": "canary",
            "state": parameters["state"],
        }
        url, _ = await (browser := Browser()).open(await upstream_url(site, browser, await site.register()))
        answer = query_of(url)
        assert (answer["error"], answer["iss"], answer["state"]) == ("server_error", site.issuer, "state-of-the-client")
        assert "canary" not in url


BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "another application": {"aud": "other-app"},
    "an authorized party that is another": {"azp": "other-app"},
    "no audience": {"aud": None},
    "another issuer": {"iss": "https://evil.test"},
    "the issuer with a slash": {"iss": "@ISSUER@/"},
    "another login": {"nonce": "other"},
    "no nonce": {"nonce": None},
    "expired": {"exp": 1},
    "no expiry": {"exp": None},
    "expired since 1970": {"exp": 0},
    "no subject": {"sub": None},
    "an empty subject": {"sub": ""},
    "a subject that is a list": {"sub": ["user-1"]},
    "a subject of 300 characters": {"sub": "a" * 300},
    "40 kB of claims": {"groups": ["a" * 40_000]},
}


@pytest.mark.parametrize("name", BAD_CLAIMS)
async def test_an_id_token_that_is_not_of_this_login_is_refused(name: str) -> None:
    async with rig() as site:
        changes = {
            key: f"{site.idp.issuer}/" if value == "@ISSUER@/" else value for key, value in BAD_CLAIMS[name].items()
        }
        site.idp.change_claims = lambda claims: claims.update(changes)
        answer = await site.login(await site.register())
        assert answer["error"] == "server_error"
        assert "code" not in answer


async def test_the_application_may_refuse_a_user() -> None:
    async def allow(claims: Any) -> bool:
        return str(claims["email"]).endswith("@example.org")

    async with rig(allow=allow) as site:
        client_id = await site.register()
        assert (await site.login(client_id))["error"] == "access_denied"
        site.idp.user["email"] = "ada@example.org"
        assert "code" in await site.login(client_id)


async def test_a_user_who_may_not_any_more_is_out_at_the_next_refresh() -> None:
    """`allow` is asked again, so that an application ends a login by its own list, and the token in use at once."""
    members = {"ada@example.com"}
    async with rig(allow=lambda claims: claims["email"] in members) as site:
        tokens = await site.tokens()
        renewed = json.loads((await site.refresh(tokens["client_id"], tokens["refresh_token"])).body)
        assert (await site.call(renewed["access_token"])).status == 200
        members.clear()
        refused = await site.refresh(tokens["client_id"], renewed["refresh_token"])
        assert json.loads(refused.body)["error"] == "invalid_grant"
        assert (await site.call(renewed["access_token"])).status == 401
        members.add("ada@example.com")
        assert (await site.refresh(tokens["client_id"], renewed["refresh_token"])).status == 400


async def test_claims_that_come_with_renewed_tokens_count() -> None:
    async with rig(allow=lambda claims: "staff" in claims["groups"]) as site:
        site.idp.user["groups"] = ["staff"]
        site.idp.expires_in = 0
        tokens = await site.tokens()
        site.idp.renews_id_tokens = True
        renewed = json.loads((await site.refresh(tokens["client_id"], tokens["refresh_token"])).body)
        site.idp.user["groups"] = ["alumni"]
        refused = await site.refresh(tokens["client_id"], renewed["refresh_token"])
        assert json.loads(refused.body)["error"] == "invalid_grant"


@pytest.mark.parametrize(
    ("change", "status"),
    [({"sub": "user-2"}, 400), ({"aud": "other-app"}, 200), ({"exp": 1}, 200), ({"sub": None}, 200)],
)
async def test_an_id_token_of_a_refresh_is_about_the_same_user_or_not_used(change: Any, status: int) -> None:
    """OpenID Connect Core 1.0, section 12.2. One that can't be used ends no login."""
    async with rig() as site:
        site.idp.expires_in = 0
        tokens = await site.tokens()
        site.idp.renews_id_tokens = True
        site.idp.change_claims = lambda claims: claims.update({"name": "Eve", **change})
        answer = await site.refresh(tokens["client_id"], tokens["refresh_token"])
        assert answer.status == status
        if status == 200:
            caller = await site.auth._find_caller(json.loads(answer.body)["access_token"])
            assert caller is not None
            assert caller.claims["name"] == "Ada"


# ---------------------------------------------------------------- codes and tokens


async def test_a_code_is_good_once_and_its_second_use_ends_the_grant() -> None:
    """Replayed codes (keboola/mcp-server #505; RFC 6749 §4.1.2)."""
    async with rig() as site:
        client_id = await site.register()
        code = (await site.login(client_id))["code"]
        first = json.loads((await site.exchange_code(client_id, code)).body)
        again = await site.exchange_code(client_id, code)
        assert (again.status, json.loads(again.body)["error"]) == (400, "invalid_grant")
        assert (await site.call(first["access_token"])).status == 401
        assert (await site.refresh(client_id, first["refresh_token"])).status == 400


async def test_a_code_without_its_verifier_is_useless_and_stays_good_for_its_owner() -> None:
    async with rig() as site:
        client_id = await site.register()
        code = (await site.login(client_id))["code"]
        for verifier in ("b" * 43, VERIFIER.upper(), f"{VERIFIER} "):
            assert (await site.exchange_code(client_id, code, code_verifier=verifier)).status == 400
        assert (await site.exchange_code(client_id, code)).status == 200


async def test_an_old_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "CODE_SECONDS", -1.0)
    async with rig() as site:
        client_id = await site.register()
        assert (await site.exchange_code(client_id, (await site.login(client_id))["code"])).status == 400


async def test_of_ten_exchanges_of_one_code_at_once_at_most_one_is_answered() -> None:
    async with rig() as site:
        client_id = await site.register()
        code = (await site.login(client_id))["code"]
        answers = await asyncio.gather(*(site.exchange_code(client_id, code) for _ in range(10)))
        assert sorted(answer.status for answer in answers)[:1] <= [200]
        assert sum(answer.status == 200 for answer in answers) <= 1


async def test_a_token_for_one_server_is_refused_by_another_of_the_same_host() -> None:
    """CVE-2025-69196, FastMCP #2763: tokens were for the base URL, and good for all servers below it."""
    backend, keys = MemoryBackend(), [b"k" * 32]
    async with serve_idp() as idp, serve_proxy(idp, backend=backend, keys=keys) as first:
        token = (await first.tokens())["access_token"]
        assert (await first.call(token)).status == 200
        async with serve_proxy(idp, backend=backend, keys=keys) as second:
            refused = await second.call(token)
            assert challenges(refused)["bearer"]["error"] == "invalid_token"
            second.auth._grants._store = first.auth._grants._store  # not only because the grant is unknown there
            second.auth._grants._vault = first.auth._grants._vault
            assert (await second.call(token)).status == 401


async def test_the_token_request_can_not_choose_another_audience() -> None:
    """GHSA-p2fr-6hmx-4528: the audience came from the token request, not from what the person had agreed to."""
    async with rig() as site:
        client_id = await site.register()
        code = (await site.login(client_id))["code"]
        refused = await site.exchange_code(client_id, code, resource="https://other.test/mcp")
        assert json.loads(refused.body)["error"] == "invalid_target"


async def test_only_an_access_token_is_one() -> None:
    """FastMCP #3524 (refresh tokens were accepted), #3430 (HS256 with a public key), and what else could be tried."""
    async with rig() as site:
        client_id, browser = await site.register(), Browser()
        answer = await site.login(client_id, browser)
        tokens = json.loads((await site.exchange_code(client_id, answer["code"])).body)
        _, page = await browser.open(site.authorize_url(client_id))
        access: str = tokens["access_token"]
        flipped = [
            access[:at] + ("A" if access[at] != "A" else "B") + access[at + 1 :] for at in range(0, len(access) - 1, 7)
        ]
        none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=") + ".e30."
        tried = [
            tokens["refresh_token"],
            answer["code"],
            client_id,
            read_form(page)[1]["request"],
            next(iter(browser.cookies[site.port].values())),
            *site.idp.tokens,
            none,
            "e30.e30.e30",
            f"{access}=",
            f"{access}A",
            access[:-1],
            access.swapcase(),
            "",
            "A" * 20_000,
            *flipped,
        ]
        for token in tried:
            assert (await site.call(token)).status in (400, 401, 431), token
        assert (await site.call(access)).status == 200


async def test_the_keys_alone_make_nobody_a_user() -> None:
    """FastMCP #5115: whoever had the signing key could make a token with a user of its choice. Here it names a grant."""
    async with rig() as site:
        await site.tokens()
        forged = grants.AccessToken("no-such-grant", site.resource, (), time.time() + 60)
        token = site.auth._vault.seal(forged, "access token")
        assert site.auth._grants.read_access(token) is not None
        assert challenges(await site.call(token))["bearer"]["error"] == "invalid_token"


async def test_a_token_of_the_provider_is_none_here_whatever_application_it_is_for() -> None:
    """FastMCP #4827: tokens of Google for any application were accepted. FastMCP #3407: scopes were not looked at."""
    async with rig(required_scopes=["notes"]) as site:
        await site.tokens()
        for token in site.idp.tokens:
            assert challenges(await site.call(token))["bearer"]["error"] == "invalid_token"


async def test_a_client_does_not_get_the_callback_of_the_provider() -> None:
    """FastMCP 3.4.4: a client registered the proxy's own callback as its redirect URI."""
    async with rig() as site:
        for uri in (site.auth.callback_url, f"{site.auth.callback_url}?a=b"):
            client_id = await site.register(uri)
            _, response = await Browser().open(site.authorize_url(client_id, redirect_uri=uri))
            assert (response.status, response.all("location")) == (400, [])


async def test_an_expired_access_token_is_refused() -> None:
    async with rig(access_ttl=0.01) as site:
        token = (await site.tokens())["access_token"]
        await asyncio.sleep(0.02)
        assert challenges(await site.call(token))["bearer"]["error"] == "invalid_token"


async def test_a_client_never_gets_the_application_of_the_provider() -> None:
    """punkpeye/fastmcp #262: registration answered with the client id and secret that the proxy has at the provider."""
    async with rig() as site:
        tokens = await site.tokens()
        everything = json.dumps(tokens) + str(await site.get("/.well-known/oauth-authorization-server"))
        assert SECRET not in everything
        assert "proxy-app" not in everything
        assert (await site.exchange_code("proxy-app", "x", client_secret=SECRET)).status == 401


async def test_what_a_client_sends_never_goes_to_the_provider() -> None:
    """AUTHS-07: tokens are not passed through, nor codes, nor other headers."""
    async with rig() as site:
        site.idp.expires_in = 0
        client_id = await site.register()
        answer = await site.login(client_id)
        tokens = json.loads((await site.exchange_code(client_id, answer["code"])).body)
        tokens = json.loads((await site.refresh(client_id, tokens["refresh_token"])).body)
        called = await site.call(tokens["access_token"], "upstream")
        assert called.status == 200
        await site.post("/revoke", {"client_id": client_id, "token": tokens["refresh_token"]}, ("X-Canary", "canary"))
        sent = str(site.idp.requests) + str(site.idp.headers)
        own = (client_id, answer["code"], tokens["access_token"], tokens["refresh_token"], VERIFIER, "canary")
        assert [secret for secret in own if secret in sent] == []
        assert site.idp.count("/revoke") == 1


async def test_calls_at_once_renew_the_token_of_the_provider_once() -> None:
    async with rig() as site:
        site.idp.expires_in = 0
        token = (await site.tokens())["access_token"]
        site.idp.expires_in = 3600
        before = site.idp.count("/token")
        answers = await asyncio.gather(*(site.call(token, "upstream") for _ in range(10)))
        assert {answer.status for answer in answers} == {200}
        assert all(site.idp.tokens[2] in answer.body.decode() for answer in answers)
        assert site.idp.count("/token") == before + 1


# ---------------------------------------------------------------- refresh


async def test_a_refresh_that_is_repeated_soon_gives_tokens_of_the_same_generation() -> None:
    """FastMCP #4264, #4265, #4901: a lost response, or two processes that refresh at once, ended the login."""
    async with rig() as site:
        tokens = await site.tokens()
        client_id, old = tokens["client_id"], tokens["refresh_token"]
        answers = await asyncio.gather(*(site.refresh(client_id, old) for _ in range(10)))
        assert {answer.status for answer in answers} == {200}
        for answer in answers:
            fresh = json.loads(answer.body)
            assert fresh["refresh_token"] != old
            assert (await site.call(fresh["access_token"])).status == 200
        assert (await site.refresh(client_id, json.loads(answers[3].body)["refresh_token"])).status == 200


async def test_a_refresh_token_that_is_used_again_later_ends_the_login() -> None:
    """RFC 9700 §4.14.2: one of the two who have it is a thief."""
    async with rig(grace=0) as site:
        tokens = await site.tokens()
        client_id = tokens["client_id"]
        fresh = json.loads((await site.refresh(client_id, tokens["refresh_token"])).body)
        assert (await site.refresh(client_id, tokens["refresh_token"])).status == 400
        assert (await site.refresh(client_id, fresh["refresh_token"])).status == 400
        assert (await site.call(fresh["access_token"])).status == 401


async def test_the_rules_for_authorization_servers() -> None:
    """AUTHS-15: HTTPS, exact redirect URIs, refresh rotation, S256, `iss` that is announced, checked client documents."""
    with pytest.raises(DefinitionError, match="https"):
        OAuthProxy(GitHub(client_id="a", client_secret="b"), url="http://notes.example.com/mcp")
    async with rig(grace=0) as site:
        metadata = json.loads((await site.get("/.well-known/oauth-authorization-server")).body)
        assert metadata["code_challenge_methods_supported"] == ["S256"]
        assert metadata["authorization_response_iss_parameter_supported"] is True
        client_id = await site.register()
        answer = await site.login(client_id)
        assert answer["iss"] == metadata["issuer"]
        tokens = json.loads((await site.exchange_code(client_id, answer["code"])).body)
        fresh = json.loads((await site.refresh(client_id, tokens["refresh_token"])).body)
        assert fresh["refresh_token"] != tokens["refresh_token"]
        assert (await site.refresh(client_id, tokens["refresh_token"])).status == 400
        _, refused = await Browser().open(site.authorize_url(client_id, redirect_uri=f"{CALLBACK}/"))
        assert (refused.status, refused.all("location")) == (400, [])
        other = publish(site, client_id="https://app.test/client.json")
        assert (await Browser().open(site.authorize_url(other)))[1].status == 401


async def test_two_generations_back_is_too_old_in_any_time() -> None:
    async with rig(grace=3600) as site:
        tokens = await site.tokens()
        client_id = tokens["client_id"]
        second = json.loads((await site.refresh(client_id, tokens["refresh_token"])).body)
        third = json.loads((await site.refresh(client_id, second["refresh_token"])).body)
        assert (await site.refresh(client_id, tokens["refresh_token"])).status == 400
        assert (await site.refresh(client_id, third["refresh_token"])).status == 400


async def test_a_refresh_token_belongs_to_its_client_and_adds_no_scopes() -> None:
    async with rig(scopes=["read", "write"]) as site:
        tokens = await site.tokens(scope="read")
        other = await site.register("https://other.test/")
        assert (await site.refresh(other, tokens["refresh_token"])).status == 400
        more = await site.refresh(tokens["client_id"], tokens["refresh_token"], scope="read write")
        assert json.loads(more.body)["error"] == "invalid_scope"
        assert (await site.refresh(tokens["client_id"], tokens["refresh_token"], scope="read")).status == 200


async def test_a_user_whom_the_provider_no_longer_knows_is_out_at_the_next_refresh() -> None:
    async with rig() as site:
        site.idp.expires_in = 0
        tokens = await site.tokens()
        site.idp.refuses = "invalid_grant"
        refused = await site.refresh(tokens["client_id"], tokens["refresh_token"])
        assert json.loads(refused.body)["error"] == "invalid_grant"
        site.idp.refuses = None
        assert (await site.refresh(tokens["client_id"], tokens["refresh_token"])).status == 400


async def test_a_provider_that_is_down_ends_no_login() -> None:
    async with rig() as site:
        site.idp.expires_in = 0
        tokens = await site.tokens()
        site.idp.documents["/token"] = lambda: (500, b"{}")
        refused = await site.refresh(tokens["client_id"], tokens["refresh_token"])
        assert (refused.status, json.loads(refused.body)["error"]) == (503, "temporarily_unavailable")
        del site.idp.documents["/token"]
        assert (await site.refresh(tokens["client_id"], tokens["refresh_token"])).status == 200


# ---------------------------------------------------------------- revocation


async def test_a_revoked_token_ends_its_login_here_and_at_the_provider() -> None:
    """FastMCP #5120: the provider got the proxy's own refresh token, which it does not know."""
    for kind in ("refresh_token", "access_token"):
        async with rig() as site:
            tokens = await site.tokens()
            assert (await site.call(tokens["access_token"])).status == 200  # and is remembered
            revoked = await site.post("/revoke", {"client_id": tokens["client_id"], "token": tokens[kind]})
            assert revoked.status == 200
            assert (await site.call(tokens["access_token"])).status == 401
            assert (await site.refresh(tokens["client_id"], tokens["refresh_token"])).status == 400
            assert [form["token"] for path, form in site.idp.requests if path == "/revoke"] == [site.idp.tokens[1]]


async def test_nobody_revokes_the_token_of_another_client() -> None:
    async with rig() as site:
        tokens = await site.tokens()
        other = await site.register("https://other.test/")
        for client_id in (other, "client_" + "A" * 54):
            refused = await site.post("/revoke", {"client_id": client_id, "token": tokens["refresh_token"]})
            assert refused.status in (400, 401)
        assert (await site.call(tokens["access_token"])).status == 200
        unknown = await site.post("/revoke", {"client_id": tokens["client_id"], "token": "unknown"})
        assert unknown.status == 200  # RFC 7009 §2.2


# ---------------------------------------------------------------- registration


async def test_equal_registrations_are_one_client_whatever_the_loopback_port() -> None:
    async with rig() as site:
        ids = {await site.register(f"http://127.0.0.1:{port}/callback") for port in range(40_000, 40_060)}
        assert len(ids) == 1
        assert len({await site.register(client_name=name) for name in ("A", "B")} | ids) == 3


async def test_a_registration_lasts_as_long_as_the_keys() -> None:
    """FastMCP and others kept registrations in a store, which anybody could fill, and lost them with it."""
    port, keys = free_port(), [b"k" * 32]
    async with serve_idp() as idp:
        async with serve_proxy(idp, port=port, keys=keys) as site:
            client_id = await site.register(CALLBACK, "https://app.test/callback", "http://[::1]:5000/")
            assert await site.register("http://[::1]/", "https://app.test/callback", CALLBACK) == client_id
            assert len(client_id) < 200
        async with serve_proxy(idp, port=port, keys=[b"n" * 32, *keys]) as site:
            assert "code" in await site.login(client_id)
            assert await site.register(CALLBACK, "https://app.test/callback", "http://[::1]/") != client_id
        async with serve_proxy(idp, port=port, keys=[b"n" * 32]) as site:
            assert (await Browser().open(site.authorize_url(client_id)))[1].status == 401


async def test_an_id_of_a_client_that_was_changed_is_unknown() -> None:
    """It holds what the client has registered, so that somebody could want to add a redirect URI."""
    async with rig() as site:
        client_id = await site.register(client_name="Good")
        text = base64.urlsafe_b64decode(client_id[7:-22] + "===").decode()
        assert text == "Good\nhttp://127.0.0.1/callback"
        evil = base64.urlsafe_b64encode(f"{text}\nhttps://evil.test/".encode()).decode().rstrip("=")
        other = await site.register("https://evil.test/", client_name="Good")
        forged = [
            f"client_{evil}{client_id[-22:]}",
            f"client_{evil}{other[-22:]}",
            client_id[:-22] + other[-22:],
            client_id[:-22],
            client_id[:-1],
            f"{client_id}A",
            f"{client_id[:-22]}={client_id[-22:]}",
            client_id.swapcase(),
            client_id[7:],
            "client_" + "é" * 40,
        ]
        for tried in forged:
            _, page = await Browser().open(site.authorize_url(tried, redirect_uri="https://evil.test/"))
            assert (page.status, page.all("location")) == (401, []), tried
            assert (await site.exchange_code(tried, "x")).status == 401


async def test_a_registration_that_makes_a_long_id_is_refused() -> None:
    """16 redirect URIs of 40 characters are fine, 16 of 200 are not."""
    async with rig() as site:
        uris = [f"https://app.test/{number:023}" for number in range(16)]
        assert len(await site.register(*uris, client_name="x" * 4000)) < 1200
        body = json.dumps({"redirect_uris": [f"{uri}{'a' * 160}" for uri in uris]}).encode()
        refused = await exchange(site.port, Request("POST", "/register", (("Content-Type", "application/json"),), body))
        answer = json.loads(refused.body)
        assert (refused.status, answer["error"]) == (400, "invalid_client_metadata")
        assert "too long" in answer["error_description"]


async def test_a_request_for_the_head_of_a_page_uses_up_no_login() -> None:
    async with rig() as site:
        browser = Browser()
        response = await browser.request("GET", await upstream_url(site, browser, await site.register()))
        (callback,) = response.all("location")
        assert (await browser.request("HEAD", callback)).status == 405
        assert (await browser.request("GET", callback)).status == 303


async def test_registration_can_be_switched_off() -> None:
    async with rig(register=False) as site:
        assert (await site.post("/register", {})).status == 404
        metadata = json.loads((await site.get("/.well-known/oauth-authorization-server")).body)
        assert "registration_endpoint" not in metadata


async def test_redirect_hosts_are_a_list_of_the_operator() -> None:
    async with rig(redirect_hosts=["app.test"]) as site:
        await site.register(WEB_CALLBACK, CALLBACK)
        with pytest.raises(AssertionError, match="invalid_redirect_uri"):
            await site.register("https://evil.test/")
        with pytest.raises(AssertionError, match="invalid_redirect_uri"):
            await site.register("https://app.test.evil.test/")


async def test_redirect_hosts_count_for_clients_that_were_registered_before() -> None:
    """FastMCP #3037, #4406: a list that was made shorter did not concern what was stored already."""
    backend, port = MemoryBackend(), free_port()
    uris = (WEB_CALLBACK, "https://other.test/", "editor:/callback")
    async with serve_idp() as idp:
        async with serve_proxy(idp, backend=backend, port=port, redirect_schemes=["editor"]) as site:
            client_id = await site.register(*uris)
        async with serve_proxy(idp, backend=backend, port=port, redirect_hosts=["app.test"]) as site:
            for uri, status in zip(uris, (200, 400, 400), strict=True):
                _, page = await Browser().open(site.authorize_url(client_id, redirect_uri=uri))
                assert (page.status, page.all("location")) == (status, []), uri


async def test_redirect_hosts_count_for_clients_with_a_document() -> None:
    """FastMCP #3098: metadata documents went around the list."""
    async with rig(redirect_hosts=["app.test"]) as site:
        uris = (WEB_CALLBACK, "https://evil.test/", "https://app.test@evil.test/")
        for number, (uri, status) in enumerate(zip(uris, (200, 400, 400), strict=True)):
            client_id = publish(site, f"/clients/{number}.json", redirect_uris=[uri])
            _, page = await Browser().open(site.authorize_url(client_id, redirect_uri=uri))
            assert (page.status, page.all("location")) == (status, []), uri


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_no_endpoint_reads_a_body_without_end_whatever_the_method(method: str) -> None:
    """python-sdk #3336, Ruby SDK #520: bodies for OAuth endpoints had no limit, or only those of POST had one."""
    parts: list[bytes] = []
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        parts.append(b"x" * 1024)
        return {"type": "http.request", "body": parts[-1], "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    async with serve_idp() as idp:
        auth = OAuthProxy(provider_of(idp), url="http://127.0.0.1:1/mcp")
        for path, app in auth.routes().items():
            headers = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1:1")]
            scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b""}
            parts.clear()
            sent.clear()
            await app(scope, receive, send)
            assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"], path
            assert len(parts) <= 65, path


async def test_a_full_store_is_not_an_error_of_the_server() -> None:
    async with rig(backend=MemoryBackend(max_entries=1)) as site:
        client_id, browser = (await site.tokens())["client_id"], Browser()
        _, page = await browser.open(site.authorize_url(client_id))
        _, refused = await browser.submit(page)
        assert (refused.status, refused.all("retry-after"), refused.all("location")) == (503, ["5"], [])
        assert b"temporarily_unavailable" in refused.body


# ---------------------------------------------------------------- clients with a document


def publish(site: Rig, path: str = "/clients/app.json", **changes: Any) -> str:
    """Publish the metadata document of a client, at the provider's port. Returns the client id."""
    client_id = f"{site.idp.issuer}{path}"
    document = {"client_id": client_id, "client_name": "App", "redirect_uris": [CALLBACK], **changes}
    site.idp.documents[path] = lambda: (200, json.dumps(document).encode())
    return client_id


async def test_a_client_with_a_document_logs_in_and_the_page_names_its_owner() -> None:
    async with rig() as site:
        client_id = publish(site, redirect_uris=["http://127.0.0.1/callback"])
        _, page = await Browser().open(site.authorize_url(client_id))
        assert urlsplit(client_id).netloc in page.body.decode()
        tokens = await site.tokens(client_id)
        assert (await site.call(tokens["access_token"])).status == 200
        assert site.idp.count("/clients/app.json") == 1


async def test_a_redirect_uri_that_left_the_document_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """punkpeye/fastmcp #347: documents were remembered without end."""
    monkeypatch.setattr(documents, "_DOCUMENT_SECONDS", 0.0)
    async with rig() as site:
        client_id = publish(site)
        await site.login(client_id)
        publish(site, redirect_uris=["https://new.test/"])
        _, response = await Browser().open(site.authorize_url(client_id))
        assert (response.status, response.all("location")) == (400, [])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.1", "0", "localhost.", "a.localhost"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_on_the_internet_fetches_no_document_from_its_own_machine(scheme: str, host: str) -> None:
    """SSRF by client ids that are URLs: nobody listens to what is asked there."""
    async with serve_idp() as idp:
        auth = OAuthProxy(provider_of(idp), url="https://notes.example.com/mcp")
        request = HttpRequest("GET", f"{scheme}://{host}:{idp.port}/clients/app.json")
        with pytest.raises(AuthorizationFailed):
            await auth._fetch_for_client(request, "")
        assert idp.requests == []


async def test_documents_that_fail_are_not_fetched_again_and_again() -> None:
    async with rig() as site:
        client_id = f"{site.idp.issuer}/clients/none.json"
        for _ in range(5):
            assert (await Browser().open(site.authorize_url(client_id)))[1].status == 401
        assert site.idp.count("/clients/none.json") == 1


class Signer:
    """A client that signs assertions."""

    def __init__(self, site: Rig) -> None:
        self.site = site
        self.key: WebKey = generate_key("ES256", kid="one")
        jwks = {"keys": [public_jwk(self.key)]}
        self.client_id = publish(site, token_endpoint_auth_method="private_key_jwt", jwks=jwks)
        self.count = 0

    def claims(self, **changes: Any) -> dict[str, Any]:
        self.count += 1
        good = {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": f"{self.site.issuer}/token",
            "exp": time.time() + 60,
            "jti": str(self.count),
        }
        return {name: value for name, value in {**good, **changes}.items() if value is not None}

    async def redeem(self, assertion: str | None, **changes: str) -> Response:
        code = (await self.site.login(self.client_id))["code"]
        more = {} if assertion is None else {"client_assertion": assertion, "client_assertion_type": ASSERTION_TYPE}
        return await self.site.exchange_code(self.client_id, code, **{**more, **changes})


async def test_a_client_signs_for_the_token_endpoint_that_the_metadata_names() -> None:
    """FastMCP #4789, #4799: the expected audience had a slash too many, and no such client could log in."""
    async with rig() as site:
        signer = Signer(site)
        metadata = json.loads((await site.get("/.well-known/oauth-authorization-server")).body)
        for audience in (metadata["token_endpoint"], metadata["issuer"], [metadata["issuer"]]):
            response = await signer.redeem(sign_jwt(signer.claims(aud=audience), signer.key))
            assert response.status == 200, response


async def test_an_assertion_that_is_not_good_is_refused() -> None:
    async with rig() as site:
        signer = Signer(site)
        good = sign_jwt(signer.claims(), signer.key)
        assert (await signer.redeem(good)).status == 200
        stranger = generate_key("ES256", kid="one")
        bad = {
            "used before": good,
            "missing": None,
            "another key": sign_jwt(signer.claims(), stranger),
            "another audience": sign_jwt(signer.claims(aud="https://evil.test/token"), signer.key),
            "the resource as audience": sign_jwt(signer.claims(aud=site.resource), signer.key),
            "another issuer": sign_jwt(signer.claims(iss="https://evil.test"), signer.key),
            "another subject": sign_jwt(signer.claims(sub="https://evil.test"), signer.key),
            "expired": sign_jwt(signer.claims(exp=time.time() - 3600), signer.key),
            "valid for a day": sign_jwt(signer.claims(exp=time.time() + 86400), signer.key),
            "no expiry": sign_jwt(signer.claims(exp=None), signer.key),
            "no jti": sign_jwt(signer.claims(jti=None), signer.key),
            "alg none": "eyJhbGciOiJub25lIn0." + good.split(".")[1] + ".",
        }
        for name, assertion in bad.items():
            response = await signer.redeem(assertion)
            assert (response.status, json.loads(response.body)["error"]) == (401, "invalid_client"), name
        other_type = await signer.redeem(sign_jwt(signer.claims(), signer.key), client_assertion_type="x")
        assert other_type.status == 401


# ---------------------------------------------------------------- several replicas, keys, secrets


async def test_replicas_share_logins_codes_and_tokens(tmp_path: Any) -> None:
    """Any replica answers any request, as behind a load balancer; the URL is that of all."""
    url = f"sqlite:///{tmp_path}/state.db"
    async with (
        serve_idp() as idp,
        serve_proxy(idp, backend=url) as first,
        serve_proxy(idp, backend=url, url=first.resource) as second,
    ):
        client_id, browser = await first.register(), Browser()
        response = await browser.request("GET", await upstream_url(first, browser, client_id))
        (callback,) = response.all("location")
        browser.cookies[second.port] = browser.cookies[first.port]
        response = await browser.request("GET", callback.replace(f":{first.port}/", f":{second.port}/"))
        answer = query_of(response.all("location")[0])
        response = await second.exchange_code(client_id, answer["code"], resource=first.resource)
        tokens = json.loads(response.body)
        assert response.status == 200, response
        for site in (first, second):
            assert (await site.call(tokens["access_token"])).status == 200
        idp.expires_in = 0
        both = [site.refresh(client_id, tokens["refresh_token"]) for site in (first, second) * 4]
        assert {answer.status for answer in await asyncio.gather(*both)} == {200}
        await second.post("/revoke", {"client_id": client_id, "token": tokens["refresh_token"]})
        assert (await first.refresh(client_id, tokens["refresh_token"])).status == 400


def sqlite_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("gemel-sqlite")]


async def test_a_backend_that_was_named_is_closed_with_the_server_and_opened_again(tmp_path: Any) -> None:
    url, own, before = f"sqlite:///{tmp_path}/state.db", SqliteBackend(tmp_path / "own.db"), sqlite_threads()
    async with serve_idp() as idp:
        async with serve_proxy(idp, backend=url) as site:
            tokens = await site.tokens()
            assert len(sqlite_threads()) > len(before)
        async with asyncio.timeout(5):
            while len(sqlite_threads()) > len(before):  # noqa: ASYNC110 - a thread
                await asyncio.sleep(0.01)
        auth = site.auth
        async with serve_app(Server("notes", auth=auth), site.port):
            assert (await site.refresh(tokens["client_id"], tokens["refresh_token"])).status == 200
        async with serve_proxy(idp, backend=own):
            pass
    await own.set("key", b"value")
    await own.close()


async def test_one_of_many_refreshes_asks_the_provider() -> None:
    async with rig() as site:
        site.idp.expires_in = 0
        tokens = await site.tokens()
        before = site.idp.count("/token")
        answers = await asyncio.gather(*(site.refresh(tokens["client_id"], tokens["refresh_token"]) for _ in range(10)))
        assert {answer.status for answer in answers} == {200}
        assert site.idp.count("/token") == before + 1


async def test_keys_are_changed_without_ending_logins() -> None:
    backend, old, new = MemoryBackend(), b"o" * 32, b"n" * 32
    async with serve_idp() as idp:
        async with serve_proxy(idp, backend=backend, keys=[old]) as site:
            tokens, port = await site.tokens(), site.port
        async with serve_proxy(idp, backend=backend, keys=[new, old], port=port) as site:
            assert (await site.call(tokens["access_token"])).status == 200
            fresh = json.loads((await site.refresh(tokens["client_id"], tokens["refresh_token"])).body)
            client_id = await site.register()
        async with serve_proxy(idp, backend=backend, keys=[new], port=port) as site:
            assert (await site.call(fresh["access_token"])).status == 200
            assert (await site.call(tokens["access_token"])).status == 401
            assert "code" in await site.login(client_id)


async def test_the_store_holds_nothing_that_can_be_read() -> None:
    class Spy(MemoryBackend):
        seen: list[bytes]

        async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
            self.seen.append(key.encode() + value)
            assert ttl is not None  # everything expires
            await super().set(key, value, ttl=ttl)

    backend = Spy()
    backend.seen = []
    async with rig(backend=backend, remember_consent=60) as site:
        answer = await site.login(client_id := await site.register())
        tokens = json.loads((await site.exchange_code(client_id, answer["code"])).body)
        await site.refresh(client_id, tokens["refresh_token"])
        stored = b"\n".join(backend.seen)
        own = (answer["code"], tokens["access_token"], tokens["refresh_token"])
        for secret in (client_id, "Ada", "user-1", CALLBACK, "state-of-the-client", SECRET, *own, *site.idp.tokens):
            assert str(secret).encode() not in stored


async def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(0):
        async with rig(grace=0) as site:
            client_id, browser = await site.register(), Browser()
            answer = await site.login(client_id, browser)
            tokens = json.loads((await site.exchange_code(client_id, answer["code"])).body)
            await site.exchange_code(client_id, answer["code"])
            await site.refresh(client_id, tokens["refresh_token"])
            site.idp.refuses = "invalid_grant"
            await site.login(client_id, browser)
            site.idp.answer = lambda parameters: {"state": parameters["state"], "error": "x"}
            await site.login(client_id, browser)
            secrets = [SECRET, answer["code"], tokens["access_token"], tokens["refresh_token"], *site.idp.tokens]
            secrets += browser.cookies[site.port].values()
            for path, form in site.idp.requests:
                secrets += [form[name] for name in ("state", "code", "code_verifier") if path != "/x" and name in form]
    assert caplog.records
    assert [secret for secret in secrets if secret in caplog.text] == []


async def test_a_failure_of_the_store_is_an_error_without_details() -> None:
    class Broken(MemoryBackend):
        is_broken = False

        async def get(self, key: str) -> bytes | None:
            if self.is_broken:
                raise RuntimeError("canary: the password of the database")
            return await super().get(key)

    backend = Broken()
    async with rig(backend=backend) as site:
        client_id, browser = await site.register(), Browser()
        code = (await site.login(client_id))["code"]
        tokens = await site.tokens(client_id)
        response = await browser.request("GET", await upstream_url(site, browser, client_id))
        backend.is_broken = True
        responses = [
            await site.exchange_code(client_id, code),
            await site.refresh(client_id, tokens["refresh_token"]),
            await browser.request("GET", response.all("location")[0]),
        ]
        for response in responses:
            assert response.status == 500
            assert b"canary" not in response.body
            assert not re.search(rb"Traceback|\.py", response.body)
