"""Programs that authorize without a person: client credentials, workload identity, enterprise-managed authorization.

Specification: the extensions `oauth-client-credentials` and `enterprise-managed-authorization`; RFC 7523, RFC 8693.
"""

from __future__ import annotations

import inspect
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack
from urllib.parse import urlencode, urlsplit

import msgspec

from gemel.auth.challenge import Challenge, find_challenge, parse_challenges
from gemel.auth.client.discovery import Discovered, discover
from gemel.auth.client.dpop import DPoP, authorization, needs_nonce
from gemel.auth.client.issuer_pin import IssuerPin
from gemel.auth.client.stores import MemoryTokenStore
from gemel.auth.client.token_request import (
    IssuerOptions,
    Proof,
    RegisteredClient,
    TokenRequestFailed,
    authenticate,
    is_success,
    read_answer,
    read_error,
    request_tokens,
    secrets_in,
    sign_assertion,
)
from gemel.auth.client.tokens import Tokens, TokenSource, TokenStore, token_key
from gemel.auth.client.workload import WorkloadToken
from gemel.auth.flow import Fetcher, Flow, HttpRequest, HttpResponse, begin_with
from gemel.auth.url_rules import UrlRules, describe, is_loopback_name
from gemel.errors import AuthorizationFailed, DefinitionError, HttpStatus
from gemel.http1.client.network import DEFAULT_TLS
from gemel.http1.client.pool import SocketWire
from gemel.http1.client.wire import HeaderPairs
from gemel.options import check_names
from gemel.protocol.deviations import Deviations
from gemel.transports.http.client.options import Network

if TYPE_CHECKING:
    from gemel.auth.jose import WebKey

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
#: Seconds in which nothing is requested again after an authorization server refused: repeated refusals lock accounts.
PAUSE: Final = 30.0
#: Seconds in which the refusal of a token that replaced another one does not lead to a third one.
_NEW: Final = 10.0


class MachineOptions(TypedDict, total=False):
    """Options of every way to authorize without a person."""

    #: Scopes to request; by default those of the server's challenge, or those that it names in its metadata.
    scopes: Sequence[str]
    #: The authorization server that the credentials are for. No other one gets them. Default: what the first MCP server
    #: names that they are used for.
    issuer: str | None
    #: Issuers that the metadata of an authorization server may name although it was requested for another one.
    accept_issuers: Collection[str]
    #: Whether the authorization server may be in a private network, and use http.
    private_networks: bool
    #: Where tokens are kept; in memory by default.
    store: TokenStore | None
    #: Binds the tokens to a key: `DPoP()`.
    proof: DPoP | None
    #: What to send as `resource` to the authorization server `issuer`: the identifier that the MCP server publishes by default,
    #: another URI, or False for servers that refuse the parameter.
    resource: str | bool
    #: Further parameters of token requests to `issuer`, such as `{"audience": "…"}`.
    token_parameters: Mapping[str, str]


