"""Metadata documents of OAuth, the URLs where they are, and the identifier of a resource.

Documents are RFC 9728 (protected resources), RFC 8414 and OpenID Connect Discovery (authorization servers) and RFC 7591
(clients). Unknown members are ignored, sizes are bounded.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from gemel.protocol.deviations import Note, log_deviation
from gemel.schema.revisions import LATEST, V2025_03, V2025_06

#: Bytes of a document.
MAX_DOCUMENT: Final = 1024 * 1024
_PORTS: Final = {"http": 80, "https": 443}

RESOURCE_SEGMENT: Final = "/.well-known/oauth-protected-resource"
_SERVER_SEGMENT: Final = "/.well-known/oauth-authorization-server"
_OPENID_SEGMENT: Final = "/.well-known/openid-configuration"

_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=4096)]
_Texts: TypeAlias = Annotated[list[_Text], msgspec.Meta(max_length=1024)]
MetadataT = TypeVar("MetadataT", bound="AuthMetadata")


class AuthMetadata(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base of the documents. A member that is null counts as absent."""


class ProtectedResource(AuthMetadata, kw_only=True):
    """Metadata of a protected resource (RFC 9728 §2)."""

    resource: _Text
    authorization_servers: _Texts | None = None
    scopes_supported: _Texts | None = None
    bearer_methods_supported: _Texts | None = None
    resource_name: _Text | None = None
    resource_documentation: _Text | None = None
    resource_policy_uri: _Text | None = None
    resource_tos_uri: _Text | None = None
    jwks_uri: _Text | None = None
    resource_signing_alg_values_supported: _Texts | None = None
    dpop_signing_alg_values_supported: _Texts | None = None
    dpop_bound_access_tokens_required: bool | None = None


class AuthorizationServer(AuthMetadata, kw_only=True):
    """Metadata of an authorization server (RFC 8414 §2, OpenID Connect Discovery 1.0 §3, and what other RFCs added)."""

    issuer: _Text
    authorization_endpoint: _Text | None = None
    token_endpoint: _Text | None = None
    jwks_uri: _Text | None = None
    registration_endpoint: _Text | None = None
    scopes_supported: _Texts | None = None
    response_types_supported: _Texts | None = None
    response_modes_supported: _Texts | None = None
    grant_types_supported: _Texts | None = None
    token_endpoint_auth_methods_supported: _Texts | None = None
    token_endpoint_auth_signing_alg_values_supported: _Texts | None = None
    service_documentation: _Text | None = None
    revocation_endpoint: _Text | None = None
    revocation_endpoint_auth_methods_supported: _Texts | None = None
    introspection_endpoint: _Text | None = None
    introspection_endpoint_auth_methods_supported: _Texts | None = None
    code_challenge_methods_supported: _Texts | None = None
    device_authorization_endpoint: _Text | None = None
    pushed_authorization_request_endpoint: _Text | None = None
    require_pushed_authorization_requests: bool | None = None
    userinfo_endpoint: _Text | None = None
    subject_types_supported: _Texts | None = None
    id_token_signing_alg_values_supported: _Texts | None = None
    dpop_signing_alg_values_supported: _Texts | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None


class ClientMetadata(AuthMetadata, kw_only=True):
    """Metadata of a client: a registration (RFC 7591 §2), or a client ID metadata document with its `client_id`."""

    client_id: _Text | None = None
    client_name: _Text | None = None
    redirect_uris: _Texts | None = None
    grant_types: _Texts | None = None
    response_types: _Texts | None = None
    token_endpoint_auth_method: _Text | None = None
    token_endpoint_auth_signing_alg: _Text | None = None
    scope: _Text | None = None
    application_type: _Text | None = None
    client_uri: _Text | None = None
    logo_uri: _Text | None = None
    tos_uri: _Text | None = None
    policy_uri: _Text | None = None
    contacts: _Texts | None = None
    jwks_uri: _Text | None = None
    jwks: dict[str, Any] | None = None
    software_id: _Text | None = None
    software_version: _Text | None = None
    dpop_bound_access_tokens: bool | None = None


def read_document(data: bytes, kind: type[MetadataT]) -> MetadataT:
    """Read a document that a peer has sent.

    Args:
        data: The JSON text.
        kind: What it is expected to be.

    Returns:
        The document.

    Raises:
        ValueError: It is not JSON, too large, or a member is missing or of another type.
    """
    if len(data) > MAX_DOCUMENT:
        raise ValueError(f"the document is larger than {MAX_DOCUMENT:,} bytes")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise ValueError(f"the document is malformed: {exc}") from None


