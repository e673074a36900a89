"""Clients of the proxy: registered dynamically (RFC 7591), or known by the URL of their metadata document (CIMD).

Registrations take no storage: the id of a client is what it registered, signed. Such clients are public and have no secret, so
that equal registrations are one client. A client with a metadata document may sign assertions (`private_key_jwt`, RFC 7523).
"""

from __future__ import annotations

import base64
import binascii
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from gemel.auth.client.token_request import ASSERTION_TYPE
from gemel.auth.flow import HttpRequest, HttpResponse
from gemel.auth.jose import TokenInvalid, WebKey, import_keys, read_claims, verify_jwt
from gemel.auth.metadata import ClientMetadata, read_document
from gemel.auth.server.proxy.documents import Documents
from gemel.auth.server.proxy.redirects import check_redirect_uri, without_port
from gemel.auth.server.proxy.store import SIGNATURE_LENGTH, ProxyStore, Vault
from gemel.auth.server.proxy.web import OAuthError, WebReply, WebRequest, json_reply, optional
from gemel.auth.server.shared_work import SharedWork
from gemel.protocol.records import Record
from gemel.visible import hidden

logger = logging.getLogger("gemel")

#: Bytes of a metadata document of a client, redirect URIs in it, characters of its name.
MAX_DOCUMENT: Final = 64 * 1024
MAX_REDIRECTS: Final = 16
MAX_NAME: Final = 100
#: Characters of the id of a registered client, which holds its name and redirect URIs.
MAX_CLIENT_ID: Final = 2000
#: Documents that are fetched at once.
_FETCHES: Final = 32
#: Seconds that an assertion may be valid.
_ASSERTION_SECONDS: Final = 600.0
_LEEWAY: Final = 60.0

_GRANTS: Final = ("authorization_code", "refresh_token")
_PREFIX: Final = "client_"