class MachineAuth(ABC):
    """A way to authorize without a person. Give it to `auth=` of a client; it may serve several clients.

    Args:
        client: The client at the authorization server.
        **options: See MachineOptions.

    Raises:
        DefinitionError: An option can't work.
    """

    #: Extensions of the protocol that the client declares, with their settings.
    extensions: Mapping[str, Mapping[str, Any]] = {}

    def __init__(self, client: _MachineClient, **options: Unpack[MachineOptions]) -> None:
        check_names(options, MachineOptions.__annotations__, type(self).__name__)
        if isinstance(options.get("scopes"), str):
            raise DefinitionError('scopes is a list: scopes=["notes"]')
        self.scopes = tuple(options.get("scopes", ()))
        self.issuer = options.get("issuer")
        self.accept_issuers = frozenset(options.get("accept_issuers", ()))
        self.private_networks = options.get("private_networks", False)
        self.store: TokenStore = options.get("store") or MemoryTokenStore()
        self.proof = options.get("proof")
        self._client = client
        self._pin = IssuerPin()
        parameters = dict(options.get("token_parameters", {}))
        self.at_issuer = IssuerOptions(resource=options.get("resource", True), parameters=parameters)
        self.at_issuer.check(self.issuer)

    def __repr__(self) -> str:
        """The class only: options are secret."""
        return f"<{type(self).__name__}>"

    @property
    def client_id(self) -> str:
        """The id of the client at the authorization server, "" for none."""
        return self._client.registered.client_id

    async def request(
        self, fetcher: Fetcher, found: Discovered, scopes: tuple[str, ...], proof: Proof | None
    ) -> Tokens:
        """Request an access token, once.

        Args:
            fetcher: Makes requests to the authorization server.
            found: The authorization server.
            scopes: The scopes to request.
            proof: Binds the token to a key.

        Returns:
            The token.

        Raises:
            AuthorizationFailed: There is none.
        """
        form = await self._grant(fetcher, found, scopes)
        return await fetcher.run(self._client.request(found, form, proof))

    @abstractmethod
    async def _grant(self, fetcher: Fetcher, found: Discovered, scopes: tuple[str, ...]) -> dict[str, str | None]:
        """The parameters of the token request, except for those that authenticate the client."""

    @property
    def is_for_one_issuer(self) -> bool:
        """Whether what is sent to one authorization server could be used at another one."""
        return True

    def choose_issuer(self, issuer: str, url: str) -> None:
        """Take the authorization server that an MCP server names.

        Args:
            issuer: The issuer.
            url: The URL of the MCP server.

        Raises:
            AuthorizationFailed: The credentials are those for another one.
        """
        if self.issuer is None and self.is_for_one_issuer:
            self._pin.check(issuer, url)

    def _wish(self, found: Discovered, scopes: Sequence[str]) -> dict[str, str | None]:
        """The parameters of a token request that say what the token is for."""
        resource = self.at_issuer.resource_of(found.resource)
        return {"resource": resource, "scope": " ".join(scopes) or None, **self.at_issuer.parameters}

    def trusted(self) -> Sequence[str]:
        """URLs that the user named, besides that of the MCP server."""
        return ()

    def bind(self, url: str, network: Network | None = None, /) -> MachineCredentials:
        """Return the credentials for one server.

        Args:
            url: The URL of the server.
            network: How it is reached; directly by default.
        """
        return MachineCredentials(self, url, network or Network(DEFAULT_TLS, None, SocketWire))


