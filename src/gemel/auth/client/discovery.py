"""Find the authorization server of an MCP server: protected resource metadata, then the metadata of the issuer.

Specification: Authorization, sections "Authorization Server Location" and "Authorization Server Metadata Discovery".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

import msgspec

from gemel.auth.challenge import Challenge
from gemel.auth.flow import Flow, HttpRequest, HttpResponse
from gemel.auth.metadata import (
    AuthorizationServer,
    MetadataT,
    ProtectedResource,
    authorization_server_urls,
    canonical_resource,
    protected_resource_urls,
    read_document,
)
from gemel.auth.url_rules import UrlRules, describe, parse_url
from gemel.errors import AuthorizationFailed, shorten
from gemel.schema.revisions import HANDSHAKE_REVISIONS, V2025_03

#: Authorization servers of a resource that are looked at.
MAX_SERVERS = 16
#: Endpoints that get secrets or are opened in a browser.
_ENDPOINTS = (
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "device_authorization_endpoint",
    "revocation_endpoint",
)
_HEADERS = (("Accept", "application/json"), ("MCP-Protocol-Version", HANDSHAKE_REVISIONS[-1]))


class Discovered(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the authorization of an MCP server.

    Attributes:
        resource: The identifier of the MCP server, to be sent as it is.
        server: The authorization server.
        scopes_supported: The scopes that the MCP server names.
        has_metadata: Whether the authorization server has metadata; without it the endpoints have the default paths.
    """

    resource: str
    server: AuthorizationServer
    scopes_supported: tuple[str, ...] = ()
    has_metadata: bool = True

    @property
    def issuer(self) -> str:
        """The issuer, as it was validated."""
        return self.server.issuer


def discover(
    url: str,
    rules: UrlRules,
    challenge: Challenge | None = None,
    *,
    issuer: str | None = None,
    accept_issuers: Collection[str] = (),
) -> Flow[Discovered]:
    """Find the authorization server of an MCP server.

    Args:
        url: The URL of the MCP server.
        rules: Which URLs may be used.
        challenge: The challenge of a refusal, which may say where the metadata is.
        issuer: The only authorization server that is accepted; by default the first one that the MCP server names.
        accept_issuers: Issuers that metadata may name although it was requested for another one.

    Returns:
        The flow; its result is what was found.

    Raises:
        AuthorizationFailed: There is no authorization server, or a document is not valid.
        UrlRefused: A document names a URL that must not be used.
    """
    resource = yield from _resource_metadata(url, challenge)
    servers = [] if resource is None else (resource.authorization_servers or [])[:MAX_SERVERS]
    if resource is None or not servers:
        return (yield from _base_server(url, rules, issuer, accept_issuers))
    if issuer is not None and issuer not in servers:
        names = ", ".join(map(shorten, servers))
        raise AuthorizationFailed(
            f"{url} is not authorized by the issuer {issuer}, which the client is for, but by {names}"
        )
    server = yield from server_metadata(issuer or servers[0], rules, accept_issuers=accept_issuers)
    return Discovered(
        resource=resource.resource, server=server, scopes_supported=tuple(resource.scopes_supported or ())
    )


def _resource_metadata(url: str, challenge: Challenge | None) -> Flow[ProtectedResource | None]:
    named = challenge.parameters.get("resource_metadata") if challenge is not None else None
    places = ([named] if named else []) + protected_resource_urls(url)
    for place in dict.fromkeys(places):
        document = yield from _document(place, ProtectedResource)
        if document is not None:
            if not covers(document.resource, url):
                raise AuthorizationFailed(
                    f"{describe(place)} describes the resource {shorten(document.resource)!r}, which is not {url}"
                )
            return document
    return None


def covers(resource: str, url: str) -> bool:
    """Whether a resource identifier means an MCP server: its URL, or a parent path at the same origin.

    RFC 9728, section 3.3, wants them to be identical; many servers publish their origin, which other clients accept.

    Args:
        resource: The identifier that metadata names.
        url: The URL of the MCP server.
    """
    try:
        theirs, ours = urlsplit(canonical_resource(resource)), urlsplit(canonical_resource(url))
    except ValueError:
        return False
    if (theirs.scheme, theirs.netloc) != (ours.scheme, ours.netloc):
        return False
    if theirs.query:
        return (theirs.path, theirs.query) == (ours.path, ours.query)
    parent = theirs.path.rstrip("/")
    return ours.path == theirs.path or ours.path.rstrip("/") == parent or ours.path.startswith(f"{parent}/")


