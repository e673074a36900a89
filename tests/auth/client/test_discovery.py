"""Where the client looks for the authorization server, in which order, and what stops it. No network: flows are fed by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gemel import AuthorizationFailed
from gemel.auth.challenge import Challenge
from gemel.auth.client.discovery import Discovered, covers, discover
from gemel.auth.flow import Flow, HttpRequest, HttpResponse
from gemel.auth.url_rules import UrlRules

SERVER = "https://mcp.example.com"
URL = f"{SERVER}/mcp"
AT_PATH = f"{SERVER}/.well-known/oauth-protected-resource/mcp"
AT_ROOT = f"{SERVER}/.well-known/oauth-protected-resource"
BASE = f"{SERVER}/.well-known/oauth-authorization-server"
RULES = UrlRules(URL)
ISSUER = "https://login.example.com"


def authority(issuer: str = ISSUER, **members: Any) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "code_challenge_methods_supported": ["S256"],
        **members,
    }


def resource(issuer: str = ISSUER, **members: Any) -> dict[str, Any]:
    return {"resource": URL, "authorization_servers": [issuer], **members}


def run(flow: Flow[Discovered], site: Mapping[str, Any]) -> tuple[Discovered | AuthorizationFailed, list[HttpRequest]]:
    """Feed a flow from a site: documents by URL, a status or an exception for an error, 404 for all others."""
    asked: list[HttpRequest] = []
    try:
        request = next(flow)
        while True:
            asked.append(request)
            document = site.get(request.url, 404)
            if isinstance(document, AuthorizationFailed):
                request = flow.throw(document)
                continue
            is_status = isinstance(document, int)
            response = HttpResponse(document) if is_status else HttpResponse(200, {}, json.dumps(document).encode())
            request = flow.send(response)
    except StopIteration as done:
        return done.value, asked
    except AuthorizationFailed as exc:
        return exc, asked


def found(site: Mapping[str, Any], challenge: Challenge | None = None, **options: Any) -> tuple[Discovered, list[str]]:
    result, asked = run(discover(URL, RULES, challenge, **options), site)
    assert isinstance(result, Discovered), result
    return result, [request.url for request in asked]


def failure_of(site: Mapping[str, Any], challenge: Challenge | None = None, **options: Any) -> tuple[str, list[str]]:
    result, asked = run(discover(URL, RULES, challenge, **options), site)
    assert isinstance(result, AuthorizationFailed), result
    return str(result), [request.url for request in asked]


def test_the_challenge_says_where_the_metadata_is() -> None:
    """AUTHC-02."""
    place = f"{SERVER}/custom/metadata.json"
    challenge = Challenge("bearer", {"resource_metadata": place})
    site = {
        place: resource(),
        AT_PATH: resource("https://other.example.com"),
        f"{ISSUER}/.well-known/oauth-authorization-server": authority(),
    }
    result, asked = found(site, challenge)
    assert result.issuer == ISSUER
    assert asked == [place, f"{ISSUER}/.well-known/oauth-authorization-server"]


def test_without_it_the_path_comes_before_the_root() -> None:
    """AUTHC-03."""
    metadata = {f"{ISSUER}/.well-known/oauth-authorization-server": authority()}
    assert found({AT_PATH: resource(), AT_ROOT: resource(), **metadata})[1][0:1] == [AT_PATH]
    assert found({AT_ROOT: resource(), **metadata})[1][0:2] == [AT_PATH, AT_ROOT]


@pytest.mark.parametrize(
    ("issuer", "places"),
    [
        (
            ISSUER,
            [f"{ISSUER}/.well-known/oauth-authorization-server", f"{ISSUER}/.well-known/openid-configuration"],
        ),
        (
            f"{ISSUER}/tenant",
            [
                f"{ISSUER}/.well-known/oauth-authorization-server/tenant",
                f"{ISSUER}/.well-known/openid-configuration/tenant",
                f"{ISSUER}/tenant/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_the_forms_of_server_metadata_are_tried_in_order(issuer: str, places: list[str]) -> None:
    """AUTHC-04: RFC 8414 comes first, and is all that is asked for where it is served."""
    for count, place in enumerate(places, 1):
        assert found({AT_PATH: resource(issuer), place: authority(issuer)})[1][1:] == places[:count]
    text, asked = failure_of({AT_PATH: resource(issuer)})
    assert "has no metadata" in text
    assert asked[1:] == places


@pytest.mark.parametrize(
    "issuer",
    [f"{ISSUER}/", "https://LOGIN.example.com", f"{ISSUER}:443", "https://evil.example.com", f"{ISSUER}/a", ""],
)
def test_metadata_of_another_issuer_is_refused(issuer: str) -> None:
    """AUTHC-05."""
    site = {AT_PATH: resource(), f"{ISSUER}/.well-known/oauth-authorization-server": authority(issuer)}
    assert "names the issuer" in failure_of(site)[0]


def test_a_document_of_another_resource_comes_before_places_without_one() -> None:
    text, asked = failure_of({AT_ROOT: resource() | {"resource": "https://notes.example.com/mcp"}})
    assert asked == [AT_PATH, AT_ROOT]
    assert text.index("describes the resource 'https://notes.example.com/mcp'") < text.index("answers HTTP 404")


def test_another_issuer_can_be_accepted_explicitly() -> None:
    other = f"{ISSUER}/"
    site = {AT_PATH: resource(), f"{ISSUER}/.well-known/oauth-authorization-server": authority(other)}
    assert found(site, accept_issuers={other})[0].issuer == other
    assert "names the issuer" in failure_of(site, accept_issuers={"https://evil.example.com"})[0]


def test_a_server_without_resource_metadata_authorizes_itself() -> None:
    """AUTHC-07."""
    result, asked = found({BASE: authority(SERVER)})
    assert (result.resource, result.issuer) == (URL, SERVER)
    assert asked == [AT_PATH, AT_ROOT, BASE]
    result, asked = found({})
    assert asked == [AT_PATH, AT_ROOT, BASE]
    server = result.server
    endpoints = (server.authorization_endpoint, server.token_endpoint, server.registration_endpoint)
    assert endpoints == (f"{SERVER}/authorize", f"{SERVER}/token", f"{SERVER}/register")
    assert found({BASE: authority(f"{SERVER}/")})[0].issuer == f"{SERVER}/"
    assert "names the issuer" in failure_of({BASE: authority()})[0]


def test_requests_name_the_protocol_version() -> None:
    """AUTHC-07."""
    _, asked = run(discover(URL, RULES), {})
    assert all(("MCP-Protocol-Version", "2025-11-25") in request.headers for request in asked)


@pytest.mark.parametrize("failure", [429, 500, 503, AuthorizationFailed("no answer")])
def test_a_place_that_fails_is_not_taken_for_one_without_metadata(failure: Any) -> None:
    """The default paths of a server without metadata are not used, and the error names each place."""
    text, asked = failure_of({AT_PATH: failure})
    assert asked == [AT_PATH, AT_ROOT, BASE]
    assert "no answer" in text if isinstance(failure, AuthorizationFailed) else f"HTTP {failure}" in text
    assert text.count("HTTP 404") == 2


@pytest.mark.parametrize("failure", [301, 401, 403, 404, 429, 500, 502, [], "a page", {"resource": 1, "issuer": 1}])
def test_a_document_is_looked_for_at_each_place(failure: Any) -> None:
    openid, metadata = f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/.well-known/oauth-authorization-server"
    assert found({AT_PATH: failure, AT_ROOT: resource(), metadata: failure, openid: authority()})[0].issuer == ISSUER
    assert found({AT_PATH: failure, BASE: authority(SERVER)})[0].issuer == SERVER
    challenge = Challenge("bearer", {"resource_metadata": f"{SERVER}/elsewhere"})
    assert (
        found({AT_PATH: resource(), f"{SERVER}/elsewhere": failure, metadata: authority()}, challenge)[0].issuer
        == ISSUER
    )


def test_a_place_that_gives_no_answer_is_passed_over() -> None:
    away = AuthorizationFailed("GET: no answer within 10 s")
    metadata = f"{ISSUER}/.well-known/openid-configuration"
    site = {AT_PATH: away, AT_ROOT: resource(), f"{ISSUER}/.well-known/oauth-authorization-server": away}
    assert found({**site, metadata: authority()})[0].issuer == ISSUER
    text, _ = failure_of(site)
    assert "no answer within 10 s" in text
    assert f"'{metadata}' answers HTTP 404" in text


@pytest.mark.parametrize("named", ["/custom", "custom", f"{SERVER}/custom"])
def test_the_challenge_may_name_the_place_by_its_path(named: str) -> None:
    site = {f"{SERVER}/custom": resource(), f"{ISSUER}/.well-known/oauth-authorization-server": authority()}
    assert found(site, Challenge("bearer", {"resource_metadata": named}))[0].issuer == ISSUER
    assert (
        "names no authorization server"
        in failure_of({}, Challenge("bearer", {"resource_metadata": "https://["}), issuer=ISSUER)[0]
    )


def test_a_document_of_another_issuer_does_not_hide_the_right_one() -> None:
    """Such as that of another tenant, at the root of a host."""
    wrong, right = f"{ISSUER}/.well-known/oauth-authorization-server", f"{ISSUER}/.well-known/openid-configuration"
    site = {AT_PATH: resource(), wrong: authority(f"{ISSUER}/"), right: authority()}
    assert found(site)[0].issuer == ISSUER


def test_the_first_authorization_server_with_valid_metadata_is_used() -> None:
    dead, insecure, good = "https://dead.example.com", "http://plain.example.com", ISSUER
    servers = [dead, insecure, "not a URL", good, "https://later.example.com"]
    metadata = {f"{good}/.well-known/oauth-authorization-server": authority()}
    result, asked = found({AT_PATH: resource(authorization_servers=servers), **metadata})
    assert result.issuer == good
    assert not any("later" in url for url in asked)
    text, _ = failure_of({AT_PATH: resource(authorization_servers=[dead, insecure])})
    assert dead in text
    assert f"'{insecure}' is not https" in text


def test_the_authorization_server_of_the_login_comes_first() -> None:
    """A login must not be lost because another server of the list is there again."""
    own = "https://own.example.com"
    site = {
        AT_PATH: resource(authorization_servers=[ISSUER, own]),
        f"{ISSUER}/.well-known/oauth-authorization-server": authority(),
        f"{own}/.well-known/oauth-authorization-server": authority(own),
        BASE: authority(SERVER),
    }
    assert found(site)[0].issuer == ISSUER
    assert found(site, preferred=own)[0].issuer == own
    assert found(site, preferred="https://former.example.com")[0].issuer == ISSUER
    assert "HTTP 503" in failure_of({**site, AT_PATH: 503}, preferred=own)[0]
    assert found({**site, AT_PATH: 503}, preferred=SERVER)[0].issuer == SERVER


@pytest.mark.parametrize(
    "members",
    [
        {"scopes_supported": "read write"},
        {"scopes_supported": [None]},
        {"service_documentation": False, "subject_types_supported": "public"},
        {"require_pushed_authorization_requests": "no"},
        {"revocation_endpoint": "/revoke"},
        {"device_authorization_endpoint": ""},
        {"registration_endpoint": "http://login.example.com/register"},
        {"registration_endpoint": 1},
    ],
)
def test_metadata_is_used_without_members_that_are_not_valid(members: dict[str, Any], caplog: Any) -> None:
    site = {AT_PATH: resource(), f"{ISSUER}/.well-known/oauth-authorization-server": authority(**members)}
    server = found(site)[0].server
    assert [getattr(server, name) for name in members] == [None] * len(members)
    assert server.token_endpoint == f"{ISSUER}/token"
    assert all(name in caplog.text for name in members)


def test_resource_metadata_is_used_without_members_that_are_not_valid() -> None:
    metadata = {f"{ISSUER}/.well-known/oauth-authorization-server": authority()}
    result, _ = found({AT_PATH: resource(scopes_supported="notes", resource_name=["Notes"]), **metadata})
    assert result.issuer == ISSUER
    assert result.scopes_supported == ()


@pytest.mark.parametrize(
    ("identifier", "url", "is_covered"),
    [
        (URL, URL, True),
        ("HTTPS://MCP.EXAMPLE.COM/mcp", URL, True),
        (f"{SERVER}:443/mcp", URL, True),
        (SERVER, URL, True),
        (f"{SERVER}/", URL, True),
        (f"{SERVER}/mcp/", URL, True),
        (f"{SERVER}/a", f"{SERVER}/a/b", True),
        (f"{SERVER}/a", f"{SERVER}/ab", False),
        (f"{SERVER}/a/b", f"{SERVER}/a", False),
        (f"{SERVER}/mcp?tenant=1", f"{SERVER}/mcp?tenant=1", True),
        (f"{SERVER}/mcp?tenant=1", f"{SERVER}/mcp?tenant=2", False),
        (f"{SERVER}/mcp?tenant=1", URL, False),
        ("http://mcp.example.com/mcp", URL, False),
        ("https://mcp.example.com:8443/mcp", URL, False),
        ("https://evil.example.com/mcp", URL, False),
        ("mcp", URL, False),
        ("", URL, False),
    ],
)
def test_metadata_must_be_for_the_server(identifier: str, url: str, is_covered: bool) -> None:
    """AUTHC-12: for its URL, or a parent path at its origin."""
    assert covers(identifier, url) == is_covered
    if url == URL and not is_covered:
        text, asked = failure_of({AT_PATH: resource(resource=identifier)})
        assert "which is not" in text
        assert asked == [AT_PATH, AT_ROOT], "another document may be right, but not that of a server without one"


def test_the_identifier_is_sent_as_it_was_published() -> None:
    metadata = {f"{ISSUER}/.well-known/oauth-authorization-server": authority()}
    for identifier in (SERVER, f"{SERVER}/", "HTTPS://mcp.example.com/mcp"):
        assert found({AT_PATH: resource(resource=identifier), **metadata})[0].resource == identifier


def test_a_client_for_one_issuer_uses_no_other() -> None:
    """AUTHC-26."""
    own = "https://own.example.com"
    site = {AT_PATH: resource(), f"{own}/.well-known/oauth-authorization-server": authority(own)}
    text, asked = failure_of(site, issuer=own)
    assert "is not authorized by the issuer" in text
    assert asked == [AT_PATH]
    several = {**site, AT_PATH: resource(authorization_servers=[ISSUER, own])}
    assert found(several, issuer=own)[0].issuer == own


def test_a_server_can_not_speak_for_the_issuer_that_a_client_is_for() -> None:
    """Official Python SDK #2988: without resource metadata, the document of the MCP server named the endpoints for secrets."""
    own = "https://own.example.com"
    site = {"https://notes.example.com/.well-known/oauth-authorization-server": authority(own)}
    text, asked = failure_of(site, issuer=own, accept_issuers={own})
    assert "names no authorization server" in text
    assert not any("oauth-authorization-server" in url for url in asked)


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
@pytest.mark.parametrize("url", ["http://login.example.com/x", "https://127.0.0.1/x", "javascript:alert(1)", "/x"])
def test_endpoints_are_https(name: str, url: str) -> None:
    """AUTHC-28."""
    site = {AT_PATH: resource(), f"{ISSUER}/.well-known/oauth-authorization-server": authority(**{name: url})}
    failure_of(site)