class MachineCredentials:
    """The access token for one server. See `Credentials`.

    Args:
        auth: The options.
        url: The URL of the server.
        network: How it is reached.
    """

    #: No person is asked: time limits go on.
    asks_person: Final = False

    def __init__(self, auth: MachineAuth, url: str, network: Network) -> None:
        self.url = url
        #: Stands for the program; tokens of it are all alike.
        self.identity: str | None = secrets.token_hex(8)
        self._auth = auth
        self._network = network
        #: How the authorization server deviates from the specification.
        self.deviations = Deviations()
        self._rules = UrlRules(url, trusted=auth.trusted(), private_networks=auth.private_networks)
        self._found: Discovered | None = None
        self._source: TokenSource | None = None
        self._scopes: tuple[str, ...] = ()
        #: The token that replaced a refused one, and when.
        self._replacement = ("", 0.0)
        self._failure: tuple[AuthorizationFailed, float] | None = None
        self._proof = None if auth.proof is None else auth.proof.copy()

    def __repr__(self) -> str:
        return f"<MachineCredentials of {self.url}>"

    async def headers(self, method: str, url: str, /) -> HeaderPairs:
        """Return the headers that authorize a request, none before the server asked for it. See `Credentials`."""
        source = self._source
        if source is None:
            return ()
        tokens = await source.get() or await self._obtain(None)
        return authorization(tokens, self._proof, method, url)

    def answered(self, url: str, headers: Mapping[str, str], /) -> None:
        """Take the nonce for the next proof (RFC 9449 §8.2). See `Credentials`."""
        if self._proof is not None:
            self._proof.take_nonce(url, headers)

    async def refused(self, refusal: HttpStatus, sent: HeaderPairs, /) -> bool:
        """Get a token, another one, or one with further scopes. See `Credentials`."""
        challenges = parse_challenges(refusal.headers.get("www-authenticate", ""))
        token = next((value.partition(" ")[2] for name, value in sent if name.lower() == "authorization"), "")
        if needs_nonce(self._proof, self.url, refusal, sent):
            return True
        challenge = find_challenge(challenges, "bearer") or find_challenge(challenges, "dpop")
        newest = None if self._source is None else self._source.tokens
        if newest is not None and newest.access_token != token and newest.is_usable(time.time()):
            return True
        missing: tuple[str, ...] = ()
        if refusal.status == 403:
            named = "" if challenge is None else challenge.parameters.get("scope", "")
            missing = tuple(scope for scope in named.split() if scope not in self._scopes)
            if challenge is None or challenge.parameters.get("error") != "insufficient_scope" or not missing:
                return False
        elif token and token == self._replacement[0] and time.monotonic() - self._replacement[1] < _NEW:
            return False
        try:
            await self._discover(challenge, missing)
            tokens = await self._obtain(token or None)
        except AuthorizationFailed as exc:
            begin_with(f"{self.url} wants {'further scopes' if missing else 'a token'} (HTTP {refusal.status}): ", exc)
            raise
        if token and not missing:
            self._replacement = tokens.access_token, time.monotonic()
        return True

    # ---------------------------------------------------------------- tokens

    async def tokens(self) -> Tokens:
        """Return a valid token; it is requested if need be.

        Raises:
            AuthorizationFailed: There is none.
        """
        if self._source is None:
            await self._discover(None, ())
        assert self._source is not None
        return await self._source.get() or await self._obtain(None)

    async def _discover(self, challenge: Challenge | None, missing: tuple[str, ...]) -> None:
        """Find the authorization server and the scopes to request there."""
        auth = self._auth
        async with self._fetcher() as fetcher:
            flow = discover(
                self.url,
                self._rules,
                challenge,
                issuer=auth.issuer,
                accept_issuers=auth.accept_issuers,
                note=self.deviations.note,
            )
            found = await fetcher.run(flow)
        if self._found is not None and self._found.issuer != found.issuer and auth.issuer is None:
            raise AuthorizationFailed(
                f"{self.url} is authorized by {found.issuer} now, and was by {self._found.issuer}. If the credentials are for "
                "both, say so: issuer=…"
            )
        auth.choose_issuer(found.issuer, self.url)
        named = "" if challenge is None else challenge.parameters.get("scope", "")
        scopes = [*auth.scopes, *(self._scopes if missing else ()), *named.split(), *missing]
        self._scopes = tuple(dict.fromkeys(scopes or found.scopes_supported))
        self._found = found
        key = token_key(found.issuer, found.resource, auth.client_id or "machine")
        if self._source is None or self._source.key != key:
            self._source = TokenSource(auth.store, key, _no_refresh)

    async def _obtain(self, refused: str | None) -> Tokens:
        """Get a token that was stored meanwhile, or request one."""
        assert self._source is not None
        if self._failure is not None and time.monotonic() - self._failure[1] < PAUSE:
            raise AuthorizationFailed(*self._failure[0].args)
        tokens = await self._source.obtain(self._request, refused=refused)
        if tokens is None:
            raise AuthorizationFailed(f"There is no token for {self.url}")
        return tokens

    async def _request(self, stored: Tokens | None) -> Tokens:
        if self._found is None:
            await self._discover(None, ())
        assert self._found is not None
        try:
            async with self._fetcher() as fetcher:
                tokens = await self._auth.request(fetcher, self._found, self._scopes, self._proof)
        except TokenRequestFailed as exc:
            self._failure = exc, time.monotonic()
            raise
        if (self._proof is not None) != (tokens.token_type == "DPoP"):
            raise AuthorizationFailed(f"{describe(self._found.issuer)} issued a token of the type {tokens.token_type}")
        self._failure = None
        # Neither a refresh token nor a secret is kept: the credentials get a new token.
        client = {} if self._proof is None else {"dpop_key": self._proof.stored_key()}
        return msgspec.structs.replace(tokens, refresh_token=None, client=client, scopes=tokens.scopes or self._scopes)

    def _fetcher(self) -> Fetcher:
        return Fetcher(self._rules, tls=self._network.tls, proxy=self._network.proxy, server_wire=self._network.wire)


async def _no_refresh(tokens: Tokens) -> Tokens:
    raise AuthorizationFailed("A program has no refresh token")


# ---------------------------------------------------------------- ways


class ClientCredentials(MachineAuth):
    """Authorize as the client itself (`grant_type=client_credentials`).

    Args:
        client_id: The id of the client, which is registered with the authorization server.
        client_secret: Its secret.
        private_key: Its private key for `private_key_jwt`, in place of a secret: PEM text, or a JSON Web Key.
        algorithm: The signature algorithm of the key, such as "ES256"; by default what fits the key.
        auth_method: "client_secret_basic" or "client_secret_post"; by default what the authorization server supports.
        **options: See MachineOptions.

    Raises:
        DefinitionError: There is not exactly one of secret and key, or the key is malformed.
        StartError: The extra `gemel[auth]` is not installed, which a key needs.

    Example:
        >>> auth = ClientCredentials("notes-job", private_key=Path("job.pem").read_text())
        >>> async with Client("https://notes.example.com/mcp", auth=auth) as client:
        ...     await client.list_tools()
    """

    extensions = {"io.modelcontextprotocol/oauth-client-credentials": {}}  # noqa: RUF012 - never changed

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        *,
        private_key: str | Mapping[str, Any] | None = None,
        algorithm: str | None = None,
        auth_method: str | None = None,
        **options: Unpack[MachineOptions],
    ) -> None:
        if (client_secret is None) == (private_key is None):
            raise DefinitionError("ClientCredentials needs either client_secret or private_key")
        super().__init__(_MachineClient(client_id, client_secret, private_key, algorithm, auth_method), **options)

    @property
    def is_for_one_issuer(self) -> bool:
        """A secret can be sent on; what a key signs names the authorization server that it is for."""
        return self._client.registered.client_secret is not None

    async def _grant(self, fetcher: Fetcher, found: Discovered, scopes: tuple[str, ...]) -> dict[str, str | None]:
        return {"grant_type": "client_credentials", **self._wish(found, scopes)}