def server_metadata(
    issuer: str, rules: UrlRules, *, accept_issuers: Collection[str] = (), revision: str | None = None
) -> Flow[AuthorizationServer]:
    """Fetch and check the metadata of an authorization server.

    Args:
        issuer: The issuer.
        rules: Which URLs may be used.
        accept_issuers: Issuers that the document may name instead.
        revision: The protocol revision, if only its forms of metadata are to be tried.

    Returns:
        The flow; its result is the metadata.

    Raises:
        AuthorizationFailed: There is none, or it belongs to another issuer.
        UrlRefused: The issuer or an endpoint is a URL that must not be used.
    """
    rules.check(issuer)
    try:
        places = authorization_server_urls(issuer) if revision is None else authorization_server_urls(issuer, revision)
    except ValueError as exc:
        raise AuthorizationFailed(f"The issuer is not valid: {exc}") from None
    server = yield from _first(places, AuthorizationServer)
    if server is None:
        raise AuthorizationFailed(f"The authorization server {describe(issuer)} has no metadata")
    check_issuer(server.issuer, [issuer], accept_issuers)
    check_endpoints(server, rules)
    return server


def check_issuer(issuer: str, expected: Iterable[str], accept_issuers: Collection[str]) -> None:
    """Check the issuer in a metadata document, character by character (RFC 8414, section 3.3).

    Args:
        issuer: The issuer that the document names.
        expected: The issuers that are right.
        accept_issuers: Those that the user accepts as well.

    Raises:
        AuthorizationFailed: It is another one.
    """
    names = list(expected)
    if issuer not in names and issuer not in accept_issuers:
        raise AuthorizationFailed(
            f"The metadata of the authorization server {shorten(names[0])!r} names the issuer {shorten(issuer)!r}. If both are "
            "the same server, allow it: OAuth(accept_issuers=[…])"
        )


def check_endpoints(server: AuthorizationServer, rules: UrlRules) -> None:
    """Check the endpoints that metadata names.

    Args:
        server: The metadata.
        rules: Which URLs may be used.

    Raises:
        UrlRefused: An endpoint must not be used.
    """
    for name in _ENDPOINTS:
        endpoint: str | None = getattr(server, name)
        if endpoint is not None:
            rules.check_endpoint(endpoint)


def _base_server(url: str, rules: UrlRules, issuer: str | None, accept_issuers: Collection[str]) -> Flow[Discovered]:
    """A server without resource metadata: it authorizes itself, at its base URL (revision 2025-03-26)."""
    target = parse_url(url)
    base = f"{target.scheme}://{target.authority}"
    if issuer not in (None, base, f"{base}/"):  # its metadata would be the word of the MCP server
        raise AuthorizationFailed(f"{url} names no authorization server, and the client is for the issuer {issuer}")
    server = yield from _first(authorization_server_urls(url, V2025_03), AuthorizationServer)
    has_metadata = server is not None
    if server is None:
        server = AuthorizationServer(
            issuer=base,
            authorization_endpoint=f"{base}/authorize",
            token_endpoint=f"{base}/token",
            registration_endpoint=f"{base}/register",
        )
    check_issuer(server.issuer, [base, f"{base}/"], accept_issuers)
    if issuer not in (None, server.issuer):
        raise AuthorizationFailed(f"{url} names no authorization server, and the client is for the issuer {issuer}")
    check_endpoints(server, rules)
    return Discovered(resource=canonical_resource(url), server=server, has_metadata=has_metadata)


def _first(places: Iterable[str], kind: type[MetadataT]) -> Flow[MetadataT | None]:
    for place in places:
        document = yield from _document(place, kind)
        if document is not None:
            return document
    return None


def _document(place: str, kind: type[MetadataT]) -> Flow[MetadataT | None]:
    """Fetch a document; None if there is none. A server that is overloaded or broken ends the discovery."""
    response: HttpResponse = yield HttpRequest("GET", place, _HEADERS)
    if response.status == 429 or response.status >= 500:
        raise AuthorizationFailed(f"The metadata at {describe(place)} can't be read now: HTTP {response.status}")
    if response.status != 200:
        return None
    try:
        return read_document(response.body, kind)
    except ValueError:
        return None  # such as the page that a web application sends for every path
