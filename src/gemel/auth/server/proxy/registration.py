"""Clients of the proxy: registered dynamically (RFC 7591), or known by the URL of their metadata document (CIMD).

Registered clients are public and have no secret, so that equal registrations are one client: what honest clients register again
and again takes no room. A client with a metadata document may sign assertions (`private_key_jwt`, RFC 7523).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from gemel.auth.client.token_request import ASSERTION_TYPE
from gemel.auth.flow import HttpRequest, HttpResponse
from gemel.auth.jose import TokenInvalid, WebKey, import_keys, read_claims, verify_jwt
from gemel.auth.metadata import ClientMetadata, read_document
from gemel.auth.server.proxy.redirects import check_redirect_uri, without_port
from gemel.auth.server.proxy.store import ProxyStore, digest
from gemel.auth.server.proxy.web import OAuthError, WebReply, WebRequest, json_reply, optional
from gemel.errors import AuthorizationFailed, BackendError, Overloaded
from gemel.protocol.records import Record
from gemel.visible import hidden

logger = logging.getLogger("gemel")

#: Bytes of a metadata document of a client, redirect URIs in it, characters of its name.
MAX_DOCUMENT: Final = 64 * 1024
MAX_REDIRECTS: Final = 16
MAX_NAME: Final = 200
#: Seconds for which a registration is kept: after its last use, and as long as nobody has logged in with it.
REGISTRATION_SECONDS: Final = 90 * 86400.0
UNUSED_SECONDS: Final = 86400.0
#: New registrations a minute in one process: from one address, and in all. So many fit into a backend for UNUSED_SECONDS.
ADDRESS_RATE: Final = 20
TOTAL_RATE: Final = 60
#: Metadata documents that are remembered, how long, and how many are fetched at once.
_DOCUMENTS: Final = 256
_DOCUMENT_SECONDS: Final = 600.0
_FAILURE_SECONDS: Final = 10.0
_FETCHES: Final = 8
#: Seconds that an assertion may be valid.
_ASSERTION_SECONDS: Final = 600.0
_LEEWAY: Final = 60.0

_GRANTS: Final = ("authorization_code", "refresh_token")
_CLIENT_ID = re.compile(r"client_[A-Za-z0-9_-]{54}")


class ProxyClient(Record):
    """A client. `jwks` or `jwks_uri` is set for one that signs assertions."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    stored: float = 0.0
    used: bool = False
    jwks: dict[str, Any] | None = None
    jwks_uri: str | None = None

    @property
    def signs(self) -> bool:
        """Whether it authenticates at the token endpoint."""
        return self.jwks is not None or self.jwks_uri is not None


Fetch: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]


