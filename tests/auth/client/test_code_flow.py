"""The authorization request, the check of its response, registration: pure functions and flows fed by hand."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest

from gemel import AuthorizationFailed, DefinitionError
from gemel.auth import OAuth, client_metadata
from gemel.auth.client.code_flow import Authorization, begin, read_redirect, redeem, refresh
from gemel.auth.client.discovery import Discovered
from gemel.auth.client.registration import ClientPlan, application_type, choose_client, register
from gemel.auth.client.token_request import IssuerOptions, RegisteredClient, TokenRequestFailed
from gemel.auth.client.tokens import Tokens
from gemel.auth.flow import Flow, HttpRequest, HttpResponse
from gemel.auth.metadata import AuthorizationServer

ISSUER = "https://login.example.com"
REDIRECT = "http://localhost:8765/callback"
CLIENT = RegisteredClient(client_id="c1", redirect_uris=(REDIRECT,))


def discovered(**members: Any) -> Discovered:
    values: dict[str, Any] = {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/authorize?tenant=1",
        "token_endpoint": f"{ISSUER}/token",
        "code_challenge_methods_supported": ["plain", "S256"],
    }
    return Discovered(resource="https://mcp.example.com/mcp", server=AuthorizationServer(**{**values, **members}))


def answered(flow: Flow[Any], *answers: HttpResponse) -> tuple[Any, list[HttpRequest]]:
    """Feed a flow with answers; its result and its requests."""
    requests = [next(flow)]
    try:
        for answer in answers:
            requests.append(flow.send(answer))
    except StopIteration as done:
        return done.value, requests
    raise AssertionError(f"the flow goes on: {requests}")


def reply(content: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, {}, json.dumps(content).encode())


def form_of(request: HttpRequest) -> dict[str, str]:
    assert request.body is not None
    return dict(parse_qsl(request.body.decode()))


# --- the request ------------------------------------------------------------------------------------------------------


def test_the_request_has_pkce_state_and_resource() -> None:
    """AUTHC-08, AUTHC-10, AUTHC-18."""
    found = discovered()
    first, second = (begin(found, CLIENT, REDIRECT, ("a", "b")) for _ in range(2))
    query = parse_qs(urlsplit(first.url).query)
    digest = urlsafe_b64encode(sha256(first.verifier.encode()).digest()).rstrip(b"=").decode()
    assert query == {
        "tenant": ["1"],
        "response_type": ["code"],
        "client_id": ["c1"],
        "redirect_uri": [REDIRECT],
        "state": [first.state],
        "code_challenge": [digest],
        "code_challenge_method": ["S256"],
        "resource": [found.resource],
        "scope": ["a b"],
    }
    assert first.issuer == ISSUER
    assert len(first.verifier) >= 43
    assert len(first.state) >= 43
    assert len({first.state, second.state, first.verifier, second.verifier}) == 4
    assert not {first.state, first.verifier} & set(repr(first).split())


def test_without_scopes_the_parameter_is_left_out() -> None:
    """AUTHC-14."""
    assert "scope" not in parse_qs(urlsplit(begin(discovered(), CLIENT, REDIRECT, ()).url).query)


@pytest.mark.parametrize("methods", [None, [], ["plain"], ["s256"]])
def test_without_s256_nobody_logs_in(methods: list[str] | None) -> None:
    """AUTHC-09."""
    with pytest.raises(AuthorizationFailed, match="PKCE"):
        begin(discovered(code_challenge_methods_supported=methods), CLIENT, REDIRECT, ())


def test_pkce_is_assumed_only_where_the_user_says_so_and_the_metadata_nothing() -> None:
    options = IssuerOptions(assume_pkce=True)
    url = begin(discovered(code_challenge_methods_supported=None), CLIENT, REDIRECT, (), options).url
    assert parse_qs(urlsplit(url).query)["code_challenge_method"] == ["S256"]
    for methods in ([], ["plain"]):
        with pytest.raises(AuthorizationFailed, match="PKCE"):
            begin(discovered(code_challenge_methods_supported=methods), CLIENT, REDIRECT, (), options)


def test_offline_access_asks_for_consent() -> None:
    assert parse_qs(urlsplit(begin(discovered(), CLIENT, REDIRECT, ("offline_access",)).url).query)["prompt"] == [
        "consent"
    ]


# --- the response -----------------------------------------------------------------------------------------------------


def response_to(authorization: Authorization, **fields: str | None) -> str:
    sent = {"code": "c0de", "state": authorization.state, **fields}
    return f"{REDIRECT}?{urlencode({name: value for name, value in sent.items() if value is not None})}"


@pytest.mark.parametrize(
    ("is_promised", "iss", "is_right"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, "https://evil.example.com", False),
        (False, ISSUER, True),
        (False, None, True),
        (False, "https://evil.example.com", False),
        (True, f"{ISSUER}/", False),
        (True, f"{ISSUER}:443", False),
        (True, "HTTPS://login.example.com", False),
        (True, "https://LOGIN.example.com", False),
        (True, "https://login.exam%70le.com", False),
        (True, "", False),
    ],
)
def test_the_issuer_of_the_response_is_compared_plainly(is_promised: bool, iss: str | None, is_right: bool) -> None:
    """AUTHC-19, AUTHC-20."""
    found = discovered(authorization_response_iss_parameter_supported=is_promised)
    authorization = begin(found, CLIENT, REDIRECT, ())
    if is_right:
        assert read_redirect(authorization, response_to(authorization, iss=iss)) == "c0de"
        return
    for fields in ({}, {"code": None, "error": "canary", "error_description": "canary"}):
        with pytest.raises(AuthorizationFailed) as caught:
            read_redirect(authorization, response_to(authorization, iss=iss, **fields))
        assert not isinstance(caught.value, TokenRequestFailed)
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize("state", ["other", "", None])
def test_a_response_to_another_request_is_dropped(state: str | None) -> None:
    """AUTHC-21."""
    authorization = begin(discovered(), CLIENT, REDIRECT, ())
    with pytest.raises(AuthorizationFailed, match="another login"):
        read_redirect(authorization, response_to(authorization, state=state))


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_the_code_is_exchanged_with_the_verifier_and_the_same_resource() -> None:
    """AUTHC-10."""
    found = discovered()
    authorization = begin(found, CLIENT, REDIRECT, ("a",))
    answer = reply({"access_token": "t", "token_type": "bearer", "expires_in": 60})
    tokens, (request,) = answered(redeem(authorization, "c0de", found, CLIENT), answer)
    assert request.url == found.server.token_endpoint
    assert form_of(request) == {
        "grant_type": "authorization_code",
        "code": "c0de",
        "redirect_uri": REDIRECT,
        "code_verifier": authorization.verifier,
        "resource": found.resource,
        "client_id": "c1",
    }
    assert (tokens.access_token, tokens.token_type, tokens.scopes) == ("t", "Bearer", ("a",))


@pytest.mark.parametrize(("named", "granted"), [({}, ("a", "b")), ({"scope": "a"}, ("a",)), ({"scope": ""}, ())])
def test_the_scopes_are_those_that_were_granted(named: dict[str, str], granted: tuple[str, ...]) -> None:
    """RFC 6749 §5.1: a response that names none grants what was requested."""
    found = discovered()
    authorization = begin(found, CLIENT, REDIRECT, ("a", "b"))
    tokens, _ = answered(redeem(authorization, "c0de", found, CLIENT), reply({"access_token": "t", **named}))
    assert tokens.scopes == granted


@pytest.mark.parametrize(
    ("methods", "registered", "expected"),
    [
        (["client_secret_basic"], None, "basic"),
        (["client_secret_post"], None, "post"),
        (None, None, "basic"),
        (["client_secret_post", "client_secret_basic"], None, "basic"),
        (["client_secret_basic", "client_secret_post"], "client_secret_post", "post"),
    ],
)
def test_a_client_authenticates_as_the_server_supports(methods: Any, registered: Any, expected: str) -> None:
    client = RegisteredClient(client_id="c:1", client_secret="s&2", token_endpoint_auth_method=registered)
    found = discovered(token_endpoint_auth_methods_supported=methods)
    authorization = begin(found, client, REDIRECT, ())
    answer = reply({"access_token": "t", "token_type": "Bearer"})
    _, (request,) = answered(redeem(authorization, "c0de", found, client), answer)
    headers = dict(request.headers)
    if expected == "basic":
        assert b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == "c%3A1:s%262"
        assert "client_secret" not in form_of(request)
    else:
        assert "Authorization" not in headers
        assert form_of(request)["client_secret"] == "s&2"


def test_tokens_are_refreshed_for_the_same_resource() -> None:
    old = Tokens(access_token="a", refresh_token="r", token_endpoint=f"{ISSUER}/token", issuer=ISSUER)
    answer = reply({"access_token": "t", "token_type": "Bearer"})
    tokens, (request,) = answered(refresh(old, CLIENT, "https://mcp.example.com/mcp"), answer)
    expected = {
        "grant_type": "refresh_token",
        "refresh_token": "r",
        "resource": "https://mcp.example.com/mcp",
        "client_id": "c1",
    }
    assert form_of(request) == expected
    assert tokens.access_token == "t"


# --- registration -----------------------------------------------------------------------------------------------------

PLAN = ClientPlan(redirect_uris=(REDIRECT,))
DOCUMENT = "https://app.example.com/client.json"


def test_the_order_of_the_ways_to_be_known() -> None:
    """AUTHC-22, AUTHC-23: registered before, a document, registered now, ask the user."""
    own = RegisteredClient(client_id="own")
    stored = RegisteredClient(client_id="stored", redirect_uris=(REDIRECT,))
    with_documents = discovered(client_id_metadata_document_supported=True)
    everything = ClientPlan(redirect_uris=(REDIRECT,), registered=own, metadata_url=DOCUMENT)
    by_document = ClientPlan(redirect_uris=(REDIRECT,), metadata_url=DOCUMENT)
    assert choose_client(with_documents, everything, stored, 0) is own
    chosen = choose_client(with_documents, by_document, stored, 0)
    assert chosen is not None
    assert chosen.client_id == DOCUMENT
    assert choose_client(discovered(), by_document, stored, 0) is stored
    assert choose_client(discovered(), by_document, None, 0) is None
    with pytest.raises(AuthorizationFailed, match="registers no clients by itself"):
        next(register(discovered(), PLAN))


def test_a_registration_is_used_only_as_long_as_it_fits() -> None:
    stored = RegisteredClient(client_id="s", redirect_uris=(REDIRECT,), client_secret_expires_at=100)
    assert choose_client(discovered(), PLAN, stored, 99) is stored
    assert choose_client(discovered(), PLAN, stored, 100) is None
    assert choose_client(discovered(), ClientPlan(redirect_uris=("http://localhost:1/callback",)), stored, 0) is None


def test_a_registration_says_what_the_client_is() -> None:
    """AUTHC-24, AUTHC-25, AUTHC-27."""
    found = discovered(registration_endpoint=f"{ISSUER}/register", token_endpoint_auth_methods_supported=["none"])
    answer = reply({"client_id": "new"}, 201)
    client, (request,) = answered(
        register(found, ClientPlan(redirect_uris=(REDIRECT,), name="App", scopes=("a",))), answer
    )
    assert request.body is not None
    assert json.loads(request.body) == {
        "client_name": "App",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        "scope": "a",
    }
    assert client == RegisteredClient(client_id="new", redirect_uris=(REDIRECT,))


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        (REDIRECT, "native"),
        ("http://127.0.0.1/x", "native"),
        ("http://[::1]:1/x", "native"),
        ("com.example.app:/callback", "native"),
        ("https://app.example.com/callback", "web"),
    ],
)
def test_the_application_type_follows_from_the_redirect(uri: str, kind: str) -> None:
    """AUTHC-25."""
    assert application_type([uri]) == kind


def test_a_refused_redirect_uri_is_explained() -> None:
    """AUTHC-25."""
    found = discovered(registration_endpoint=f"{ISSUER}/register")
    with pytest.raises(AuthorizationFailed, match=rf"The redirect URI is {REDIRECT}: use another one"):
        answered(register(found, PLAN), reply({"error": "invalid_redirect_uri"}, 400))


def test_a_server_that_wants_a_secret_gets_another_wish() -> None:
    found = discovered(registration_endpoint=f"{ISSUER}/register")
    answers = reply({"error": "invalid_client_metadata"}, 400), reply({"client_id": "c", "client_secret": "s"}, 201)
    client, requests = answered(register(found, PLAN), *answers)
    methods = [json.loads(request.body or b"")["token_endpoint_auth_method"] for request in requests]
    assert methods == ["none", "client_secret_basic"]
    assert (client.client_secret, client.token_endpoint_auth_method) == ("s", "client_secret_basic")


def test_a_client_metadata_document_names_itself() -> None:
    """AUTHC-23."""
    document = json.loads(
        client_metadata(DOCUMENT, name="App", redirect_uris=[REDIRECT], logo_uri="https://x.example/")
    )
    assert document["client_id"] == DOCUMENT
    assert (document["client_name"], document["redirect_uris"]) == ("App", [REDIRECT])
    with pytest.raises(DefinitionError, match="not valid"):
        client_metadata(DOCUMENT, name="App", redirect_uris=[REDIRECT], contacts="me")


@pytest.mark.parametrize(
    "url",
    [
        "http://app.example.com/client.json",
        "https://app.example.com",
        "https://app.example.com/",
        "https://app.example.com/a#b",
        "https://me@app.example.com/a",
        "https://app.example.com/a/../b",
        "app.example.com/a",
        "",
    ],
)
def test_the_id_of_a_document_is_an_https_url_with_a_path(url: str) -> None:
    """AUTHC-23."""
    with pytest.raises(DefinitionError, match="needs an https URL with a path"):
        OAuth(client_metadata_url=url)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(DefinitionError, match="client_secret needs client_id"):
        OAuth(client_secret="s")
    with pytest.raises(DefinitionError, match="lists"):
        OAuth(scopes="notes")