class ProxyClient(Record):
    """A client. `jwks` or `jwks_uri` is set for one that signs assertions."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    jwks: dict[str, Any] | None = None
    jwks_uri: str | None = None

    @property
    def signs(self) -> bool:
        """Whether it authenticates at the token endpoint."""
        return self.jwks is not None or self.jwks_uri is not None


class Authenticated(NamedTuple):
    """A client that has authenticated; `jti` and `expires` are those of its assertion, if it has signed one."""

    client: ProxyClient
    jti: str | None = None
    expires: float = 0.0


#: Makes a request for an address, of which it gets the share.
Fetch: TypeAlias = Callable[[HttpRequest, str], Awaitable[HttpResponse]]


class Clients:
    """Registers, finds and authenticates clients.

    Args:
        vault: Signs registrations.
        store: Where used assertions are noted.
        fetch: Fetches metadata documents from where peers may say they are.
        issuer: The issuer of the proxy.
        token_endpoint: Its token endpoint.
        redirect_schemes: Private schemes without a dot that redirect URIs may have.
        redirect_hosts: Hosts that redirect URIs with https may have; None for all.
        register: Whether clients may register dynamically.
    """

    def __init__(
        self,
        vault: Vault,
        store: ProxyStore,
        fetch: Fetch,
        issuer: str,
        token_endpoint: str,
        *,
        redirect_schemes: Collection[str],
        redirect_hosts: Collection[str] | None,
        register: bool,
    ) -> None:
        self._vault = vault
        self._store = store
        self._fetch_url = fetch
        self._issuer = issuer
        self._token_endpoint = token_endpoint
        self._schemes = frozenset(redirect_schemes)
        self._hosts = None if redirect_hosts is None else frozenset(host.lower() for host in redirect_hosts)
        self._register = register
        fetches: SharedWork[Any] = SharedWork(_FETCHES)
        self._documents = Documents(fetches, self._load_client)
        self._key_sets = Documents(fetches, self._load_keys)
        self._has_warned = False

    # ---------------------------------------------------------------- registration

    async def register(self, request: WebRequest) -> WebReply:
        """Register a client dynamically (RFC 7591 §3).

        Args:
            request: The request with the metadata as JSON.

        Returns:
            The registration.

        Raises:
            OAuthError: The metadata is not acceptable.
        """
        if not self._register:
            raise OAuthError("access_denied", "clients can not register here: use a client ID metadata document", 403)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise OAuthError("invalid_client_metadata", "the metadata is sent as application/json", 415)
        metadata = self._read(request.body)
        client = self._client("", metadata)
        client.id = self._id_of(client)
        granted = {
            "client_id": client.id,
            "client_id_issued_at": int(time.time()),
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "grant_types": _GRANTS,
            "response_types": ("code",),
            "token_endpoint_auth_method": "none",
        }
        if metadata.application_type in ("web", "native"):
            granted["application_type"] = metadata.application_type
        if metadata.scope is not None:
            granted["scope"] = metadata.scope
        return json_reply(granted, 201)

    def _id_of(self, client: ProxyClient) -> str:
        """The id of a registered client. The ports of loopback addresses differ from start to start and don't count."""
        text = "\n".join((client.name, *sorted(set(map(without_port, client.redirect_uris)))))
        unsigned = _PREFIX + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        if len(unsigned) + SIGNATURE_LENGTH > MAX_CLIENT_ID:
            raise OAuthError(
                "invalid_client_metadata",
                f"client_name and redirect_uris are too long: the client_id would have more than {MAX_CLIENT_ID} characters",
            )
        return unsigned + self._vault.sign(f"client {unsigned}")

    def _read_id(self, client_id: str) -> ProxyClient | None:
        """The client that was registered with an id; None if the id was not made with the keys of this server."""
        unsigned, signature = client_id[:-SIGNATURE_LENGTH], client_id[-SIGNATURE_LENGTH:]
        if len(client_id) > MAX_CLIENT_ID or not unsigned.startswith(_PREFIX):
            return None
        try:
            encoded = unsigned.removeprefix(_PREFIX)
            text = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        name, *uris = text.split("\n")
        if not self._vault.is_signed(f"client {unsigned}", signature):
            if uris and not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "A client is refused whose id was signed with other keys, or forged. If clients are refused again and again, "
                    "let all processes of this server have the same OAuthProxy(keys=…), with former keys after the current one"
                )
            return None
        return ProxyClient(client_id, name, tuple(uris))

    def _read(self, data: bytes) -> ClientMetadata:
        if len(data) > MAX_DOCUMENT:
            raise OAuthError("invalid_client_metadata", f"the metadata has more than {MAX_DOCUMENT} bytes")
        try:
            return read_document(data, ClientMetadata)
        except ValueError:
            raise OAuthError("invalid_client_metadata", "the metadata is not a JSON object of RFC 7591") from None

    def _client(self, client_id: str, metadata: ClientMetadata) -> ProxyClient:
        """Check metadata and make a client of it."""
        uris = metadata.redirect_uris or []
        if not 0 < len(uris) <= MAX_REDIRECTS:
            raise OAuthError("invalid_redirect_uri", f"a client has 1 to {MAX_REDIRECTS} redirect_uris")
        for uri in uris:
            self.check_redirect_uri(uri)
        if metadata.grant_types and "authorization_code" not in metadata.grant_types:
            raise OAuthError("invalid_client_metadata", "the grant type authorization_code is needed")
        if metadata.response_types and "code" not in metadata.response_types:
            raise OAuthError("invalid_client_metadata", "the response type code is needed")
        name = " ".join(hidden().sub(" ", metadata.client_name or "").split())[:MAX_NAME]
        return ProxyClient(client_id, name or "An application without a name", tuple(uris))

    def check_redirect_uri(self, uri: str) -> None:
        """Check that browsers may be sent to a redirect URI.

        Raises:
            OAuthError: `invalid_redirect_uri`: not with the current options, whatever was accepted before.
        """
        try:
            check_redirect_uri(uri, self._schemes)
        except ValueError as exc:
            raise OAuthError("invalid_redirect_uri", str(exc)) from None
        parts = urlsplit(uri)
        if parts.scheme == "https" and self._hosts is not None and parts.hostname not in self._hosts:
            raise OAuthError("invalid_redirect_uri", "redirect URIs with this host are not accepted here")

    # ---------------------------------------------------------------- lookup

    async def find(self, client_id: str, address: str) -> ProxyClient:
        """Return a client.

        Args:
            client_id: Its id, or the URL of its metadata document.
            address: Who names it.

        Returns:
            The client.

        Raises:
            OAuthError: `invalid_client`: it is unknown, or its document can't be used. `temporarily_unavailable`: too many
                documents are being fetched.
        """
        if "://" in client_id:
            return await self._documents.find(client_id, address)
        client = self._read_id(client_id)
        if client is None:
            raise OAuthError("invalid_client", "the client is not registered, or no longer: register it anew", 401)
        return client

    async def _load_client(self, url: str, share: str) -> ProxyClient:
        """Fetch and check a document (draft-ietf-oauth-client-id-metadata-document §3 and §4)."""
        parts = urlsplit(url) if len(url) <= 2048 and url.isascii() and url.isprintable() else None
        if parts is None or parts.path in ("", "/") or parts.fragment or "#" in url or "@" in parts.netloc:
            raise OAuthError("invalid_client", "a client_id that is a URL has a path, no fragment and no user", 401)
        if any(segment in (".", "..") for segment in parts.path.lower().replace("%2e", ".").split("/")):
            raise OAuthError("invalid_client", "a client_id that is a URL has no . or .. in its path", 401)
        metadata = self._read((await self._fetch(url, share)).body)
        if metadata.client_id != url:
            raise OAuthError("invalid_client", "the metadata document has another client_id than its URL", 401)
        client = self._client(url, metadata)
        if metadata.client_name is None:
            client.name = parts.netloc
        method = metadata.token_endpoint_auth_method
        if method == "private_key_jwt":
            client.jwks, client.jwks_uri = metadata.jwks, metadata.jwks_uri
            if (client.jwks is None) == (client.jwks_uri is None):
                raise OAuthError("invalid_client", "private_key_jwt needs either jwks or jwks_uri", 401)
        elif method not in (None, "none"):
            raise OAuthError("invalid_client", "token_endpoint_auth_method must be none or private_key_jwt", 401)
        return client

    async def _load_keys(self, url: str, share: str) -> list[WebKey]:
        """Fetch the keys of a client."""
        response = await self._fetch(url, share)
        try:
            return import_keys(msgspec.json.decode(response.body[:MAX_DOCUMENT]))
        except (ValueError, msgspec.MsgspecError, RecursionError):
            raise OAuthError("invalid_client", "the keys of the client can not be read", 401) from None

    async def _fetch(self, url: str, share: str) -> HttpResponse:
        response = await self._fetch_url(HttpRequest("GET", url, (("accept", "application/json"),)), share)
        if response.status != 200 or response.url != url:  # redirects are not followed
            raise OAuthError("invalid_client", "the client's document is not at its URL", 401)
        return response

    # ---------------------------------------------------------------- authentication

    async def authenticate(self, request: WebRequest) -> Authenticated:
        """Find and authenticate the client of a request to the token or revocation endpoint.

        Args:
            request: The request.

        Returns:
            The client, with the assertion that it sent.

        Raises:
            OAuthError: `invalid_client`: it is unknown, or does not authenticate as its metadata says.
        """
        if "authorization" in request.headers or "client_secret" in request.form:
            raise OAuthError("invalid_client", "clients have no secret here", 401)
        assertion = optional(request, "client_assertion")
        client_id = optional(request, "client_id")
        if assertion is not None and client_id is None:
            try:
                client_id = str(read_claims(assertion).get("sub"))
            except TokenInvalid:
                raise OAuthError("invalid_client", "the client assertion is malformed", 401) from None
        if not client_id:
            raise OAuthError("invalid_request", "the parameter client_id is missing")
        client = await self.find(client_id, request.address)
        if not client.signs:
            if assertion is not None:
                raise OAuthError("invalid_client", "the client has no keys for an assertion", 401)
            return Authenticated(client)
        if assertion is None or optional(request, "client_assertion_type") != ASSERTION_TYPE:
            raise OAuthError("invalid_client", "the client authenticates with private_key_jwt", 401)
        return await self._verify(client, assertion, request.address)

    async def _verify(self, client: ProxyClient, assertion: str, address: str) -> Authenticated:
        """Verify an assertion (RFC 7523 §3): signed by the client, for this server, short-lived."""
        try:
            _, claims = verify_jwt(assertion, await self._keys(client, address))
        except TokenInvalid:
            raise OAuthError("invalid_client", "the client assertion is not signed by the client", 401) from None
        now = time.time()
        expires, audience, jti = claims.get("exp"), claims.get("aud"), claims.get("jti")
        audiences = audience if isinstance(audience, list) else [audience]
        if claims.get("iss") != client.id or claims.get("sub") != client.id:
            problem = "iss and sub must be the client_id"
        elif self._issuer not in audiences and self._token_endpoint not in audiences:
            problem = "it is for another server"
        elif not isinstance(expires, int | float) or not now - _LEEWAY < expires <= now + _ASSERTION_SECONDS + _LEEWAY:
            problem = "it has expired, or is valid for too long"
        elif not isinstance(jti, str) or not jti:
            problem = "it has no jti"
        else:
            return Authenticated(client, jti, expires)
        raise OAuthError("invalid_client", f"the client assertion is refused: {problem}", 401)

    async def use_up(self, authenticated: Authenticated) -> None:
        """Note that an assertion was used. Called once it came with a code or a token of its client: nobody else fills the store.

        Raises:
            OAuthError: `invalid_client`: it was used before.
        """
        client, jti, expires = authenticated
        if jti is None:
            return
        seconds = expires - time.time() + 2 * _LEEWAY
        if not await self._store.claim("assertion", f"{client.id} {jti}", max(seconds, 1.0)):
            raise OAuthError("invalid_client", "the client assertion is refused: it was used already", 401)

    async def _keys(self, client: ProxyClient, address: str) -> list[WebKey]:
        if client.jwks is None:
            assert client.jwks_uri is not None
            return await self._key_sets.find(client.jwks_uri, address)
        try:
            return import_keys(client.jwks)
        except ValueError:
            raise OAuthError("invalid_client", "the keys of the client can not be read", 401) from None