class WorkloadIdentity(MachineAuth):
    """Authorize by the identity that the platform gives to a program: no secret is stored (RFC 7523, section 2.1).

    After an error nothing is repeated, and no other grant is tried.

    Args:
        token: Where the token of the platform comes from: `KubernetesToken()`, `GitHubActionsToken()`, `AwsToken()`,
            `AzureToken()`, `GcpToken()`, `FileToken(path)`, `EnvironmentToken(name)`, or a function (sync or async) that
            is called with the audience.
        client_id: The id of the client at the authorization server, if it wants one.
        audience: For whom the token of the platform is issued; by default the issuer of the authorization server.
        **options: See MachineOptions.

    Example:
        >>> auth = WorkloadIdentity(GitHubActionsToken(), client_id="ci")
        >>> async with Client("https://notes.example.com/mcp", auth=auth) as client:
        ...     await client.list_tools()
    """

    def __init__(
        self,
        token: WorkloadToken | Callable[[str], str | Awaitable[str]],
        *,
        client_id: str | None = None,
        audience: str | None = None,
        **options: Unpack[MachineOptions],
    ) -> None:
        super().__init__(_MachineClient(client_id or ""), **options)
        self._token = token
        self._audience = audience

    async def _grant(self, fetcher: Fetcher, found: Discovered, scopes: tuple[str, ...]) -> dict[str, str | None]:
        assertion = await self._assertion(self._audience or found.issuer)
        return {"grant_type": JWT_BEARER, "assertion": assertion, **self._wish(found, scopes)}

    async def _assertion(self, audience: str) -> str:
        if callable(self._token):
            return await _text(partial(self._token, audience), "the workload token")
        async with PlatformFetcher(self._token) as fetcher:
            return await fetcher.run(self._token.fetch(audience))


class EnterpriseAuth(MachineAuth):
    """Authorize as an employee who is logged in with the identity provider of the company, without another login.

    The identity assertion is exchanged at the identity provider for a grant (ID-JAG), which the authorization server of the
    MCP server turns into an access token.

    Args:
        id_token: The identity assertion of the single sign-on, or a function (sync or async) that returns a current one.
        idp_token_endpoint: The token endpoint of the identity provider.
        idp_client_id: The id of this client there.
        idp_client_secret: Its secret there, if it has one.
        client_id: The id of this client at the authorization server of the MCP server.
        client_secret: Its secret there.
        private_key: Its private key there, in place of a secret: PEM text, or a JSON Web Key.
        token_type: The type of the assertion: of an ID token by default, or `urn:ietf:params:oauth:token-type:saml2`.
        **options: See MachineOptions.

    Raises:
        DefinitionError: The endpoint is not https, or the key is malformed.
        StartError: The extra `gemel[auth]` is not installed, which a key needs.
    """

    extensions = {"io.modelcontextprotocol/enterprise-managed-authorization": {}}  # noqa: RUF012 - never changed

    def __init__(
        self,
        id_token: str | Callable[[], str | Awaitable[str]],
        *,
        idp_token_endpoint: str,
        idp_client_id: str,
        idp_client_secret: str | None = None,
        client_id: str,
        client_secret: str | None = None,
        private_key: str | Mapping[str, Any] | None = None,
        token_type: str = ID_TOKEN,
        **options: Unpack[MachineOptions],
    ) -> None:
        super().__init__(_MachineClient(client_id, client_secret, private_key), **options)
        parts = urlsplit(idp_token_endpoint)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback_name(parts.hostname or "")):
            raise DefinitionError(f"idp_token_endpoint={idp_token_endpoint!r} is not possible: use an https URL")
        self._id_token = id_token
        self._endpoint = idp_token_endpoint
        self._idp_client = _MachineClient(idp_client_id, idp_client_secret)
        self._token_type = token_type

    @property
    def is_for_one_issuer(self) -> bool:
        """A secret can be sent on; the grant of the identity provider names the authorization server that it is for."""
        return self._client.registered.client_secret is not None

    def trusted(self) -> Sequence[str]:
        """The identity provider."""
        return (self._endpoint,)

    async def _grant(self, fetcher: Fetcher, found: Discovered, scopes: tuple[str, ...]) -> dict[str, str | None]:
        source = self._id_token
        assertion = await _text(source, "the identity assertion") if callable(source) else source
        exchange = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": ID_JAG,
            "audience": found.issuer,
            "resource": found.resource,
            "scope": " ".join(scopes) or None,
            "subject_token": assertion,
            "subject_token_type": self._token_type,
        }
        grant = await fetcher.run(self._exchange(exchange))
        return {"grant_type": JWT_BEARER, "assertion": grant, **self._wish(found, ())}

    def _exchange(self, form: Mapping[str, str | None]) -> Flow[str]:
        """Exchange the identity assertion for an identity assertion authorization grant."""
        where = f"The identity provider {describe(self._endpoint)}"
        values = {name: value for name, value in form.items() if value is not None}
        values, headers = authenticate(self._idp_client.registered, None, values)
        sent = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json"), *headers]
        response = yield HttpRequest("POST", self._endpoint, sent, urlencode(values).encode())
        if not is_success(response):
            raise read_error(response, f"{where} refuses the exchange", secrets_in(values, headers))
        try:
            grant = msgspec.convert(read_answer(response), _Grant)
        except msgspec.MsgspecError:
            raise AuthorizationFailed(f"{where} sent an answer that can't be read") from None
        if grant.issued_token_type != ID_JAG or not grant.access_token:
            raise AuthorizationFailed(
                f"{where} issued something else than a grant for the authorization server (ID-JAG)"
            )
        return grant.access_token


