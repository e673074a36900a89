"""Which client to be at an authorization server: pre-registered, a client ID metadata document, or registered dynamically.

Specification: Authorization, section "Client Registration Approaches"; RFC 7591.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from gemel.auth.client.device import DEVICE_GRANT
from gemel.auth.client.discovery import Discovered
from gemel.auth.client.token_request import RegisteredClient, TokenRequestFailed, is_success, read_error
from gemel.auth.flow import Flow, HttpRequest
from gemel.auth.metadata import ClientMetadata
from gemel.auth.url_rules import describe, is_loopback_name
from gemel.errors import AuthorizationFailed, DefinitionError

#: Grants of a client that logs a person in; the second one so that logins last.
_GRANTS = ("authorization_code", "refresh_token")
_DEVICE_GRANTS = (DEVICE_GRANT, "refresh_token")
_REFUSED_AUTH = "invalid_client_metadata"


class ClientPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a client can be.

    Attributes:
        registered: The client that the user registered; None without.
        metadata_url: The URL of the client ID metadata document; None without.
        name: The name that people see.
        redirect_uris: Where the browser comes back to; none for a login on another device.
        scopes: The scopes for a registration.
    """

    registered: RegisteredClient | None = None
    metadata_url: str | None = None
    name: str = "Gemel"
    redirect_uris: tuple[str, ...]
    scopes: tuple[str, ...] = ()


def choose_client(
    found: Discovered, plan: ClientPlan, stored: RegisteredClient | None, now: float
) -> RegisteredClient | None:
    """Choose a client that needs no registration now, in the order of the specification.

    Args:
        found: The authorization server.
        plan: What the client can be.
        stored: A registration with this authorization server, None without.
        now: The time in Unix seconds.

    Returns:
        The client; None if it has to be registered.
    """
    if plan.registered is not None:
        return plan.registered
    if stored is not None and stored.is_named_by_user:
        return stored
    if plan.metadata_url is not None and found.server.client_id_metadata_document_supported:
        return RegisteredClient(client_id=plan.metadata_url, redirect_uris=plan.redirect_uris)
    if stored is not None and stored.is_current(now) and set(plan.redirect_uris) == set(stored.redirect_uris):
        return stored
    return None


def register(found: Discovered, plan: ClientPlan) -> Flow[RegisteredClient]:
    """Register a client dynamically.

    Args:
        found: The authorization server.
        plan: What the client wants to be.

    Returns:
        The flow; its result is the client.

    Raises:
        AuthorizationFailed: The server does not register clients, or refuses this one.
    """
    endpoint = found.server.registration_endpoint
    uris = ", ".join(plan.redirect_uris)
    if endpoint is None:
        reason = found.left_out.get("registration_endpoint", "")
        raise AuthorizationFailed(
            f"{describe(found.issuer)} registers no clients by itself{reason and f' ({reason})'}. Register one there "
            f"{f'with the redirect URI {uris}' if uris else 'for device codes'}, and pass OAuth(client_id=…)"
        )
    methods = found.server.token_endpoint_auth_methods_supported
    choices = [
        name for name in ("none", "client_secret_basic", "client_secret_post") if methods is None or name in methods
    ]
    first, *others = choices or ["none"]
    answer = yield from _attempt(found, plan, first)
    if isinstance(answer, TokenRequestFailed) and answer.error == _REFUSED_AUTH and not methods:
        answer = yield from _attempt(found, plan, others[0])
    if isinstance(answer, RegisteredClient):
        return answer
    if answer.error == "invalid_redirect_uri":
        raise AuthorizationFailed(
            f"{answer}. The redirect URI is {uris}: use another one (OAuth(authorizer=…)), or register a client "
            "there and pass OAuth(client_id=…)"
        )
    raise answer


