"""Find the authorization server of an MCP server: protected resource metadata, then the metadata of the issuer.

Specification: Authorization, sections "Authorization Server Location" and "Authorization Server Metadata Discovery".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from urllib.parse import urljoin, urlsplit

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
    read_metadata,
)
from gemel.auth.url_rules import UrlRefused, UrlRules, describe, parse_url
from gemel.errors import AuthorizationFailed, shorten
from gemel.protocol.deviations import Note, log_deviation
from gemel.schema.revisions import HANDSHAKE_REVISIONS, V2025_03

#: Authorization servers of a resource that are looked at.
MAX_SERVERS = 16
#: Characters of an error that names several failures, and of each of them.
_ERROR_LENGTH, _FAILURE_LENGTH = 1200, 300
#: Endpoints that get secrets or are opened in a browser. A login needs the first ones; without the others it may work.
_NEEDED_ENDPOINTS = ("authorization_endpoint", "token_endpoint")
_OTHER_ENDPOINTS = ("registration_endpoint", "device_authorization_endpoint", "revocation_endpoint")
_HEADERS = (("Accept", "application/json"), ("MCP-Protocol-Version", HANDSHAKE_REVISIONS[-1]))


class Discovered(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the authorization of an MCP server.

    Attributes:
        resource: The identifier of the MCP server, to be sent as it is.
        server: The authorization server.
        scopes_supported: The scopes that the MCP server names.
        has_metadata: Whether the authorization server has metadata; without it the endpoints have the default paths.
        left_out: Why endpoints that the metadata names are not used, by name.
    """

    resource: str
    server: AuthorizationServer
    scopes_supported: tuple[str, ...] = ()
    has_metadata: bool = True
    left_out: Mapping[str, str] = {}

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
    preferred: str | None = None,
    note: Note = log_deviation,
) -> Flow[Discovered]:
    """Find the authorization server of an MCP server.

    Each place where a document may be is tried until one has a valid document, and each authorization server that the MCP
    server names until one has valid metadata.

    Args:
        url: The URL of the MCP server.
        rules: Which URLs may be used.
        challenge: The challenge of a refusal, which may say where the metadata is.
        issuer: The only authorization server that is accepted; by default the first one with valid metadata.
        accept_issuers: Issuers that metadata may name although it was requested for another one.
        preferred: The authorization server of the login so far. It is tried first, if the MCP server names it.
        note: Notes what is left out of metadata.

    Returns:
        The flow; its result is what was found.

    Raises:
        AuthorizationFailed: There is no authorization server, or no document of it is valid. The error names each failure.
        UrlRefused: The only document names a URL that must not be used.
    """
    failures: list[AuthorizationFailed] = []
    resource = yield from _resource_metadata(url, challenge, failures, note)
    servers = [] if resource is None else (resource.authorization_servers or [])[:MAX_SERVERS]
    if resource is None or not servers:
        return (yield from _base_server(url, rules, issuer, accept_issuers, preferred, failures, note))
    if issuer is not None and issuer not in servers:
        names = ", ".join(map(shorten, servers))
        raise AuthorizationFailed(
            f"{url} is not authorized by the issuer {issuer}, which the client is for, but by {names}"
        )
    failures = []
    candidates = [issuer] if issuer is not None else sorted(dict.fromkeys(servers), key=lambda name: name != preferred)
    for candidate in candidates:
        try:
            server, left_out = yield from server_metadata(candidate, rules, accept_issuers, note)
        except AuthorizationFailed as exc:
            failures.append(exc)
        else:
            return Discovered(
                resource=resource.resource,
                server=server,
                scopes_supported=tuple(resource.scopes_supported or ()),
                left_out=left_out,
            )
    raise _summary(f"None of the authorization servers of {url} can be used", failures)


def _resource_metadata(
    url: str, challenge: Challenge | None, failures: list[AuthorizationFailed], note: Note
) -> Flow[ProtectedResource | None]:
    named = challenge.parameters.get("resource_metadata") if challenge is not None else None
    places = protected_resource_urls(url)
    if named:
        with suppress(ValueError):
            places.insert(0, urljoin(url, named))

    def check(document: ProtectedResource, place: str) -> None:
        if not covers(document.resource, url):
            raise _WrongDocument(
                f"{describe(place)} describes the resource {shorten(document.resource)!r}, which is not {url}"
            )

    document = yield from _first(places, ProtectedResource, check, failures, note)
    if document is None and any(isinstance(failure, _WrongDocument) for failure in failures):
        raise _summary(f"{url} has no metadata of its own", failures)
    return document


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
    issuer: str, rules: UrlRules, accept_issuers: Collection[str], note: Note
) -> Flow[tuple[AuthorizationServer, Mapping[str, str]]]:
    """Fetch and check the metadata of an authorization server."""
    rules.check(issuer)
    try:
        places = authorization_server_urls(issuer)
    except ValueError as exc:
        raise AuthorizationFailed(f"The issuer is not valid: {exc}") from None
    failures: list[AuthorizationFailed] = []
    server = yield from _first(places, AuthorizationServer, _issuer_check([issuer], accept_issuers), failures, note)
    if server is None:
        raise _summary(f"The authorization server {describe(issuer)} has no metadata that can be used", failures)
    return _check_endpoints(server, rules, note)


