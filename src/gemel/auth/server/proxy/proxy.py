"""The OAuth proxy: an authorization server of our own, in front of an identity provider that knows no dynamic registration.

Clients register here and get tokens of this server; people log in with the provider, where the proxy is the one registered
application. Specification: Authorization; Security Best Practices, "Confused Deputy Problem".
"""

from __future__ import annotations

import inspect
import logging
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlencode, urlsplit

from gemel.auth.flow import Fetcher, Flow, HttpRequest, HttpResponse
from gemel.auth.jose import load_joserfc
from gemel.auth.metadata import AuthorizationServer, canonical_resource
from gemel.auth.server.backing import Backing
from gemel.auth.server.jwks import SingleFlight
from gemel.auth.server.proxy.consent import consent_page, error_page
from gemel.auth.server.proxy.documents import TooBusy
from gemel.auth.server.proxy.grants import Grant, GrantHooks, Grants, Lifetimes
from gemel.auth.server.proxy.lookups import Lookups
from gemel.auth.server.proxy.providers import Provider, may_answer_as
from gemel.auth.server.proxy.redirects import EDITOR_SCHEMES, is_loopback, matches
from gemel.auth.server.proxy.registration import Clients
from gemel.auth.server.proxy.store import ProxyStore, Vault, digest, random_text
from gemel.auth.server.proxy.upstream import (
    Endpoints,
    UpstreamRefused,
    discover,
    exchange_code,
    read_user,
    refresh_tokens,
    renew_claims,
    revoke_tokens,
)
from gemel.auth.server.proxy.web import (
    FORM,
    NO_STORE,
    OAuthError,
    WebEndpoint,
    WebReply,
    WebRequest,
    field,
    json_reply,
    optional,
)
from gemel.auth.server.resource import TokenAuth
from gemel.auth.server.shared_work import GaveWay, SharedWork
from gemel.auth.url_rules import UrlRules, is_loopback_name
from gemel.backends.base import Backend
from gemel.backends.server_backend import ServerBackend
from gemel.errors import AuthorizationFailed, DefinitionError
from gemel.http1.asgi import AsgiApp, HeaderPairs
from gemel.http1.cookies import cookie_values
from gemel.protocol.http.request import Principal
from gemel.protocol.records import Record
from gemel.shares import address_share

logger = logging.getLogger("gemel")

#: Seconds for a person to decide, and then to log in with the provider.
LOGIN_SECONDS: Final = 600.0
#: Seconds for which an access token is accepted without a look into the store. A revoked one is good for so long elsewhere.
CHECK_SECONDS: Final = 30.0
#: Seconds for which the metadata of the provider is used.
_DISCOVERY_SECONDS: Final = 3600.0
#: Seconds until the metadata is asked for again that could not be read.
_DISCOVERY_PAUSE: Final = 60.0
_MAX_STATE: Final = 2048
#: Characters of a sealed login: it comes back in the URL of the callback, and gateways have limits of 8 kB.
_MAX_LOGIN: Final = 5000
#: Logins that are completed at the provider at once.
_COMPLETIONS: Final = 64
#: Names in URLs of clients that are looked up at once, each in a thread.
_LOOKUPS: Final = 64
_CHALLENGE_LENGTH: Final = 43
_BASE64URL: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
#: What a redirect after a person's decision or login carries.
_REDIRECT: HeaderPairs = (*NO_STORE, (b"referrer-policy", b"no-referrer"))
_PUBLIC: HeaderPairs = ((b"cache-control", b"public, max-age=300"),)

ResultT = TypeVar("ResultT")
Allow: TypeAlias = Callable[[Mapping[str, Any]], bool | Awaitable[bool]]


class Login(Record, array_like=True):
    """An authorization request of a client. It is sealed for one browser, which carries it: nothing is stored for it.

    What the provider may know is derived from `id`, which nobody else can read. `expires` is in Unix seconds. `asked` tells
    whether a person was asked, and not only remembered to have agreed.
    """

    id: str
    client_id: str
    redirect_uri: str
    challenge: str
    scopes: tuple[str, ...]
    state: str | None
    expires: float
    asked: bool

    @property
    def verifier(self) -> str:
        """The PKCE verifier of the request to the provider."""
        return digest(f"verifier {self.id}")

    @property
    def nonce(self) -> str:
        """The `nonce` of the request to the provider."""
        return digest(f"nonce {self.id}")