# ---------------------------------------------------------------- parts


class _Grant(msgspec.Struct):
    """The answer to a token exchange (RFC 8693 §2.2.1)."""

    access_token: str
    issued_token_type: str

    def __repr__(self) -> str:
        return "<Grant>"


class _MachineClient:
    """A client with its credentials at an authorization server."""

    def __init__(
        self,
        client_id: str,
        secret: str | None = None,
        private_key: str | Mapping[str, Any] | None = None,
        algorithm: str | None = None,
        method: str | None = None,
    ) -> None:
        self.registered = RegisteredClient(
            client_id=client_id, client_secret=secret, token_endpoint_auth_method=method if secret else None
        )
        self._algorithm = algorithm
        self._key: WebKey | None = None
        if private_key is not None:
            from gemel.auth.jose import import_key

            try:
                self._key = import_key(private_key)
            except ValueError as exc:
                raise DefinitionError(f"private_key is {exc}") from None
            if not self._key.private or (algorithm is not None and algorithm not in self._key.algorithms):
                raise DefinitionError(
                    f"private_key can't sign{f' with {algorithm}' if algorithm else ': it is public'}"
                )

    def request(self, found: Discovered, form: Mapping[str, str | None], proof: Proof | None) -> Flow[Tokens]:
        """Request tokens, once."""
        endpoint = found.server.token_endpoint
        if endpoint is None:
            raise AuthorizationFailed(f"{describe(found.issuer)} has no token endpoint")
        name, key = self.registered.client_id, self._key
        assertion = None if key is None else sign_assertion(name, key, found.issuer, self._algorithm)
        return request_tokens(
            endpoint,
            form,
            self.registered,
            methods=found.server.token_endpoint_auth_methods_supported,
            assertion=assertion,
            proof=proof,
            issuer=found.issuer,
        )


class PlatformFetcher(Fetcher):
    """Makes the requests of a source of workload tokens. Metadata services, which have http URLs, are never behind a proxy.

    Args:
        token: The source.
    """

    def __init__(self, token: WorkloadToken) -> None:
        rules = UrlRules(trusted=token.urls())
        super().__init__(rules)
        self._direct = Fetcher(rules, proxy="")

    async def close(self) -> None:
        await super().close()
        await self._direct.close()

    async def fetch(self, request: HttpRequest) -> HttpResponse:
        if request.url.startswith("http://"):
            return await self._direct.fetch(request)
        return await super().fetch(request)


async def _text(source: Callable[[], str | Awaitable[str]], what: str) -> str:
    value = source()
    if inspect.isawaitable(value):
        value = await value
    if not value:
        raise AuthorizationFailed(f"The function for {what} returned none")
    return value