def _attempt(found: Discovered, plan: ClientPlan, method: str) -> Flow[RegisteredClient | TokenRequestFailed]:
    """Ask for a registration with one kind of client authentication; a refusal is returned."""
    endpoint = found.server.registration_endpoint
    assert endpoint is not None
    uris = plan.redirect_uris
    wish = ClientMetadata(
        client_name=plan.name,
        redirect_uris=list(uris) or None,
        grant_types=list(_GRANTS if uris else _DEVICE_GRANTS),
        response_types=["code"] if uris else [],
        token_endpoint_auth_method=method,
        application_type=application_type(uris),
        scope=" ".join(plan.scopes) or None,
    )
    headers = (("Content-Type", "application/json"), ("Accept", "application/json"))
    response = yield HttpRequest("POST", endpoint, headers, msgspec.json.encode(wish))
    if is_success(response):
        return read_registration(response.body, method, uris)
    missing = "" if found.has_metadata else ", and the server has no metadata of OAuth"
    return read_error(response, f"{describe(endpoint)} does not register this client{missing}")


def application_type(redirect_uris: Iterable[str]) -> str:
    """Return the `application_type` of a registration: "web" for a redirect to another machine, else "native".

    Args:
        redirect_uris: Where the browser comes back to.
    """
    for parts in map(urlsplit, redirect_uris):
        if parts.scheme in ("https", "http") and not is_loopback_name(parts.hostname or ""):
            return "web"
    return "native"


def read_registration(body: bytes, method: str, redirect_uris: tuple[str, ...]) -> RegisteredClient:
    """Read the response to a registration.

    Args:
        body: Its content.
        method: The client authentication that was asked for.
        redirect_uris: The redirect URIs that were registered.

    Returns:
        The client, as the server registered it.

    Raises:
        AuthorizationFailed: It is not a valid response.
    """
    try:
        client = msgspec.json.decode(body, type=_Registration, strict=False)  # numbers as text
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise AuthorizationFailed("The answer to the registration of the client can't be read") from None
    return RegisteredClient(
        client_id=client.client_id,
        client_secret=client.client_secret or None,
        token_endpoint_auth_method=client.token_endpoint_auth_method or (method if method != "none" else None),
        redirect_uris=redirect_uris,
        client_secret_expires_at=client.client_secret_expires_at or 0,
    )


class _Registration(msgspec.Struct):
    client_id: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    client_secret: str | None = None
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: str | None = None


def check_metadata_url(url: str) -> None:
    """Check the URL of a client ID metadata document: https, with a path, without fragment, user or dot segments.

    Args:
        url: The URL.

    Raises:
        DefinitionError: It can't be the id of a client.
    """
    try:
        parts = urlsplit(url)
        is_good = (
            parts.scheme == "https" and bool(parts.hostname) and parts.path.strip("/") != "" and "@" not in parts.netloc
        )
    except ValueError:
        is_good = False
    if not is_good or "#" in url or {".", ".."} & set(url.split("/")):
        raise DefinitionError(
            f"client_metadata_url={url!r} is not possible: the document needs an https URL with a path, such as "
            "https://example.com/client.json"
        )


def client_metadata(url: str, *, name: str, redirect_uris: list[str], **members: object) -> bytes:
    """Write the client ID metadata document to serve at a URL, which is then the id of the client everywhere.

    Args:
        url: The https URL of the document.
        name: The name that people see when they log in.
        redirect_uris: Where the browser may come back to.
        **members: Further members of RFC 7591, such as `logo_uri` or `jwks_uri`.

    Returns:
        The document; serve it with the type `application/json`.

    Raises:
        DefinitionError: The URL can't be the id of a client, or a member is unknown.
    """
    check_metadata_url(url)
    try:
        document = ClientMetadata(
            client_id=url,
            client_name=name,
            redirect_uris=redirect_uris,
            grant_types=list(_GRANTS),
            response_types=["code"],
            token_endpoint_auth_method="none",
        )
        return msgspec.json.encode(msgspec.convert(msgspec.to_builtins(document) | members, ClientMetadata))
    except msgspec.ValidationError as exc:
        raise DefinitionError(f"The client ID metadata document is not valid: {exc}") from None