class Clients:
    """Registers, finds and authenticates clients.

    Args:
        store: Where registrations are kept.
        fetch: Fetches metadata documents from where peers may say they are.
        issuer: The issuer of the proxy.
        token_endpoint: Its token endpoint.
        redirect_schemes: Private schemes without a dot that redirect URIs may have.
        redirect_hosts: Hosts that redirect URIs with https may have; None for all.
        register: Whether clients may register dynamically.
    """

    def __init__(
        self,
        store: ProxyStore,
        fetch: Fetch,
        issuer: str,
        token_endpoint: str,
        *,
        redirect_schemes: Collection[str],
        redirect_hosts: Collection[str] | None,
        register: bool,
    ) -> None:
        self._store = store
        self._fetch_url = fetch
        self._issuer = issuer
        self._token_endpoint = token_endpoint
        self._schemes = frozenset(redirect_schemes)
        self._hosts = None if redirect_hosts is None else frozenset(host.lower() for host in redirect_hosts)
        self._register = register
        self._documents: dict[str, tuple[float, ProxyClient | OAuthError]] = {}
        self._key_sets: dict[str, tuple[float, list[WebKey]]] = {}
        self._fetches = 0
        self._minute = 0
        self._counts: dict[str, int] = {}

    # ---------------------------------------------------------------- registration

    async def register(self, request: WebRequest) -> WebReply:
        """Register a client dynamically (RFC 7591 §3).

        Args:
            request: The request with the metadata as JSON.

        Returns:
            The registration.

        Raises:
            OAuthError: The metadata is not acceptable, or there are too many registrations.
        """
        if not self._register:
            raise OAuthError("access_denied", "clients can not register here: use a client ID metadata document", 403)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise OAuthError("invalid_client_metadata", "the metadata is sent as application/json", 415)
        metadata = self._read(request.body)
        client = self._client("", metadata)
        # The ports of loopback addresses differ from start to start and don't count.
        same = (client.name, sorted(map(without_port, client.redirect_uris)))
        client.id = self._store.signed(f"client_{digest(self._issuer + msgspec.json.encode(same).decode())}")
        present = await self._store.get("client", client.id, ProxyClient)
        if present is None:
            self._count(request.address)

        def renew(present: ProxyClient | None) -> tuple[ProxyClient, float]:
            client.stored, client.used = time.time(), present is not None and present.used
            return client, REGISTRATION_SECONDS if client.used else UNUSED_SECONDS

        await self._store.update("client", client.id, ProxyClient, renew)
        granted = {
            "client_id": client.id,
            "client_id_issued_at": int(client.stored),
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

    def _count(self, address: str) -> None:
        """Limit new registrations; those that exist already are not counted."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute = minute
            self._counts.clear()
        total = sum(self._counts.values())
        if total >= TOTAL_RATE or self._counts.get(address, 0) >= ADDRESS_RATE:
            headers = ((b"retry-after", b"60"),)
            raise OAuthError("temporarily_unavailable", "too many registrations: try again later", 429, headers=headers)
        self._counts[address] = self._counts.get(address, 0) + 1

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
            OAuthError: `invalid_redirect_uri`: not with the present options, whatever was accepted before.
        """
        try:
            check_redirect_uri(uri, self._schemes)
        except ValueError as exc:
            raise OAuthError("invalid_redirect_uri", str(exc)) from None
        parts = urlsplit(uri)
        if parts.scheme == "https" and self._hosts is not None and parts.hostname not in self._hosts:
            raise OAuthError("invalid_redirect_uri", "redirect URIs with this host are not accepted here")

    # ---------------------------------------------------------------- lookup

    async def find(self, client_id: str) -> ProxyClient:
        """Return a client.

        Args:
            client_id: Its id, or the URL of its metadata document.

        Returns:
            The client.

        Raises:
            OAuthError: `invalid_client`: it is unknown, or its document can't be used.
        """
        if "://" in client_id:
            return await self._find_document(client_id)
        client = None
        if _CLIENT_ID.fullmatch(client_id):
            client = await self._store.get("client", client_id, ProxyClient)
            if client is None and not self._store.shared and self._store.has_signed(client_id):
                logger.warning(
                    "A client is not known that another process of this server has registered, or this one before it was started: "
                    "use Server(backend=…) or OAuthProxy(backend=…), so that processes share registrations and logins"
                )
        if client is None:
            raise OAuthError("invalid_client", "the client is not registered, or no longer: register it anew", 401)
        return client

    async def keep(self, client: ProxyClient) -> None:
        """Keep the registration of a client that somebody has logged in with. Writes at most once a day.

        If the store fails this is done at the next use: the tokens that were made now are not lost for it.
        """
        if "://" not in client.id and not (client.used and time.time() - client.stored < UNUSED_SECONDS):
            client.used, client.stored = True, time.time()
            try:
                await self._store.update("client", client.id, ProxyClient, lambda _: (client, REGISTRATION_SECONDS))
            except (BackendError, Overloaded) as exc:
                logger.warning("a registration could not be renewed: %s", exc)

    async def _find_document(self, url: str) -> ProxyClient:
        """A client by its document. Results are remembered, failures for a short time."""
        now = time.monotonic()
        remembered = self._documents.get(url)
        if remembered is not None and now < remembered[0]:
            result = remembered[1]
        else:
            try:
                result = await self._fetch_document(url)
                seconds = _DOCUMENT_SECONDS
            except OAuthError as exc:
                result, seconds = exc, _FAILURE_SECONDS
            self._documents.pop(url, None)
            if len(self._documents) >= _DOCUMENTS:
                del self._documents[next(iter(self._documents))]
            self._documents[url] = (now + seconds, result)
        if isinstance(result, OAuthError):
            raise OAuthError(result.error, result.description, result.status)
        return result

    async def _fetch_document(self, url: str) -> ProxyClient:
        """Fetch and check a document (draft-ietf-oauth-client-id-metadata-document §3 and §4)."""
        parts = urlsplit(url) if len(url) <= 2048 and url.isascii() and url.isprintable() else None
        if parts is None or parts.path in ("", "/") or parts.fragment or "#" in url or "@" in parts.netloc:
            raise OAuthError("invalid_client", "a client_id that is a URL has a path, no fragment and no user", 401)
        if any(segment in (".", "..") for segment in parts.path.lower().replace("%2e", ".").split("/")):
            raise OAuthError("invalid_client", "a client_id that is a URL has no . or .. in its path", 401)
        metadata = self._read((await self._fetch(url)).body)
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

    async def _fetch(self, url: str) -> HttpResponse:
        if self._fetches >= _FETCHES:
            raise OAuthError("temporarily_unavailable", "too many documents are being fetched: try again later", 503)
        self._fetches += 1
        try:
            response = await self._fetch_url(HttpRequest("GET", url, (("accept", "application/json"),)))
        except AuthorizationFailed as exc:
            raise OAuthError("invalid_client", "the client's document can not be fetched", 401) from exc
        finally:
            self._fetches -= 1
        if response.status != 200 or response.url != url:  # redirects are not followed
            raise OAuthError("invalid_client", "the client's document is not at its URL", 401)
        return response

    # ---------------------------------------------------------------- authentication

    async def authenticate(self, request: WebRequest) -> ProxyClient:
        """Find and authenticate the client of a request to the token or revocation endpoint.

        Args:
            request: The request.

        Returns:
            The client.

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
        client = await self.find(client_id)
        if client.signs:
            if assertion is None or optional(request, "client_assertion_type") != ASSERTION_TYPE:
                raise OAuthError("invalid_client", "the client authenticates with private_key_jwt", 401)
            await self._verify(client, assertion)
        elif assertion is not None:
            raise OAuthError("invalid_client", "the client has no keys for an assertion", 401)
        return client

    async def _verify(self, client: ProxyClient, assertion: str) -> None:
        """Verify an assertion (RFC 7523 §3): signed by the client, for this server, short-lived, used once."""
        try:
            _, claims = verify_jwt(assertion, await self._keys(client))
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
        elif not await self._store.claim("assertion", f"{client.id} {jti}", expires - now + 2 * _LEEWAY):
            problem = "it was used already"
        else:
            return
        raise OAuthError("invalid_client", f"the client assertion is refused: {problem}", 401)

    async def _keys(self, client: ProxyClient) -> list[WebKey]:
        try:
            if client.jwks is not None:
                return import_keys(client.jwks)
            assert client.jwks_uri is not None
            remembered = self._key_sets.get(client.jwks_uri)
            if remembered is not None and time.monotonic() < remembered[0]:
                return remembered[1]
            response = await self._fetch(client.jwks_uri)
            keys = import_keys(msgspec.json.decode(response.body[:MAX_DOCUMENT]))
        except (ValueError, msgspec.MsgspecError, RecursionError):
            raise OAuthError("invalid_client", "the keys of the client can not be read", 401) from None
        if len(self._key_sets) >= _DOCUMENTS:
            del self._key_sets[next(iter(self._key_sets))]
        self._key_sets[client.jwks_uri] = (time.monotonic() + _DOCUMENT_SECONDS, keys)
        return keys
