"""OAuth as credentials of a client: log in when a server asks for it, keep the login valid, step up when scopes are missing.

Specification: Authorization; the flows themselves stand beside this file.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from gemel.auth.challenge import Challenge, find_challenge, parse_challenges
from gemel.auth.client import code_flow
from gemel.auth.client.device import DeviceLogin, device_endpoint
from gemel.auth.client.discovery import Discovered, discover
from gemel.auth.client.dpop import DPoP, authorization, needs_nonce
from gemel.auth.client.issuer_pin import IssuerPin
from gemel.auth.client.registration import ClientPlan, check_metadata_url, choose_client, register
from gemel.auth.client.stores import MemoryTokenStore
from gemel.auth.client.token_request import (
    SECRET_METHODS,
    IssuerOptions,
    RegisteredClient,
    TokenRequestFailed,
    auth_method,
    describe_error,
    read_client,
)
from gemel.auth.client.tokens import InvalidGrant, Tokens, TokenSource, TokenStore, TokenStoreError, token_key
from gemel.auth.client.user import Authorizer, BrowserLogin
from gemel.auth.flow import Fetcher, FetchFailed, HttpRequest, begin_with
from gemel.auth.metadata import canonical_resource
from gemel.auth.url_rules import UrlRules
from gemel.errors import AuthorizationFailed, DefinitionError, HttpStatus, NotSent
from gemel.http1.client.network import DEFAULT_TLS
from gemel.http1.client.pool import SocketWire
from gemel.http1.client.wire import HeaderPairs
from gemel.loops import PerLoop
from gemel.protocol.deviations import Deviations
from gemel.timeouts import wait_shared
from gemel.transports.http.client.options import Network

logger = logging.getLogger("gemel")
T = TypeVar("T")

#: Logins for the same missing scopes; more of them would not help.
MAX_STEP_UPS: Final = 3
#: Scopes of one request; challenges that name more are cut.
MAX_SCOPES: Final = 200
#: Seconds after a login in which refused tokens don't lead to another login: it would not help.
LOGIN_PAUSE = 60.0
#: Seconds to wait while somebody logs in elsewhere with the same store; longer than a person has.
LOCK_TIMEOUT: Final = 660.0
#: Seconds after a failed login in which requests that were sent before fail with it.
_AFTER_FAILURE: Final = 2.0
#: Errors that mean that the authorization server does not know the client.
_REJECTED = frozenset({"invalid_client", "unauthorized_client"})
_SCOPE_CHARACTERS = frozenset(map(chr, range(0x21, 0x7F))) - set('"\\')


class RefreshFailed(NotSent):
    """A token can't be refreshed now, for another reason than a refusal: the login is kept, and a call was not sent."""