def read_metadata(data: bytes, kind: type[MetadataT], note: Note = log_deviation) -> MetadataT:
    """Read metadata of a peer. A member that is not valid is left out with a warning, unless the document needs it.

    Of the authorization servers, those that are valid are used. A byte order mark is ignored (RFC 8259, section 8.1).

    Args:
        data: The JSON text.
        kind: What it is expected to be.
        note: Notes what is left out.

    Returns:
        The document.

    Raises:
        ValueError: It is not a JSON object, too large, or a needed member is missing or of another type.
    """
    data = data.removeprefix(BOM_UTF8)
    try:
        return read_document(data, kind)
    except ValueError:
        if len(data) > MAX_DOCUMENT:
            raise
        try:
            members = msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            members = {}
        invalid = [
            field.name
            for field in msgspec.structs.fields(kind)
            if field.name in members and not field.required and not _is_valid(members[field.name], field.type)
        ]
        if not invalid:
            raise
    used = {name: members[name] for name in members if name not in invalid}
    if "authorization_servers" in invalid:
        named = members["authorization_servers"]
        used["authorization_servers"] = [
            name for name in (named if isinstance(named, list) else [named]) if _is_valid(name, _Text)
        ]
    try:
        document = msgspec.convert(used, kind)
    except msgspec.ValidationError as exc:
        raise ValueError(f"the document is malformed: {exc}") from None
    note("metadata-member-left-out", ", ".join(invalid))
    return document


def _is_valid(value: object, kind: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


# ---------------------------------------------------------------- URLs


def protected_resource_urls(url: str) -> list[str]:
    """Return where the metadata of a resource may be: below the well-known path with the resource's own path, and at the root.

    Args:
        url: The URL of the MCP endpoint.

    Returns:
        The URLs in the order in which a client asks (RFC 9728 §3.1; Authorization, "Protected Resource Metadata Discovery
        Requirements"); one URL if the endpoint is at the root.

    Raises:
        ValueError: It isn't an http(s) URL.
    """
    parts = _split(url)
    root = f"{parts.scheme}://{parts.netloc}{RESOURCE_SEGMENT}"
    path = "" if parts.path == "/" else parts.path
    query = f"?{parts.query}" if parts.query else ""
    return list(dict.fromkeys([f"{root}{path}{query}", root]))


def authorization_server_urls(issuer: str, revision: str = LATEST) -> list[str]:
    """Return where the metadata of an authorization server may be, in the order in which a client asks.

    Args:
        issuer: The issuer; for 2025-03-26 the URL of the MCP server, whose path is left out.
        revision: The protocol revision. The first two know RFC 8414 only, later ones OpenID Connect as well.

    Returns:
        The URLs (Authorization, "Authorization Server Metadata Discovery").

    Raises:
        ValueError: It isn't an http(s) URL.
    """
    parts = _split(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if revision <= V2025_03:
        return [f"{base}{_SERVER_SEGMENT}"]
    urls = [f"{base}{_SERVER_SEGMENT}{path}"]
    if revision > V2025_06:
        urls.append(f"{base}{_OPENID_SEGMENT}{path}")
        if path:
            urls.append(f"{base}{path}{_OPENID_SEGMENT}")
    return urls


def canonical_resource(url: str) -> str:
    """Return the identifier of a resource: scheme and host in lower case, no default port, no fragment, no lone slash.

    A slash at the end of a longer path stays, since it may be significant.

    Args:
        url: The URL of the MCP endpoint.

    Returns:
        The value of `resource` (RFC 8707; Authorization, "Canonical Server URI").

    Raises:
        ValueError: It isn't an http(s) URL.
    """
    parts = _split(url)
    path = "" if parts.path == "/" and not parts.query else parts.path
    return parts._replace(path=path, fragment="").geturl()


def _split(url: str) -> SplitResult:
    """Split a URL; scheme, host and port as they are compared.

    Raises:
        ValueError: It isn't an http(s) URL with a host, or holds a password, blanks or controls.
    """
    text = url[:200]
    if not url.isascii() or any(character <= " " or character in '"<>\\^`{|}\x7f' for character in url):
        raise ValueError(f"{text!r} is not a URL")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"{text!r} is not a URL") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{text!r} is not an http(s) URL")
    if "@" in parts.netloc:
        raise ValueError("a URL must not hold a user name or password")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    suffix = "" if port is None or port == _PORTS[parts.scheme] else f":{port}"
    return parts._replace(netloc=f"{host}{suffix}")
