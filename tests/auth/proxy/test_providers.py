"""The providers as data, and the proxy in front of those that differ from the standard."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gemel.auth.flow import Flow, HttpRequest, HttpResponse
from gemel.auth.server.proxy import providers
from gemel.auth.server.proxy.providers import Provider, accepts_issuer
from gemel.auth.server.proxy.proxy import OAuthProxy
from gemel.auth.server.proxy.upstream import (
    Endpoints,
    UpstreamRefused,
    UpstreamTokens,
    discover,
    exchange_code,
    read_user,
    refresh_tokens,
)
from gemel.errors import AuthorizationFailed, DefinitionError
from tests.auth.proxy.rig import SECRET, provider_of, rig, serve_idp, serve_proxy

APP = {"client_id": "app", "client_secret": SECRET}
ALL: dict[str, tuple[Callable[..., Provider], dict[str, Any], str | None]] = {
    "GitHub": (providers.GitHub, {}, None),
    "Google": (providers.Google, {}, "https://accounts.google.com"),
    "EntraID": (providers.EntraID, {"tenant": "contoso.com"}, "https://login.microsoftonline.com/contoso.com/v2.0"),
    "Auth0": (providers.Auth0, {"domain": "a.eu.auth0.com"}, "https://a.eu.auth0.com/"),
    "Okta": (providers.Okta, {"domain": "a.okta.com"}, "https://a.okta.com/oauth2/default"),
    "Okta, organization": (
        providers.Okta,
        {"domain": "a.okta.com", "authorization_server": None},
        "https://a.okta.com",
    ),
    "Keycloak": (providers.Keycloak, {"url": "https://id.test/auth/", "realm": "r"}, "https://id.test/auth/realms/r"),
    "Cognito": (
        providers.Cognito,
        {"user_pool": "eu-central-1_Abc"},
        "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_Abc",
    ),
    "WorkOS": (providers.WorkOS, {"domain": "a.authkit.app"}, "https://a.authkit.app"),
    "Clerk": (providers.Clerk, {"domain": "a.clerk.accounts.dev"}, "https://a.clerk.accounts.dev"),
    "OCI": (providers.OCI, {"domain": "idcs-1.identity.oraclecloud.com"}, None),
    "HuggingFace": (providers.HuggingFace, {}, "https://huggingface.co"),
    "Discord": (providers.Discord, {}, None),
    "OpenID": (providers.OpenID, {"issuer": "https://id.test"}, "https://id.test"),
}


def answered(flow: Flow[Any], *answers: HttpResponse) -> tuple[Any, list[HttpRequest]]:
    """Drive a flow with these responses. Returns its result and its requests."""
    requests, waiting = [], list(answers)
    try:
        request = next(flow)
        while True:
            requests.append(request)
            request = flow.send(waiting.pop(0))
    except StopIteration as done:
        return done.value, requests


@pytest.mark.parametrize("name", ALL)
def test_a_provider_is_one_line(name: str) -> None:
    make, options, issuer = ALL[name]
    provider = make(**APP, **options)
    assert provider.issuer == issuer
    assert SECRET not in repr(provider)
    auth = OAuthProxy(provider, url="https://notes.example.com/mcp")
    assert auth.callback_url == "https://notes.example.com/auth/callback"
    assert SECRET not in repr(auth)
    if issuer is None:
        endpoints, requests = answered(discover(provider))
        assert requests == []
        assert all(url.startswith("https://") for url in (endpoints.authorization, endpoints.token, endpoints.userinfo))
    else:
        document = {"issuer": issuer, "authorization_endpoint": f"{issuer}a", "token_endpoint": f"{issuer}t"}
        response = HttpResponse(200, {}, json.dumps(document).encode())
        endpoints, (request,) = answered(discover(provider), response)
        assert request.url == f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        assert endpoints.token == f"{issuer}t"


@pytest.mark.parametrize("name", [name for name, (_, _, issuer) in ALL.items() if issuer])
def test_the_metadata_of_another_issuer_is_refused(name: str) -> None:
    make, options, issuer = ALL[name]
    for other in ("https://evil.test", f"{issuer}/x", f"{issuer}".upper()):
        document = {
            "issuer": other,
            "authorization_endpoint": "https://evil.test/a",
            "token_endpoint": "https://evil.test/t",
        }
        with pytest.raises(AuthorizationFailed, match="of the issuer"):
            answered(discover(make(**APP, **options)), HttpResponse(200, {}, json.dumps(document).encode()))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (providers.EntraID, {"tenant": "evil.test/x"}),
        (providers.EntraID, {"tenant": ""}),
        (providers.Auth0, {"domain": "https://a.auth0.com"}),
        (providers.Okta, {"domain": "a.okta.com/"}),
        (providers.Okta, {"domain": "a.okta.com", "authorization_server": "../x"}),
        (providers.Keycloak, {"url": "https://id.test", "realm": "a/b"}),
        (providers.Cognito, {"user_pool": "pool"}),
        (providers.WorkOS, {"domain": "a@b"}),
        (providers.OpenID, {"issuer": "https://id.test", "client_id": ""}),
        (Provider, {"issuer": None}),
        (Provider, {"authorization_endpoint": "https://a.test/a", "token_endpoint": "https://a.test/t"}),
    ],
)
def test_what_is_no_name_makes_no_provider(make: Callable[..., Provider], options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        make(**{**APP, **options})


async def test_a_login_without_a_scope_that_the_provider_must_grant_is_refused() -> None:
    """Providers may grant less than was asked for (RFC 6749 §5.1), now or when tokens are renewed."""
    async with serve_idp() as idp:
        provider = msgspec.structs.replace(provider_of(idp), scopes=["openid", "repo"])
        async with serve_proxy(idp, provider=provider, provider_scopes=["repo"]) as site:
            idp.granted = "openid"
            answer = await site.login(await site.register(), None)
            assert answer["error"] == "access_denied"
            idp.granted, idp.expires_in = "openid,repo", 1
            tokens = await site.tokens()
            idp.granted = "openid"
            assert (await site.refresh(tokens["client_id"], tokens["refresh_token"])).status == 400


def test_the_scopes_of_an_own_api_at_entra_are_asked_for_and_needed() -> None:
    provider = providers.EntraID(**APP, tenant="contoso.com", api_scopes=["read"])
    assert provider.scopes[-1] == "api://app/read"
    assert provider.required_scopes == ["api://app/read"]


def test_a_scope_that_the_provider_must_grant_is_asked_for() -> None:
    with pytest.raises(DefinitionError, match="'repo' is not asked for"):
        OAuthProxy(providers.GitHub(**APP), url="https://notes.example.com/mcp", provider_scopes=["repo"])


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://notes.example.com/mcp", {}),
        ("notes.example.com/mcp", {}),
        ("https://u@notes.example.com/mcp", {}),
        ("https://notes.example.com/mcp", {"issuer": "http://notes.example.com"}),
        ("https://notes.example.com/mcp", {"issuer": "https://notes.example.com/?a=b"}),
        ("https://notes.example.com/mcp", {"keys": [b"short"]}),
        ("https://notes.example.com/mcp", {"scopes": ["a b"]}),
        ("https://notes.example.com/mcp", {"scopes": ['a"']}),
        ("https://notes.example.com/mcp", {"access_ttl": 0}),
        ("https://notes.example.com/mcp", {"grace": -1}),
    ],
)
def test_what_is_not_possible_is_said_when_the_proxy_is_made(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        OAuthProxy(providers.GitHub(**APP), url=url, **options)


async def test_a_provider_without_openid_connect_tells_the_user_at_its_userinfo_endpoint() -> None:
    async with serve_idp() as idp:
        idp.user, idp.sends_id_tokens, idp.expires_in, idp.sends_refresh_tokens = (
            {"id": 583231, "login": "ada"},
            False,
            None,
            False,
        )
        paths = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        provider = msgspec.structs.replace(
            providers.GitHub(**APP), **{f"{name}_endpoint": f"{idp.issuer}/{path}" for name, path in paths.items()}
        )
        async with serve_proxy(idp, provider=provider) as site:
            tokens = await site.tokens()
            assert "583231" in (await site.call(tokens["access_token"])).body.decode()
            assert (await site.refresh(tokens["client_id"], tokens["refresh_token"])).status == 200
            assert idp.count("/userinfo") == 1


def test_github_answers_errors_with_status_200() -> None:
    provider = providers.GitHub(**APP)
    body = b'{"error":"bad_verification_code","error_description":"x"}'
    with pytest.raises(AuthorizationFailed, match="bad_verification_code"):
        answered(exchange_code(provider, Endpoints("a", "t"), "code", "v", "r"), HttpResponse(200, {}, body))


@pytest.mark.parametrize(
    ("status", "body", "is_over"),
    [
        (200, b'{"error":"bad_refresh_token"}', True),
        (200, b'{"ok":false,"error":"invalid_refresh_token"}', True),
        (400, b'{"error":{"code":"invalid_grant"}}', True),
        (400, b'{"detail":"Invalid refresh token"}', True),
        (401, b"<html>", True),
        (403, b"<html>", False),
        (400, b'{"error":"temporarily_unavailable"}', False),
        (503, b'{"error":"invalid_grant"}', False),
        (429, b"", False),
    ],
)
def test_a_refresh_that_is_refused_ends_the_login_in_whatever_form(status: int, body: bytes, is_over: bool) -> None:
    """A login that only seemed to be renewable later could never be made anew."""
    flow = refresh_tokens(providers.GitHub(**APP), Endpoints("a", "t"), UpstreamTokens("old", "refresh-token-1"))
    with pytest.raises(AuthorizationFailed) as caught:
        answered(flow, HttpResponse(status, {}, body))
    assert isinstance(caught.value, UpstreamRefused) == is_over


def test_the_text_of_a_provider_is_shown_without_secrets() -> None:
    body = json.dumps({"error": "invalid_grant", "error_description": "unknown: refresh-token-1"}).encode()
    flow = refresh_tokens(providers.GitHub(**APP), Endpoints("a", "t"), UpstreamTokens("old", "refresh-token-1"))
    with pytest.raises(AuthorizationFailed, match=r"invalid_grant \(unknown: …\)"):
        answered(flow, HttpResponse(400, {}, body))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"<html>", b'{"access_token":1}', b'{"access_token":""}', b"[" * 100_000]
)
def test_an_answer_without_tokens_is_a_failed_login(body: bytes) -> None:
    flow = exchange_code(providers.GitHub(**APP), Endpoints("a", "t"), "code", "v", "r")
    with pytest.raises(AuthorizationFailed):
        answered(flow, HttpResponse(200, {}, body))


def discovered(provider: Provider, methods: list[str] | None) -> Endpoints:
    """The endpoints of a provider whose metadata lists these methods."""
    document = {
        "issuer": provider.issuer,
        "authorization_endpoint": "https://id.test/a",
        "token_endpoint": "https://id.test/t",
    }
    more = {} if methods is None else {"token_endpoint_auth_methods_supported": methods}
    endpoints: Endpoints
    endpoints, _ = answered(discover(provider), HttpResponse(200, {}, json.dumps({**document, **more}).encode()))
    return endpoints


@pytest.mark.parametrize(
    ("make", "methods", "place"),
    [
        ("OpenID", None, "body"),
        ("OpenID", ["client_secret_basic", "client_secret_post"], "body"),
        ("OpenID", ["client_secret_basic", "private_key_jwt"], "header"),
        ("Okta", ["client_secret_basic", "client_secret_post"], "header"),
        ("GitHub", None, "body"),
    ],
)
def test_the_secret_goes_where_the_provider_wants_it(make: str, methods: list[str] | None, place: str) -> None:
    function, options, issuer = ALL[make]
    provider = function(**APP, **options)
    endpoints = discovered(provider, methods) if issuer else Endpoints("a", "t")
    token = HttpResponse(200, {}, b'{"access_token":"a"}')
    _, (request,) = answered(exchange_code(provider, endpoints, "code", "v", "r"), token)
    assert any(name == "authorization" for name, _ in request.headers) == (place == "header")
    assert (SECRET.encode() in (request.body or b"")) == (place == "body")
    assert SECRET not in repr(request)


@pytest.mark.parametrize(
    ("iss", "tid", "accepted"),
    [
        ("https://login.microsoftonline.com/t1/v2.0", "t1", True),
        ("https://login.microsoftonline.com/t1/v2.0", "t2", False),
        ("https://login.microsoftonline.com/t1/v2.0", None, False),
        ("https://login.microsoftonline.com/organizations/v2.0", None, True),
        ("https://evil.test/t1/v2.0", "t1", False),
    ],
)
def test_tenants_of_entra_have_issuers_of_their_own(iss: str, tid: str | None, accepted: bool) -> None:
    provider = providers.EntraID(tenant="organizations", **APP)
    assert accepts_issuer(provider, iss, {"tid": tid}) is accepted


def test_a_user_without_an_id_token_and_userinfo_is_nobody() -> None:
    provider = providers.OpenID(issuer="https://id.test", **APP)
    with pytest.raises(AuthorizationFailed, match="openid"):
        answered(read_user(provider, Endpoints("a", "t"), UpstreamTokens("a"), "n"))


async def test_a_provider_that_is_down_is_said_to_the_person() -> None:
    async with rig() as site:
        site.idp.documents["/.well-known/openid-configuration"] = lambda: (500, b"")
        page = await site.get(site.authorize_url(await site.register()).removeprefix(site.issuer))
        assert page.status == 503
        assert b"identity provider" in page.body
        del site.idp.documents["/.well-known/openid-configuration"]
        assert "code" in await site.login(await site.register())