def _issuer_check(
    expected: Sequence[str], accept_issuers: Collection[str]
) -> Callable[[AuthorizationServer, str], None]:
    """Check the issuer in a metadata document, character by character (RFC 8414, section 3.3)."""

    def check(document: AuthorizationServer, place: str) -> None:
        if document.issuer not in expected and document.issuer not in accept_issuers:
            raise _WrongDocument(
                f"The metadata of the authorization server {shorten(expected[0])!r} names the issuer "
                f"{shorten(document.issuer)!r}. If both are the same server, allow it: OAuth(accept_issuers=[…]), or "
                "--accept-issuer on the command line"
            )

    return check


def _check_endpoints(
    server: AuthorizationServer, rules: UrlRules, note: Note
) -> tuple[AuthorizationServer, Mapping[str, str]]:
    """Check the endpoints that metadata names.

    Returns:
        The metadata without the endpoints that must not be used and that a login may not need, and the reasons.

    Raises:
        UrlRefused: An endpoint that each login needs must not be used.
    """
    left_out: dict[str, str] = {}
    for name in (*_NEEDED_ENDPOINTS, *_OTHER_ENDPOINTS):
        endpoint: str | None = getattr(server, name)
        try:
            if endpoint is not None:
                rules.check_endpoint(endpoint)
        except UrlRefused as exc:
            if name in _NEEDED_ENDPOINTS:
                raise
            left_out[name] = str(exc)
    if left_out:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        note("metadata-endpoint-left-out", reasons)
        server = msgspec.structs.replace(server, **dict.fromkeys(left_out))
    return server, left_out


def _base_server(
    url: str,
    rules: UrlRules,
    issuer: str | None,
    accept_issuers: Collection[str],
    preferred: str | None,
    failures: list[AuthorizationFailed],
    note: Note,
) -> Flow[Discovered]:
    """A server without resource metadata: it authorizes itself, at its base URL (revision 2025-03-26).

    If a document may be there that can't be read now, the default paths are not used, nor another authorization server than
    the preferred one.
    """
    target = parse_url(url)
    base = f"{target.scheme}://{target.authority}"
    if issuer not in (None, base, f"{base}/"):  # its metadata would be the word of the MCP server
        problem = f"{url} names no authorization server, and the client is for the issuer {issuer}"
        raise _summary(problem, failures)
    expected = _issuer_check([base, f"{base}/"], accept_issuers)
    server = yield from _first(authorization_server_urls(url, V2025_03), AuthorizationServer, expected, failures, note)
    has_metadata = server is not None
    if not all(isinstance(failure, _Absent) for failure in failures) and (
        server is None or preferred not in (None, server.issuer)
    ):
        raise _summary(f"The authorization server of {url} can't be found", failures)
    if server is None:
        server = AuthorizationServer(
            issuer=base,
            authorization_endpoint=f"{base}/authorize",
            token_endpoint=f"{base}/token",
            registration_endpoint=f"{base}/register",
        )
    if issuer not in (None, server.issuer):
        raise AuthorizationFailed(f"{url} names no authorization server, and the client is for the issuer {issuer}")
    server, left_out = _check_endpoints(server, rules, note)
    return Discovered(resource=canonical_resource(url), server=server, has_metadata=has_metadata, left_out=left_out)


class _Absent(AuthorizationFailed):
    """There is no document at a place."""


class _WrongDocument(AuthorizationFailed):
    """A document belongs to another resource or issuer."""


def _summary(problem: str, failures: Sequence[AuthorizationFailed]) -> AuthorizationFailed:
    """The error for a list of candidates of which none can be used; a single failure that says why is the error itself.

    Documents of another resource or issuer come first: that they are there says more than that others are not.
    """
    if len(failures) == 1 and not isinstance(failures[0], _Absent):
        return failures[0]
    decisive = sorted(failures, key=lambda failure: not isinstance(failure, _WrongDocument))
    reasons = [shorten(str(failure), _FAILURE_LENGTH) for failure in decisive]
    return AuthorizationFailed(shorten(": ".join([problem, *filter(None, ["; ".join(reasons)])]), _ERROR_LENGTH))


def _first(
    places: Iterable[str],
    kind: type[MetadataT],
    check: Callable[[MetadataT, str], None],
    failures: list[AuthorizationFailed],
    note: Note,
) -> Flow[MetadataT | None]:
    """Fetch the first valid document of several places. What is wrong with the others is added to the failures."""
    for place in dict.fromkeys(places):
        try:
            document = yield from _document(place, kind, note)
            check(document, place)
        except AuthorizationFailed as exc:
            failures.append(exc)
        else:
            return document
    return None


def _document(place: str, kind: type[MetadataT], note: Note) -> Flow[MetadataT]:
    response: HttpResponse = yield HttpRequest("GET", place, _HEADERS)
    if not 200 <= response.status < 300:
        is_absent = 400 <= response.status < 500 and response.status != 429
        raise (_Absent if is_absent else AuthorizationFailed)(f"{describe(place)} answers HTTP {response.status}")
    try:
        return read_metadata(response.body, kind, note)
    except ValueError as exc:
        # Such as the page that a web application sends for every path.
        raise _Absent(f"{describe(place)}: {exc}") from None