class ConsentForm(Record):
    """What the consent page carries: the sealed login, which becomes the `state` at the provider when the person agrees."""

    login: str
    expires: float


class Consent(Record):
    """A client was allowed in a browser before."""

    scopes: tuple[str, ...]


class OAuthProxy(TokenAuth):
    """Authorization for a server, with an identity provider that knows neither metadata documents of clients nor registration.

    Register one application at the provider, with the redirect URI `callback_url`. The tokens of the provider stay here;
    clients get short-lived tokens for this server alone.

    Args:
        provider: The identity provider, such as `GitHub(client_id=…, client_secret=…)`.
        url: The public URL of the MCP endpoint, as clients write it.
        issuer: The public base URL of the authorization endpoints; by default the origin of `url`.
        scopes: Scopes that clients may ask for. They are scopes of this server, not of the provider.
        required_scopes: Scopes that every token has; a part of `scopes`.
        provider_scopes: Scopes that the provider must grant, a part of those that it is asked for. A login without them is
            refused, and ends when the provider takes them back.
        allow: Called with the claims of the user at each login, and again at each refresh: whether this user may. By default
            everybody may who can log in with the provider, which for public ones is everybody.
        backend: Where grants are kept, encrypted: `sqlite:///path`, or an object. By default the backend of the server if other
            processes share it, else the memory of this process.
        keys: Secrets of at least 32 bytes, the current one first; old ones stay for a time when keys change. They sign the ids of
            registered clients, too. By default they are derived from the client secret of the provider.
        access_ttl: Seconds for which an access token is good.
        refresh_ttl: Seconds for which a login lasts since its last refresh.
        grace: Seconds in which a refresh may be repeated with the same refresh token.
        remember_consent: Seconds for which a browser is not asked again about a client, when the login was not started by
            another site. 0 asks each time, which is the safest: a malicious server can start a login in the name of a client
            that the user knows.
        register: Whether clients may register dynamically. Those with a client ID metadata document need not.
        redirect_hosts: Hosts that redirect URIs with https may have; None for all.
        redirect_schemes: Private schemes without a dot that redirect URIs may have.

    Raises:
        DefinitionError: A URL, a key or a scope is not possible, or several processes would have different keys.
        StartError: The extra `gemel[auth]` is not installed: clients may sign what they send.

    Example:
        >>> auth = OAuthProxy(GitHub(client_id="…", client_secret="…"), url="https://notes.example.com/mcp")
        >>> server = Server("notes", auth=auth)
    """

    def __init__(
        self,
        provider: Provider,
        *,
        url: str,
        issuer: str | None = None,
        scopes: Sequence[str] = (),
        required_scopes: Sequence[str] = (),
        provider_scopes: Sequence[str] = (),
        allow: Allow | None = None,
        backend: Backend | str | None = None,
        keys: Sequence[bytes] = (),
        access_ttl: float = 600.0,
        refresh_ttl: float = 30 * 86400.0,
        grace: float = 60.0,
        remember_consent: float = 0.0,
        register: bool = True,
        redirect_hosts: Collection[str] | None = None,
        redirect_schemes: Collection[str] = EDITOR_SCHEMES,
    ) -> None:
        load_joserfc()
        self.url = _public_url("url", url)
        parts = urlsplit(self.url)
        self.issuer = (
            f"{parts.scheme}://{parts.netloc}" if issuer is None else _public_url("issuer", issuer).rstrip("/")
        )
        if urlsplit(self.issuer).query:
            raise DefinitionError(f"issuer={issuer!r} is not possible: it has no query")
        super().__init__(
            self._find_caller,
            resource=self.url,
            required_scopes=required_scopes,
            scopes_supported=(*scopes, *required_scopes),
            authorization_servers=[self.issuer],
            remember=CHECK_SECONDS,
        )
        self.scopes = tuple(dict.fromkeys((*scopes, *required_scopes)))
        if refresh_ttl <= 0 or access_ttl <= 0 or grace < 0 or remember_consent < 0:
            raise DefinitionError(
                "access_ttl and refresh_ttl are seconds, more than 0; grace and remember_consent at least 0"
            )
        needed = {*provider_scopes, *provider.required_scopes}
        unasked = sorted(needed - set(provider.scopes))
        if unasked:
            raise DefinitionError(
                f"provider_scopes: {unasked[0]!r} is not asked for: write it into scopes= of the provider"
            )
        self._provider = provider
        self._provider_scopes = frozenset(needed)
        self._allow = allow
        self._remember_consent = remember_consent
        local = is_loopback_name(urlsplit(self.issuer).hostname or "")
        self._origin = _origin_of(self.issuer)
        self._cookie = "gemel_login" if self.issuer.startswith("http:") else "__Host-gemel_login"
        self._backing = Backing(backend)
        self._has_keys = bool(keys) or provider.client_secret is not None
        self._check_keys()
        vault = Vault(_ring(provider, keys), self.issuer)
        self._vault = vault
        self._store = ProxyStore(self._backing, vault, f"{self.issuer} {self.url}")
        named = (provider.issuer, provider.authorization_endpoint, provider.token_endpoint)
        endpoints = (*named, provider.userinfo_endpoint, provider.revocation_endpoint)
        trusted = [place for place in endpoints if place is not None]
        self._provider_rules = UrlRules(self.issuer if local else None, trusted=trusted)
        self._client_server = self.issuer if local else None
        self._lookups = Lookups(_LOOKUPS)
        self._clients = Clients(
            vault,
            self._store,
            self._fetch_for_client,
            self.issuer,
            f"{self.issuer}/token",
            redirect_schemes=redirect_schemes,
            redirect_hosts=redirect_hosts,
            register=register,
        )
        lifetimes = Lifetimes(access_ttl, refresh_ttl, grace)
        hooks = GrantHooks(self._renew, self._is_allowed, self._on_end)
        self._grants = Grants(self._store, vault, self.url, lifetimes, hooks)
        self._discovered: tuple[float, Endpoints] | None = None
        self._discovery: SingleFlight[Endpoints] = SingleFlight()
        self._completions: SharedWork[WebReply] = SharedWork(_COMPLETIONS)
        self._register = register

    def __repr__(self) -> str:
        return f"OAuthProxy({self._provider!r}, url={self.url!r})"

    @property
    def callback_url(self) -> str:
        """The redirect URI to register with the provider."""
        return f"{self.issuer}/auth/callback"

    def use_backend(self, backend: ServerBackend, /) -> None:
        """Keep everything under the name of the server, which calls this. The first server counts.

        Args:
            backend: That of the server.
        """
        super().use_backend(backend)
        self._backing.use_backend(backend)
        self._check_keys()

    def _check_keys(self) -> None:
        if self._backing.backend.shared and not self._has_keys:
            raise DefinitionError(
                "OAuthProxy needs keys=…: several processes share its backend, and without a client secret each would make its own"
            )

    @property
    def not_shared(self) -> str:
        """Grants, without a backend."""
        return self._backing.missed_by_others("the logins of OAuthProxy")

    async def close(self) -> None:
        """Close the backend that was named by its URL; it is opened again when it is needed."""
        await super().close()
        await self._backing.close()

    # ---------------------------------------------------------------- resource server

    async def _find_caller(self, token: str) -> Principal | None:
        """Who is calling with an access token of this server."""
        access = self._grants.read_access(token)
        grant = None if access is None else await self._grants.find(access.grant)
        if access is None or grant is None:
            return None
        claims = {**grant.claims, "grant": grant.id}
        return Principal(grant.subject, frozenset(access.scopes), claims, access.expires, grant.client_id)

    async def upstream_token(self, grant: str) -> str:
        """Return the access token of the provider for the user of a grant, renewed if it ends soon.

        Args:
            grant: The grant, `ctx.claims["grant"]`.

        Returns:
            The token, for calls to the provider. Never give it to a client.

        Raises:
            AuthorizationFailed: The login has ended, or the provider gives no new token.
        """
        return await self._grants.upstream_token(grant)

    def routes(self, endpoint_path: str = "/mcp", /) -> dict[str, AsgiApp]:
        """Return the apps of the authorization endpoints and of the metadata documents.

        Args:
            endpoint_path: The path of the MCP endpoint in this app. What the public URL has before it is removed by a gateway.

        Returns:
            ASGI apps by path.
        """
        public, base = urlsplit(self.url).path, urlsplit(self.issuer).path
        removed = public.removesuffix(endpoint_path) if public.endswith(endpoint_path) else ""
        local = base.removeprefix(removed)
        pages = {
            "/authorize": {"GET": self._authorize},
            "/auth/consent": {"POST": self._consent},
            "/auth/callback": {"GET": self._callback},
        }
        services = {"/token": {"POST": self._token}, "/revoke": {"POST": self._revoke}}
        if self._register:
            services["/register"] = {"POST": self._clients.register}
        apps = super().routes(endpoint_path)
        for path, handlers in pages.items():
            apps[local + path] = WebEndpoint(handlers, on_error=error_page)
        for path, handlers in services.items():
            apps[local + path] = WebEndpoint(handlers, cors=True)
        server = WebEndpoint({"GET": self._server_metadata}, cors=True)
        for suffix in ("", base, local):
            apps[f"/.well-known/oauth-authorization-server{suffix}"] = server
        return apps

    # ---------------------------------------------------------------- metadata

    async def _server_metadata(self, request: WebRequest) -> WebReply:
        document = AuthorizationServer(
            issuer=self.issuer,
            authorization_endpoint=f"{self.issuer}/authorize",
            token_endpoint=f"{self.issuer}/token",
            registration_endpoint=f"{self.issuer}/register" if self._register else None,
            revocation_endpoint=f"{self.issuer}/revoke",
            scopes_supported=list(self.scopes) or None,
            response_types_supported=["code"],
            response_modes_supported=["query"],
            grant_types_supported=["authorization_code", "refresh_token"],
            token_endpoint_auth_methods_supported=["none", "private_key_jwt"],
            token_endpoint_auth_signing_alg_values_supported=["ES256", "RS256", "PS256", "EdDSA"],
            revocation_endpoint_auth_methods_supported=["none", "private_key_jwt"],
            code_challenge_methods_supported=["S256"],
            authorization_response_iss_parameter_supported=True,
            client_id_metadata_document_supported=True,
        )
        return json_reply(document, headers=_PUBLIC)

    # ---------------------------------------------------------------- pages

    async def _authorize(self, request: WebRequest) -> WebReply:
        """The authorization endpoint (RFC 6749 §4.1.1): ask the person at the browser."""
        client = await self._clients.find(field(request, "client_id"), request.address)
        redirect_uri = field(request, "redirect_uri")
        is_own = redirect_uri.partition("?")[0] == self.callback_url
        if is_own or not matches(client.redirect_uris, redirect_uri):
            raise OAuthError("invalid_request", "the redirect_uri is not one of those that the client has registered")
        self._clients.check_redirect_uri(redirect_uri)
        try:
            login = self._read_login(request, client.id, redirect_uri)
        except OAuthError as exc:
            # Anybody can register a page: a browser is sent there only after the person has agreed (RFC 9700 §4.11.2).
            if not is_loopback(redirect_uri):
                raise
            return self._redirect(redirect_uri, request.form.get("state"), error=exc.error, error_description=str(exc))
        browser = self._browser(request) or random_text()
        login.asked = not await self._is_remembered(request, login, browser)
        sealed = self._vault.seal(login, f"login {browser}")
        if len(sealed) > _MAX_LOGIN:
            raise OAuthError("invalid_request", "client_id, redirect_uri and state are too long together")
        if not login.asked:
            return await self._to_provider(login, sealed, browser)
        endpoints = await self._endpoints_or_fail()
        form = ConsentForm(sealed, time.time() + LOGIN_SECONDS)
        return consent_page(
            client_id=client.id,
            client_name=client.name,
            redirect_uri=redirect_uri,
            resource=self.url,
            provider=self._provider.title,
            provider_url=endpoints.authorization,
            scopes=login.scopes,
            action=f"{self.issuer}/auth/consent",
            sealed=self._vault.seal(form, f"consent {browser}"),
            headers=(self._set_cookie(browser),),
        )

    def _read_login(self, request: WebRequest, client_id: str, redirect_uri: str) -> Login:
        form = request.form
        if request.repeated:
            raise OAuthError("invalid_request", "a parameter came more than once")
        if "request" in form or "request_uri" in form:
            raise OAuthError("request_not_supported", "request objects are not supported")
        if form.get("response_type") != "code" or form.get("response_mode", "query") != "query":
            raise OAuthError("unsupported_response_type", "the response_type must be code, the response_mode query")
        if form.get("prompt") == "none":
            raise OAuthError("interaction_required", "a person has to agree")
        challenge = form.get("code_challenge", "")
        is_hash = len(challenge) == _CHALLENGE_LENGTH and _BASE64URL.issuperset(challenge)
        if form.get("code_challenge_method") != "S256" or not is_hash:
            raise OAuthError("invalid_request", "a code_challenge with the code_challenge_method S256 is needed")
        state = form.get("state")
        if state is not None and len(state) > _MAX_STATE:
            raise OAuthError("invalid_request", f"the state has more than {_MAX_STATE} characters")
        self._check_resource(request)
        requested = form.get("scope", "").split()
        granted = [scope for scope in self.scopes if scope in requested or scope in self.required_scopes]
        expires = time.time() + 2 * LOGIN_SECONDS
        return Login(random_text(), client_id, redirect_uri, challenge, tuple(granted), state, expires, True)

    def _check_resource(self, request: WebRequest) -> None:
        """Tokens are for this resource alone (RFC 8707 §2)."""
        named = request.form.get("resource")
        if named is None:
            return
        try:
            same = canonical_resource(named).rstrip("/") == self.url.rstrip("/")
        except ValueError:
            same = False
        if not same or "resource" in request.repeated:
            raise OAuthError("invalid_target", "tokens are issued for this server alone: see its metadata")

    async def _consent(self, request: WebRequest) -> WebReply:
        """The person has decided. The form is only good from our own page, in the browser that it was made for."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site not in (None, "same-origin") or origin not in (None, self._origin):
            raise OAuthError("access_denied", "the form was not sent by the page of this server", 403)
        browser = self._browser(request)
        sealed = field(request, "request")
        form = None if browser is None else self._vault.unseal(sealed, ConsentForm, f"consent {browser}")
        login = None if form is None else self._vault.unseal(form.login, Login, f"login {browser}")
        if browser is None or form is None or login is None:
            raise OAuthError("access_denied", "the page belongs to another browser, or cookies are blocked", 403)
        if form.expires < time.time():
            raise OAuthError("access_denied", "the page is too old")
        if field(request, "decision") != "allow":
            return self._redirect(login.redirect_uri, login.state, error="access_denied")
        return await self._to_provider(login, form.login, browser)

    async def _is_remembered(self, request: WebRequest, login: Login, browser: str) -> bool:
        if not self._remember_consent or request.headers.get("sec-fetch-site") not in ("none", "same-origin"):
            return False
        consent = await self._store.get("consent", f"{browser} {login.client_id} {login.redirect_uri}", Consent)
        return consent is not None and set(login.scopes) <= set(consent.scopes)

    async def _to_provider(self, login: Login, sealed: str, browser: str) -> WebReply:
        """Send the browser to the provider. A form that is sent twice continues the same login."""
        endpoints = await self._endpoints_or_fail()
        provider = self._provider
        parameters = {
            **provider.parameters,
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": self.callback_url,
            "state": sealed,
        }
        if provider.scopes:
            parameters["scope"] = " ".join(provider.scopes)
        if provider.issuer is not None:
            parameters["nonce"] = login.nonce
        if provider.pkce:
            parameters["code_challenge"] = urlsafe_b64encode(_hash(login.verifier)).decode().rstrip("=")
            parameters["code_challenge_method"] = "S256"
        location = _with_query(endpoints.authorization, parameters)
        return WebReply(303, b"", ((b"location", location.encode()), self._set_cookie(browser), *_REDIRECT))

    async def _callback(self, request: WebRequest) -> WebReply:
        """The provider sends the browser back: the one that agreed. A login leads to one grant."""
        sealed, browser = field(request, "state"), self._browser(request)
        login = None if browser is None else self._vault.unseal(sealed, Login, f"login {browser}")
        if browser is None or login is None:
            raise OAuthError("access_denied", "the login is unknown, or was started in another browser", 403)
        if login.expires < time.time():
            raise OAuthError("access_denied", "the login has expired")
        endpoints = await self._endpoints_or_fail()
        self._check_response_issuer(request, endpoints)
        error = optional(request, "error")
        if error is not None:
            logger.info("the identity provider refused a login: %r", error[:60])
            code = error if error in ("access_denied", "temporarily_unavailable") else "server_error"
            return self._redirect(login.redirect_uri, login.state, error=code)
        code = field(request, "code")
        if login.id in self._completions:
            raise _completed()
        try:
            return await self._completions.run(
                login.id, address_share(request.address), lambda: self._complete(login, browser, endpoints, code)
            )
        except GaveWay:
            raise TooBusy from None
        except AuthorizationFailed as exc:
            logger.warning("a login failed: %s", exc)
            code = "access_denied" if isinstance(exc, UpstreamRefused) else "server_error"
            return self._redirect(login.redirect_uri, login.state, error=code)

    async def _complete(self, login: Login, browser: str, endpoints: Endpoints, code: str) -> WebReply:
        """Ask the provider who has logged in, and store the grant: the first thing that is stored of a login."""
        if await self._grants.has_grant(login.id):
            raise _completed()
        provider = self._provider
        tokens = await self._run(
            exchange_code(provider, endpoints, code, login.verifier, self.callback_url, granted=self._provider_scopes)
        )
        claims = await self._run(read_user(provider, endpoints, tokens, login.nonce))
        if not await self._is_allowed(claims):
            return self._redirect(login.redirect_uri, login.state, error="access_denied")
        if self._remember_consent and login.asked:
            name = f"{browser} {login.client_id} {login.redirect_uri}"
            await self._store.set("consent", name, Consent(login.scopes), self._remember_consent)
        own = await self._grants.make_code(
            login.id, login.client_id, login.redirect_uri, login.challenge, login.scopes, claims, tokens
        )
        if own is None:
            raise _completed()
        return self._redirect(login.redirect_uri, login.state, code=own)

    def _check_response_issuer(self, request: WebRequest, endpoints: Endpoints) -> None:
        """Notice the response of another provider (RFC 9207 §2.4)."""
        named = optional(request, "iss")
        if named is None and not endpoints.sends_issuer:
            return
        if self._provider.issuer is not None and not may_answer_as(self._provider, named):
            raise OAuthError("access_denied", "the response is of another identity provider", 403)

    def _redirect(self, redirect_uri: str, state: str | None, **parameters: str) -> WebReply:
        """Send the browser back to the client, with our issuer (RFC 9207)."""
        if state is not None:
            parameters["state"] = state
        location = _with_query(redirect_uri, {**parameters, "iss": self.issuer})
        return WebReply(303, b"", ((b"location", location.encode()), *_REDIRECT))

    # ---------------------------------------------------------------- browser

    def _browser(self, request: WebRequest) -> str | None:
        """What identifies the browser; None if it has no cookie of ours, or several."""
        values = cookie_values([(b"cookie", request.headers.get("cookie", "").encode("latin-1"))], self._cookie)
        if len(values) != 1 or len(values[0]) != _CHALLENGE_LENGTH or not _BASE64URL.issuperset(values[0]):
            return None
        return values[0]

    def _set_cookie(self, browser: str) -> tuple[bytes, bytes]:
        secure = "" if self.issuer.startswith("http:") else "; Secure"
        seconds = int(max(2 * LOGIN_SECONDS, self._remember_consent))
        text = f"{self._cookie}={browser}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
        return (b"set-cookie", text.encode())

    # ---------------------------------------------------------------- tokens

    async def _token(self, request: WebRequest) -> WebReply:
        """The token endpoint (RFC 6749 §3.2)."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            raise OAuthError("invalid_request", f"parameters are sent as {FORM}")
        self._check_resource(request)
        grant_type = field(request, "grant_type")
        if grant_type not in ("authorization_code", "refresh_token"):
            raise OAuthError("unsupported_grant_type", "use authorization_code or refresh_token")
        authenticated = await self._clients.authenticate(request)
        client, notice = authenticated.client, partial(self._clients.use_up, authenticated)
        if grant_type == "refresh_token":
            token, scope = field(request, "refresh_token"), optional(request, "scope")
            return json_reply(await self._grants.refresh(client, token, scope, notice))
        code, verifier = field(request, "code"), field(request, "code_verifier")
        return json_reply(await self._grants.redeem(client, code, verifier, optional(request, "redirect_uri"), notice))

    async def _revoke(self, request: WebRequest) -> WebReply:
        """The revocation endpoint (RFC 7009)."""
        authenticated = await self._clients.authenticate(request)
        notice = partial(self._clients.use_up, authenticated)
        tokens = await self._grants.revoke(authenticated.client, field(request, "token"), notice)
        if tokens is not None:
            try:
                endpoints = await self._endpoints()
                await self._run(revoke_tokens(self._provider, endpoints, tokens))
            except AuthorizationFailed as exc:
                logger.warning("tokens of the identity provider were not revoked: %s", exc)
        return json_reply({})

    # ---------------------------------------------------------------- for the grants

    async def _renew(self, grant: Grant) -> None:
        """Renew the tokens of the provider in a grant. Raises UpstreamRefused and AuthorizationFailed."""
        endpoints = await self._endpoints()
        refresh = refresh_tokens(self._provider, endpoints, grant.upstream, granted=self._provider_scopes)
        grant.upstream = await self._run(refresh)
        if grant.upstream.id_token is not None:
            grant.claims = renew_claims(self._provider, grant.claims, grant.upstream.id_token)

    async def _is_allowed(self, claims: Mapping[str, Any]) -> bool:
        """Whether a user with these claims may use the server."""
        if self._allow is None:
            return True
        allowed = self._allow(claims)
        return bool(await allowed if inspect.isawaitable(allowed) else allowed)

    def _on_end(self, grant_id: str) -> None:
        """Forget the tokens of a grant that was ended before its time."""
        self.forget(lambda caller: caller.claims.get("grant") == grant_id)

    # ---------------------------------------------------------------- provider

    async def _run(self, flow: Flow[ResultT]) -> ResultT:
        async with Fetcher(self._provider_rules) as fetcher:
            return await fetcher.run(flow)

    async def _endpoints(self) -> Endpoints:
        """The endpoints of the provider; those that were found before while its metadata can't be read."""
        if self._discovered is None or time.monotonic() > self._discovered[0]:
            return await self._discovery.run(None, self._discover)
        return self._discovered[1]

    async def _discover(self) -> Endpoints:
        try:
            endpoints, seconds = await self._run(discover(self._provider)), _DISCOVERY_SECONDS
        except AuthorizationFailed as exc:
            if self._discovered is None:
                raise
            logger.warning("the metadata of the identity provider can't be read again: %s", exc)
            endpoints, seconds = self._discovered[1], _DISCOVERY_PAUSE
        self._discovered = (time.monotonic() + seconds, endpoints)
        return endpoints

    async def _endpoints_or_fail(self) -> Endpoints:
        try:
            return await self._endpoints()
        except AuthorizationFailed as exc:
            logger.warning("the identity provider can't be reached: %s", exc)
            raise OAuthError("temporarily_unavailable", "the identity provider can not be reached", 503) from None

    async def _fetch_for_client(self, request: HttpRequest, share: str) -> HttpResponse:
        rules = UrlRules(self._client_server, look_up=partial(self._lookups.resolve, share))
        rules.check_endpoint(request.url)
        async with Fetcher(rules) as fetcher:
            return await fetcher.fetch(request)


def _completed() -> OAuthError:
    return OAuthError("access_denied", "the login was completed already")


def _ring(provider: Provider, keys: Sequence[bytes]) -> Sequence[bytes]:
    if keys:
        return keys
    if provider.client_secret is None:
        return (os.urandom(32),)
    return (sha256(f"gemel oauth proxy {provider.client_id} {provider.client_secret}".encode()).digest(),)


def _public_url(option: str, url: str) -> str:
    """A URL of this server: https, or http on loopback; canonical, since it is compared as text."""
    try:
        canonical = canonical_resource(url)
    except ValueError as exc:
        raise DefinitionError(f"{option}={url!r} is not possible: {exc}") from None
    parts = urlsplit(canonical)
    if parts.scheme != "https" and not is_loopback_name(parts.hostname or ""):
        raise DefinitionError(f"{option}={url!r} is not possible: use https; http is for loopback addresses")
    return canonical


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _with_query(url: str, parameters: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


def _hash(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()