class ServerChoices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the user chose about the authorization server.

    Attributes:
        issuer: The only one that may be used.
        accept_issuers: Issuers that its metadata may name although another one was asked for.
        private_networks: Whether it may be in a private network.
        at_issuer: Options of requests to `issuer`.
    """

    issuer: str | None = None
    accept_issuers: tuple[str, ...] = ()
    private_networks: bool = False
    at_issuer: IssuerOptions = IssuerOptions()

    def with_kept(self, kept: ServerChoices) -> ServerChoices:
        """Return these choices, and those that were kept with a login where these say nothing.

        Args:
            kept: What was chosen for the login.
        """
        is_other = self.issuer not in (None, kept.issuer)
        return ServerChoices(
            issuer=self.issuer or kept.issuer,
            accept_issuers=tuple(dict.fromkeys((*self.accept_issuers, *kept.accept_issuers))),
            private_networks=self.private_networks or kept.private_networks,
            at_issuer=self.at_issuer if is_other or self.at_issuer != IssuerOptions() else kept.at_issuer,
        )


class OAuth:
    """Logs in to MCP servers: `Client(url, auth="oauth")`, or `auth=OAuth(…)` with options.

    When a server asks for authorization, its authorization server is looked up, this client is registered there if need be, a
    person logs in with the browser, and the request is repeated. Tokens are refreshed before they expire.

    Args:
        client_id: The id of a client that you registered with the authorization server.
        client_secret: Its secret, if it has one.
        auth_method: How it sends its secret: "client_secret_basic" or "client_secret_post"; by default what the authorization
            server supports.
        issuer: The authorization server that the client is registered at. No other one is used then. Without it, a client with
            a secret is used at the one that is named by the first MCP server that this is used for.
        client_metadata_url: The https URL of a client ID metadata document that you serve; see `client_metadata`. It is used
            where the authorization server supports it, else the client is registered dynamically.
        client_name: The name that people see when they log in to a dynamically registered client.
        scopes: Scopes to request in any case; by default what the server asks for.
        authorizer: How a person logs in; with the browser of this machine by default. `DeviceLogin()` for machines without.
        store: Where logins are kept; in memory by default.
        accept_issuers: Issuers that the metadata of an authorization server may name although it was requested for another
            one. By default the names must be identical.
        keep_client: Whether the store keeps the client with its secret, and the options about the authorization server, so
            that later logins need not be told about them. By default only dynamically registered clients are kept.
        private_networks: Whether the authorization server may be in a private network, and use http.
        proof: Binds the tokens to a key: `DPoP()`.
        resource: What to send as `resource` (RFC 8707) to the authorization server `issuer`: the identifier that the MCP
            server publishes by default, another URI, or False for servers that refuse the parameter.
        assume_pkce: Whether the authorization server `issuer` supports PKCE with S256 although its metadata says nothing
            about it. By default nobody logs in there.
        authorization_parameters: Further parameters of requests for authorization at `issuer`, such as `{"audience": "…"}`.
        scope_separator: What separates scopes in these requests: " ", or "," for servers that differ from the
            specification.

    Raises:
        DefinitionError: The options contradict each other, or one of the last four is given without `issuer`.

    Example:
        >>> async with Client("https://example.com/mcp", auth=OAuth(scopes=["notes"])) as client:
        ...     await client.list_tools()
    """

    def __init__(
        self,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        auth_method: str | None = None,
        issuer: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "Gemel",
        scopes: Sequence[str] = (),
        authorizer: Authorizer | DeviceLogin | None = None,
        store: TokenStore | None = None,
        accept_issuers: Collection[str] = (),
        keep_client: bool = False,
        private_networks: bool = False,
        proof: DPoP | None = None,
        resource: str | bool = True,
        assume_pkce: bool = False,
        authorization_parameters: Mapping[str, str] | None = None,
        scope_separator: str = " ",
    ) -> None:
        if client_secret is not None and client_id is None:
            raise DefinitionError("client_secret needs client_id")
        if auth_method is not None and (client_secret is None or auth_method not in SECRET_METHODS):
            raise DefinitionError(f"auth_method is one of {', '.join(SECRET_METHODS)}, and needs client_secret")
        if isinstance(scopes, str) or isinstance(accept_issuers, str):
            raise DefinitionError('scopes and accept_issuers are lists: scopes=["notes"]')
        if client_metadata_url is not None:
            check_metadata_url(client_metadata_url)
        self.registered = (
            None
            if client_id is None
            else RegisteredClient(
                client_id=client_id,
                client_secret=client_secret,
                token_endpoint_auth_method=auth_method,
                is_named_by_user=True,
            )
        )
        self.client_metadata_url = client_metadata_url
        self.client_name = client_name
        self.scopes = tuple(scopes)
        self.authorizer = authorizer
        self.store: TokenStore = MemoryTokenStore() if store is None else store
        self.keep_client = keep_client
        self.proof = proof
        self.choices = ServerChoices(
            issuer=issuer,
            accept_issuers=tuple(accept_issuers),
            private_networks=private_networks,
            at_issuer=IssuerOptions(
                resource=resource,
                assume_pkce=assume_pkce,
                parameters=dict(authorization_parameters or {}),
                scope_separator=scope_separator,
            ),
        )
        self.choices.at_issuer.check(issuer)
        self._pin = IssuerPin()

    def choose_issuer(self, issuer: str, url: str, *, again: bool = False) -> None:
        """Take the authorization server that an MCP server names.

        Args:
            issuer: The issuer.
            url: The URL of the MCP server.
            again: Whether a person wants a new login there.

        Raises:
            AuthorizationFailed: The secret is that of a client at another one.
        """
        if self.choices.issuer is None and self.registered is not None and self.registered.client_secret is not None:
            self._pin.check(issuer, url, again=again)

    def __repr__(self) -> str:
        """The class only: options may be secret."""
        return "<OAuth>"

    def bind(self, url: str, network: Network | None = None, /) -> OAuthCredentials:
        """Return the credentials for one server.

        Args:
            url: The URL of the server.
            network: How it is reached; directly by default.
        """
        return OAuthCredentials(self, url, network or Network(DEFAULT_TLS, None, SocketWire))


class OAuthCredentials:
    """The login to one server. See `Credentials`.

    Args:
        oauth: The options.
        url: The URL of the server.
        network: How it is reached.
    """

    def __init__(self, oauth: OAuth, url: str, network: Network) -> None:
        self.url = url
        #: Stands for who is logged in; None as long as nobody is.
        self.identity: str | None = None
        self._oauth = oauth
        self._proof = None if oauth.proof is None else oauth.proof.copy()
        self._network = network
        #: How the authorization server deviates from the specification.
        self.deviations = Deviations()
        #: What the user chose, here or for the login that is kept.
        self._choices = oauth.choices
        self._rules = UrlRules(url, private_networks=oauth.choices.private_networks)
        name = "" if oauth.keep_client else oauth.client_metadata_url or self._client_id()
        self._index = token_key("server", canonical_resource(url), name)
        self._source: TokenSource | None = None
        self._resource = canonical_resource(url)
        self._looked_up = False
        self._logins = PerLoop(_Logins)
        #: Dynamically registered clients by issuer, and the ids of those that were rejected.
        self._clients: dict[str, RegisteredClient] = {}
        self._rejected: set[str] = set()
        #: The scopes of the last authorization request by issuer, and how often missing ones were asked for.
        self._requested: dict[str, tuple[str, ...]] = {}
        self._step_ups: dict[frozenset[str], int] = {}
        #: When somebody logged in last, by issuer; the token of the last refresh because of a refusal.
        self._logged_in: dict[str, float] = {}
        self._replacement = ""
        self._failure: tuple[AuthorizationFailed, float] | None = None
        self._own_browser: BrowserLogin | None = None

    def __repr__(self) -> str:
        return f"<OAuthCredentials of {self.url}>"

    def _client_id(self) -> str:
        return "" if self._oauth.registered is None else self._oauth.registered.client_id

    # ---------------------------------------------------------------- Credentials

    async def headers(self, method: str, url: str, /) -> HeaderPairs:
        """Return the headers that authorize a request, none if nobody is logged in. See `Credentials`."""
        tokens = await self.tokens()
        return () if tokens is None else authorization(tokens, self._proof, method, url)

    def answered(self, url: str, headers: Mapping[str, str], /) -> None:
        """Take the nonce for the next proof (RFC 9449 §8.2). See `Credentials`."""
        if self._proof is not None:
            self._proof.take_nonce(url, headers)

    async def refused(self, refusal: HttpStatus, sent: HeaderPairs, /) -> bool:
        """Refresh the token, log in, or ask for further scopes. See `Credentials`."""
        challenge = self._challenge_in(refusal.headers)
        token = next((value.partition(" ")[2] for name, value in sent if name.lower() == "authorization"), "")
        if needs_nonce(self._proof, self.url, refusal, sent):
            return True
        if self._has_newer(token):
            return True
        if refusal.status == 403:
            return await self._step_up(challenge, token)
        await self._log_in(challenge, token, (), why=f"{self.url} wants a login (HTTP {refusal.status}): ")
        return True

    @property
    def asks_person(self) -> bool:
        """Whether a person is logging in, here or in another process that has the lock of the token store."""
        here = self._logins.find()
        return here is not None and here.present is not None and here.present.asks_person

    async def close(self) -> None:
        """Wait, for a limited time, for a refresh that is under way: its answer has the next refresh token."""
        if self._source is not None:
            await self._source.close()

    # ---------------------------------------------------------------- for applications and the command line

    async def tokens(self) -> Tokens | None:
        """Return tokens that are valid now, refreshed if need be.

        Returns:
            The tokens; None if nobody is logged in.

        Raises:
            TokenStoreError: The store can't be read.
            NotSent: The token can't be refreshed now.
        """
        if self._source is None and not self._looked_up:
            await self._look_up()
        return None if self._source is None else await self._source.get()

    async def login(self, *, again: bool = False) -> Tokens:
        """Log in now, unless somebody is logged in with a token that is valid or can be refreshed.

        Args:
            again: Log in even if somebody is logged in. The login before stays until the new one is there.

        Returns:
            The tokens.

        Raises:
            AuthorizationFailed: Nobody logged in, or it is not possible.
        """
        try:
            tokens = await self.tokens()
        except RefreshFailed as exc:
            logger.info("A new login takes the place of the one at %s: %s", self.url, exc)
            tokens = None
        except TokenStoreError as exc:
            logger.warning("A new login takes the place of one that can't be read: %s", exc)
            tokens = None
        if tokens is None or again:
            # The pauses after a login and after a failed one are for requests.
            self._logged_in.clear()
            self._failure = None
            before, refused = self._source, "" if tokens is None else tokens.access_token
            await self._log_in(await self._challenge(), refused, (), again=again)
            tokens = await self.tokens()
            if before is not None and self._source is not None and before.key != self._source.key:
                await self._forget(before)  # that of another client
        if tokens is None:
            raise AuthorizationFailed(f"The login to {self.url} was not kept")
        return tokens

    async def logout(self) -> bool:
        """Forget the login, and tell the authorization server, if it takes that (RFC 7009). It is logged if that fails.

        Returns:
            Whether there was one.

        Raises:
            TokenStoreError: The store can't be written.
        """
        if self._source is None:
            with suppress(TokenStoreError):  # what can't be read is deleted
                await self._look_up()
        source, self._source = self._source, None
        self.identity = None
        if source is not None:
            await self._forget(source)
        await self._oauth.store.delete(self._index)
        return source is not None

    async def _forget(self, source: TokenSource) -> None:
        tokens = await source.forget()
        if tokens is not None:
            await self._revoke(tokens)

    # ---------------------------------------------------------------- refusals

    def _has_newer(self, token: str) -> bool:
        """Whether the refused request was sent before the token that is valid now was issued."""
        newest = None if self._source is None else self._source.tokens
        return newest is not None and newest.access_token != token and newest.is_usable(time.time())

    async def _step_up(self, challenge: Challenge | None, token: str) -> bool:
        """Log in for further scopes, unless that was tried before (Authorization, "Step-Up Authorization Flow")."""
        if challenge is None or challenge.parameters.get("error") != "insufficient_scope":
            return False
        missing = read_scopes([challenge.parameters.get("scope", "")])
        tokens = None if self._source is None else self._source.tokens
        asked = () if tokens is None else (*tokens.scopes, *self._requested.get(tokens.issuer, ()))
        count = self._step_ups.get(frozenset(missing), 0)
        if not missing or set(missing) <= set(asked) or count >= MAX_STEP_UPS or len(self._step_ups) > MAX_SCOPES:
            return False
        self._step_ups[frozenset(missing)] = count + 1
        why = f"{self.url} wants the scopes {' '.join(missing)} (HTTP 403): "
        await self._log_in(challenge, token, missing, why=why)
        return True

    # ---------------------------------------------------------------- one login at a time

    async def _log_in(
        self,
        challenge: Challenge | None,
        refused: str,
        missing: tuple[str, ...],
        *,
        again: bool = False,
        why: str = "",
    ) -> None:
        """Renew the login, or wait for what is under way. It ends when nobody waits for it any more.

        `why` begins the error: what the server wants matters more than what its login failed at.
        """
        here = self._logins.here()
        while here.present is not None and here.present.abandoned.is_set():
            await asyncio.wait([here.present.task])
        if self._failure is not None and time.monotonic() - self._failure[1] < _AFTER_FAILURE:
            raise AuthorizationFailed(*self._failure[0].args)
        login = here.present
        if login is None:
            work = _explained(why, self._authorize(challenge, refused, missing, again))
            login = here.present = _Login(asyncio.get_running_loop().create_task(work))
            login.task.add_done_callback(partial(self._ended, here, login))
        login.waiting += 1
        try:
            await wait_shared(login.task)
        finally:
            login.waiting -= 1
            if not login.waiting:
                login.abandoned.set()

    def _ended(self, here: _Logins, login: _Login, task: asyncio.Task[None]) -> None:
        here.present = None
        exc = None if task.cancelled() else task.exception()
        abandoned = not login.waiting
        self._failure = (exc, time.monotonic()) if isinstance(exc, AuthorizationFailed) and not abandoned else None

    async def _authorize(
        self, challenge: Challenge | None, refused: str, missing: tuple[str, ...], again: bool
    ) -> None:
        async with self._fetcher() as fetcher:
            entry = await self._entry()
            discovery = discover(
                self.url,
                self._rules,
                challenge,
                issuer=self._choices.issuer,
                accept_issuers=self._choices.accept_issuers,
                preferred=None if entry is None else entry.issuer,
                note=self.deviations.note,
            )
            can_refresh = bool(refused) and not missing and not again and refused != self._replacement
            try:
                found = await self._unless_abandoned(fetcher.run(discovery))
            except AuthorizationFailed:
                # The login needs no metadata as long as its own authorization server refreshes it.
                tokens = await self._source.replace(refused) if can_refresh and self._source is not None else None
                if tokens is None:
                    raise
                self._replacement = tokens.access_token
                return
            source = await self._source_at(found, again)
            self._oauth.choose_issuer(found.issuer, self.url, again=again)
            candidates = [(source, found.resource)]
            if await self._is_other_at_same(found, source):
                candidates.insert(0, (self._source or source, self._resource))
            for source, resource in candidates:
                self._resource = resource
                tokens = await source.replace(refused) if can_refresh else None
                if tokens is not None:
                    self._replacement = tokens.access_token
                    break
            else:
                log_in = partial(self._ask_person, fetcher, found, challenge, missing)
                with self._person_asked(True):
                    await source.obtain(log_in, refused=refused or None)
        self._source = source
        self.identity = self.identity or secrets.token_hex(8)
        more = {"choices": msgspec.to_builtins(self._choices)} if self._oauth.keep_client else {}
        place = Tokens(issuer=found.issuer, client={"key": source.key, "resource": self._resource, **more})
        if await self._entry() != place:
            await self._oauth.store.set(self._index, place)

    async def _source_at(self, found: Discovered, again: bool) -> TokenSource:
        """The tokens of this client at an authorization server. Those of another one are not used there."""
        server = found.server
        uses_document = bool(self._oauth.client_metadata_url and server.client_id_metadata_document_supported)
        client_key = self._client_id() or (self._oauth.client_metadata_url if uses_document else None) or "dynamic"
        key = token_key(found.issuer, found.resource, client_key)
        entry = await self._entry()
        is_other = entry is not None and entry.issuer != found.issuer
        if entry and is_other and not again and self._oauth.registered is not None and self._choices.issuer is None:
            raise AuthorizationFailed(
                f"{self.url} is authorized by {found.issuer} now, and was by {entry.issuer}, where the client "
                f"{self._client_id()!r} belongs. If it is registered with the new one, too, say so: OAuth(issuer=…)"
            )
        if entry and not is_other and self._oauth.keep_client and self._oauth.registered is None:
            key = str(entry.client.get("key", key))  # of the client that was named at an earlier login
        if self._source is not None and self._source.key == key:
            return self._source
        return self._make_source(key)

    async def _is_other_at_same(self, found: Discovered, source: TokenSource) -> bool:
        """Whether the login so far is at the same authorization server, for a resource or a client that a new one would not be for.

        A client that the user named is never replaced by another one.
        """
        if self._source in (None, source) or self._oauth.registered is not None:
            return False
        entry = await self._entry()
        return entry is not None and entry.issuer == found.issuer

    async def _entry(self) -> Tokens | None:
        """What is stored about the login so far; None even if that can't be read, since a new login takes its place."""
        try:
            return await self._oauth.store.get(self._index)
        except TokenStoreError:
            return None

    def _make_source(self, key: str) -> TokenSource:
        store, note = self._oauth.store, self.deviations.note
        return TokenSource(store, key, self._refresh, lock_timeout=LOCK_TIMEOUT, note=note)

    async def _look_up(self) -> None:
        """Take the login of an earlier process."""
        entry = await self._oauth.store.get(self._index)
        self._looked_up = True
        if entry is None or self._source is not None:
            return
        own = self._oauth.choices
        if own.issuer is not None and entry.issuer not in (own.issuer, *own.accept_issuers):
            return
        try:
            self._oauth.choose_issuer(entry.issuer, self.url)
        except AuthorizationFailed as exc:
            logger.warning("A login that was stored is not used: %s", exc)
            return
        if self._oauth.keep_client:
            self._choices = own.with_kept(_read_choices(entry.client.get("choices")))
            self._rules = UrlRules(self.url, private_networks=self._choices.private_networks)
        self._resource = str(entry.client.get("resource", self._resource))
        key = str(entry.client.get("key", ""))
        self._source = self._make_source(key)
        self.identity = secrets.token_hex(8)

    # ---------------------------------------------------------------- requests

    def _fetcher(self) -> Fetcher:
        tls, proxy, wire = self._network
        return Fetcher(self._rules, tls=tls, proxy=proxy, server_wire=wire)

    async def _challenge(self) -> Challenge | None:
        """Ask the server for its challenge."""
        headers = (("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream"))
        async with self._fetcher() as fetcher:
            try:
                request = HttpRequest("POST", self.url, headers, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
                response = await fetcher.fetch(request)
            except FetchFailed:
                return None
        return self._challenge_in(response.headers)

    def _challenge_in(self, headers: Mapping[str, str]) -> Challenge | None:
        """The challenge of the scheme that tokens are sent with, else of the other one."""
        challenges = parse_challenges(headers.get("www-authenticate", ""))
        schemes = ("bearer", "dpop") if self._proof is None else ("dpop", "bearer")
        return find_challenge(challenges, schemes[0]) or find_challenge(challenges, schemes[1])

    def _client_of(self, tokens: Tokens) -> RegisteredClient | None:
        """The client that tokens were issued to; its secret may be in the options only."""
        client, own = read_client(tokens.client), self._oauth.registered
        if client is None or own is None or client.client_id != own.client_id:
            return client
        return msgspec.structs.replace(client, client_secret=own.client_secret)

    async def _revoke(self, tokens: Tokens) -> None:
        client = self._client_of(tokens)
        if client is None or not tokens.revocation_endpoint:
            return
        try:
            self._rules.check_endpoint(tokens.revocation_endpoint)
            async with self._fetcher() as fetcher:
                await fetcher.run(code_flow.revoke(tokens, client))
        except AuthorizationFailed as exc:
            self.deviations.note("login-not-revoked", str(exc))

    async def _refresh(self, tokens: Tokens) -> Tokens:
        client = self._client_of(tokens)
        if client is None or tokens.refresh_token is None or not tokens.token_endpoint:
            raise InvalidGrant("The login can't be refreshed")
        if self._proof is not None:
            self._proof.use(tokens.client.get("dpop_key"))
        async with self._fetcher() as fetcher:
            try:
                self._rules.check_endpoint(tokens.token_endpoint)
                resource, note = tokens.client.get("resource", self._resource), self.deviations.note
                return await fetcher.run(code_flow.refresh(tokens, client, resource, self._proof, note))
            except AuthorizationFailed as exc:
                if not isinstance(exc, TokenRequestFailed) or not exc.is_final:
                    raise RefreshFailed(
                        f"The token could not be refreshed: {exc}. If that lasts, log in again with login(again=True) or "
                        f"gemel auth login {self.url}"
                    ) from exc
                is_unknown = exc.error in _REJECTED or (exc.status == 401 and not exc.error)
                if is_unknown:
                    self._rejected.add(client.client_id)
                raise InvalidGrant(str(exc), forgets_client=is_unknown and not client.is_named_by_user) from None

    async def _ask_person(
        self,
        fetcher: Fetcher,
        found: Discovered,
        challenge: Challenge | None,
        missing: tuple[str, ...],
        stored: Tokens | None,
    ) -> Tokens:
        """Let a person log in; with a new registration if the client that was stored is rejected."""
        with self._person_asked(False):
            return await self._register_and_log_in(fetcher, found, challenge, missing, stored)

    async def _register_and_log_in(
        self,
        fetcher: Fetcher,
        found: Discovered,
        challenge: Challenge | None,
        missing: tuple[str, ...],
        stored: Tokens | None,
    ) -> Tokens:
        if not missing and time.monotonic() - self._logged_in.get(found.issuer, -math.inf) < LOGIN_PAUSE:
            reason = {} if challenge is None else challenge.parameters
            details = describe_error(reason.get("error", "HTTP 401"), reason.get("error_description"))
            if stored is not None and stored.access_token:
                details = details.replace(stored.access_token, "…")
            raise AuthorizationFailed(f"{self.url} refuses the token that {found.issuer} has just issued: {details}")
        kept = self._clients.get(found.issuer) or (None if stored is None else read_client(stored.client))
        authorizer = self._oauth.authorizer or self._browser(kept)
        if isinstance(authorizer, DeviceLogin):
            device_endpoint(found.server)  # before a client is registered for nothing
        scopes = self._scopes(found, challenge, missing, stored)
        plan = ClientPlan(
            registered=self._oauth.registered,
            metadata_url=self._oauth.client_metadata_url,
            name=self._oauth.client_name,
            redirect_uris=() if isinstance(authorizer, DeviceLogin) else (authorizer.redirect_uri,),
            scopes=scopes,
        )
        while True:
            if kept is not None and kept.client_id in self._rejected and not kept.is_named_by_user:
                kept = None
            client = choose_client(found, plan, kept, time.time())
            is_new = client is None
            if client is None:
                client = self._clients[found.issuer] = await fetcher.run(register(found, plan))
            try:
                return await self._login_as(client, fetcher, found, scopes, authorizer)
            except TokenRequestFailed as exc:
                # Some servers let a client ask only for the scopes that it was registered with.
                if exc.error not in (*_REJECTED, "invalid_scope") or is_new or client != kept:
                    raise
                self._rejected.add(client.client_id)
            except AuthorizationFailed:
                # An unknown client is an error page in the browser, of which nothing comes back here.
                if not is_new:
                    self._rejected.add(client.client_id)
                raise

    def _browser(self, kept: RegisteredClient | None) -> BrowserLogin:
        """The browser; it comes back to the port that the client is registered with, if that is free."""
        if self._own_browser is None:
            uris = () if kept is None else kept.redirect_uris
            port = next((parts.port for parts in map(urlsplit, uris) if parts.hostname == "localhost"), None)
            self._own_browser = BrowserLogin(port=port or 0)
            try:
                _ = self._own_browser.redirect_uri
            except AuthorizationFailed:
                self._own_browser = BrowserLogin()
        return self._own_browser

    async def _login_as(
        self,
        client: RegisteredClient,
        fetcher: Fetcher,
        found: Discovered,
        scopes: tuple[str, ...],
        authorizer: Authorizer | DeviceLogin,
    ) -> Tokens:
        proof, options = self._proof, self._choices.at_issuer
        if isinstance(authorizer, DeviceLogin):
            self._requested[found.issuer] = scopes
            asking = authorizer.login(
                fetcher.run, found.server, client, resource=found.resource, scopes=scopes, proof=proof, options=options
            )
            with self._person_asked(True):
                tokens = await self._unless_abandoned(asking)
        else:
            authorization = code_flow.begin(found, client, authorizer.redirect_uri, scopes, options)
            self._requested[found.issuer] = scopes
            with self._person_asked(True):
                redirect = await self._unless_abandoned(authorizer.authorize(authorization.url))
            code = code_flow.read_redirect(authorization, redirect)
            note = self.deviations.note
            tokens = await fetcher.run(code_flow.redeem(authorization, code, found, client, proof, note))
        if (proof is not None) != (tokens.token_type == "DPoP"):
            raise AuthorizationFailed(f"{found.issuer} issued a token of the type {tokens.token_type}")
        if tokens.refresh_token is None and not tokens.is_usable(time.time()):
            # Such as `expires_in: 0` for a token that never expires. The MCP server tells whether it is valid.
            tokens = msgspec.structs.replace(tokens, expires_at=None)
        self._logged_in[found.issuer] = time.monotonic()
        self.identity = secrets.token_hex(8)
        method = auth_method(client, found.server.token_endpoint_auth_methods_supported)
        stored = msgspec.structs.replace(client, token_endpoint_auth_method=method)
        if self._oauth.registered is not None and not self._oauth.keep_client:  # its secret is in the options
            stored = msgspec.structs.replace(stored, client_secret=None)
        more: dict[str, Any] = {} if proof is None else {"dpop_key": proof.stored_key()}
        if options.resource is not True:
            more["resource"] = options.resource_of(found.resource)  # for refreshes
        return msgspec.structs.replace(
            tokens,
            client=msgspec.to_builtins(stored) | more,
            revocation_endpoint=found.server.revocation_endpoint,
        )

    @contextmanager
    def _person_asked(self, asks: bool) -> Iterator[None]:
        """Say whether the login that is under way waits for a person inside of the block."""
        login = self._logins.here().present
        before = login is not None and login.asks_person
        if login is not None:
            login.asks_person = asks
        try:
            yield
        finally:
            if login is not None:
                login.asks_person = before

    async def _unless_abandoned(self, asking: Coroutine[Any, Any, T]) -> T:
        """Wait for a person or for metadata, as long as a request waits for the login."""
        login = self._logins.here().present
        person = asyncio.ensure_future(asking)
        ended = asyncio.ensure_future(login.abandoned.wait() if login is not None else asyncio.Event().wait())
        try:
            await asyncio.wait([person, ended], return_when=asyncio.FIRST_COMPLETED)
            if not person.done():
                raise AuthorizationFailed("The login was given up: no request waits for it any more")
            return person.result()
        finally:
            for task in (person, ended):
                task.cancel()
            await asyncio.wait([person, ended])

    def _scopes(
        self, found: Discovered, challenge: Challenge | None, missing: tuple[str, ...], stored: Tokens | None
    ) -> tuple[str, ...]:
        """The scopes to request (Authorization, "Scope Selection Strategy"): what was requested before stays among them."""
        named = "" if challenge is None else challenge.parameters.get("scope", "")
        before = self._requested.get(found.issuer) or (() if stored is None else stored.scopes)
        wanted = [*self._oauth.scopes, *before, *named.split(), *missing]
        supported = [scope for scope in found.scopes_supported if scope != "offline_access"]
        scopes = read_scopes(wanted or supported)
        if scopes and "offline_access" in (found.server.scopes_supported or ()):
            return read_scopes([*scopes, "offline_access"])
        return scopes


async def _explained(why: str, work: Coroutine[Any, Any, None]) -> None:
    """Run a login. Its error begins with why somebody has to log in."""
    try:
        await work
    except AuthorizationFailed as exc:
        begin_with(why, exc)
        raise


def _read_choices(kept: object) -> ServerChoices:
    try:
        return msgspec.convert(kept, ServerChoices)
    except msgspec.ValidationError:
        return ServerChoices()


class _Logins:
    """The login that is under way in one event loop, if there is one."""

    def __init__(self) -> None:
        self.present: _Login | None = None


class _Login:
    """A login that is under way, and how many requests wait for it."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.waiting = 0
        #: Whether a person is asked now.
        self.asks_person = False
        self.abandoned = asyncio.Event()


def read_scopes(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the scopes in some texts once each, in order, without those that can't be requested.

    Args:
        texts: Scopes separated by blanks.
    """
    scopes = dict.fromkeys(scope for text in texts for scope in text.split(" ") if scope)
    return tuple(scope for scope in scopes if set(scope) <= _SCOPE_CHARACTERS)[:MAX_SCOPES]
