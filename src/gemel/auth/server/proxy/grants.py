"""Grants and their tokens: what a user has allowed a client, from the code to the last refresh token.

Codes, access and refresh tokens are sealed texts that name a grant; the grant itself is in the store, the one entry of a login,
and holds the tokens of the provider and which codes and refresh tokens were used: what exists never needs another entry.
A refresh token is good for one exchange. For a short time after it, the exchange may be repeated (a response that was lost, two
processes of one client) and gives tokens of the same generation; later use of an old token ends the grant (RFC 9700 §4.14.2).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from gemel.auth.server.proxy.registration import ProxyClient
from gemel.auth.server.proxy.store import ProxyStore, Vault, digest, random_text
from gemel.auth.server.proxy.upstream import UpstreamRefused, UpstreamTokens
from gemel.auth.server.proxy.web import OAuthError
from gemel.backends.patience import store_patiently
from gemel.errors import AuthorizationFailed
from gemel.protocol.records import Record
from gemel.timeouts import wait_shared

logger = logging.getLogger("gemel")

#: Seconds in which a code is accepted, and for which a grant is kept whose code was not exchanged.
CODE_SECONDS: Final = 60.0
_UNUSED_SECONDS: Final = 600.0
#: Tokens of the provider that end within so many seconds are renewed.
_SOON: Final = 60.0
#: Seconds for which renewed tokens of the provider are tried to be stored.
_PATIENCE: Final = 10.0
ResultT = TypeVar("ResultT")


class Code(Record):
    """What the authorization code of a grant stands for."""

    redirect_uri: str
    challenge: str
    expires: float
    used: bool = False


class Grant(Record):
    """What a user has allowed a client. `generation` counts refreshes; times are in Unix seconds.

    `id` begins with where the grant is stored, which follows from the login. The rest is random: when a grant has ended, its
    code and tokens are of no use for another one that the same login leads to.
    """

    id: str
    subject: str
    claims: dict[str, Any]
    client_id: str
    scopes: tuple[str, ...]
    upstream: UpstreamTokens
    code: Code
    expires: float
    generation: int = 0
    rotated: float = 0.0


class CodeToken(Record):
    """What is sealed in an authorization code."""

    grant: str


class AccessToken(Record):
    """What is sealed in an access token."""

    grant: str
    resource: str
    scopes: tuple[str, ...]
    expires: float


class RefreshToken(Record):
    """What is sealed in a refresh token."""

    grant: str
    generation: int


class Lifetimes(NamedTuple):
    """How long things are good, in seconds: access tokens, grants since their last refresh, repeated refreshes."""

    access: float
    grant: float
    grace: float


class GrantHooks(NamedTuple):
    """What the proxy does for grants."""

    #: Renews the tokens of the provider in a grant. Raises UpstreamRefused and AuthorizationFailed.
    renew: Callable[[Grant], Awaitable[None]]
    #: Whether a user with these claims may use the server.
    is_allowed: Callable[[Mapping[str, Any]], Awaitable[bool]]
    #: Called with the id of a grant that was ended before its time.
    on_end: Callable[[str], None]


#: Called when a code or token turned out to be one of the client, before it is used up.
Notice: TypeAlias = Callable[[], Awaitable[None]]

_CODE: Final = "authorization code"
_ACCESS: Final = "access token"
_REFRESH: Final = "refresh token"
_INVALID: Final = "the grant is unknown, was used already, or has expired"


class Grants:
    """Makes, exchanges, checks and revokes grants.

    Args:
        store: Where they are kept.
        vault: Seals tokens.
        resource: What the tokens are for.
        lifetimes: How long they are good.
        hooks: What the proxy does for them.
    """

    def __init__(self, store: ProxyStore, vault: Vault, resource: str, lifetimes: Lifetimes, hooks: GrantHooks) -> None:
        self._store = store
        self._vault = vault
        self._resource = resource
        self._lifetimes = lifetimes
        self._hooks = hooks
        #: What the ids of grants begin with that only this process has.
        self._mark = random_text()[:8]
        #: What is done to the end, whoever waits for it.
        self._tasks: set[asyncio.Task[Any]] = set()

    # ---------------------------------------------------------------- codes

    def _place_of(self, login: str) -> str:
        """Where the grant is stored that a login leads to: a login leads to one at a time."""
        return f"{'' if self._store.shared else self._mark}{digest(f'grant {login}')}"

    async def has_grant(self, login: str) -> bool:
        """Whether a login has led to a grant already."""
        return await self._store.get("grant", self._place_of(login), Grant) is not None

    async def make_code(
        self,
        login: str,
        client_id: str,
        redirect_uri: str,
        challenge: str,
        scopes: tuple[str, ...],
        claims: dict[str, Any],
        upstream: UpstreamTokens,
    ) -> str | None:
        """Store the grant of a login and return the code for it; None if the login has led to one already."""
        now = time.time()
        code = Code(redirect_uri, challenge, now + CODE_SECONDS)
        expires = now + _UNUSED_SECONDS
        place = self._place_of(login)
        grant = Grant(
            f"{place}.{random_text()[:16]}", claims["sub"], claims, client_id, scopes, upstream, code, expires
        )
        if not await self._store.add("grant", place, grant, _UNUSED_SECONDS):
            return None
        return self._vault.seal(CodeToken(grant.id), _CODE)

    async def redeem(
        self, client: ProxyClient, code: str, verifier: str, redirect_uri: str | None, notice: Notice
    ) -> dict[str, Any]:
        """Exchange a code (RFC 6749 §4.1.3, RFC 7636 §4.6). Its second use ends the grant (RFC 6749 §4.1.2).

        Args:
            client: The client, authenticated.
            code: The code.
            verifier: The PKCE verifier.
            redirect_uri: The redirect URI, if it was sent; OAuth 2.1 leaves it out.
            notice: Called before the code is used up.

        Returns:
            The token response.

        Raises:
            OAuthError: `invalid_grant`: the code is unknown, used, expired, or was issued to somebody else.
        """
        named = self._vault.unseal(code, CodeToken, _CODE)
        grant = None if named is None else await self._find_or_warn(named.grant)
        if grant is None or grant.client_id != client.id or redirect_uri not in (None, grant.code.redirect_uri):
            raise OAuthError("invalid_grant", _INVALID)
        challenge = urlsafe_b64encode(sha256(verifier.encode("utf-8", "replace")).digest()).decode().rstrip("=")
        if not hmac.compare_digest(challenge, grant.code.challenge):
            raise OAuthError("invalid_grant", "the code_verifier does not fit")
        await notice()
        return await self._to_the_end(self._redeem(grant.id))

    async def _redeem(self, grant_id: str) -> dict[str, Any]:
        """Use the code of a grant. All of it under the lease of the grant, which a second use ends for good."""
        async with self._lease(grant_id):
            grant = await self._load(grant_id)
            if grant is None:
                raise OAuthError("invalid_grant", _INVALID)
            if grant.code.used:
                logger.warning("an authorization code was used twice: its grant is revoked")
                await self._end(grant_id)
                raise OAuthError("invalid_grant", _INVALID)
            if grant.code.expires < time.time():
                raise OAuthError("invalid_grant", _INVALID)
            grant.code.used = True
            await self._keep(grant)
            return self._response(grant, grant.scopes)

    async def _find_or_warn(self, grant_id: str) -> Grant | None:
        """The grant that a code or a refresh token of this server names."""
        grant = await self._load(grant_id)
        if grant is None and not self._store.shared and not grant_id.startswith(self._mark):
            logger.warning(
                "A code or refresh token came that another process of this server has made, or this one before it was started: "
                "use Server(backend=…) or OAuthProxy(backend=…), so that processes share logins"
            )
        return grant

    # ---------------------------------------------------------------- refresh

    async def refresh(self, client: ProxyClient, token: str, scope: str | None, notice: Notice) -> dict[str, Any]:
        """Exchange a refresh token (RFC 6749 §6).

        Args:
            client: The client, authenticated.
            token: The refresh token.
            scope: Fewer scopes for the access token; None for all.
            notice: Called before the refresh token is used up.

        Returns:
            The token response.

        Raises:
            OAuthError: `invalid_grant`: the token is unknown, used or expired, or the provider ended the login.
                `invalid_scope`: more is asked than was granted.
        """
        refresh = self._vault.unseal(token, RefreshToken, _REFRESH)
        grant = None if refresh is None else await self._find_or_warn(refresh.grant)
        if refresh is None or grant is None or grant.client_id != client.id:
            raise OAuthError("invalid_grant", _INVALID)
        await notice()
        return await self._to_the_end(self._refresh(refresh, scope))

    async def _refresh(self, refresh: RefreshToken, scope: str | None) -> dict[str, Any]:
        async with self._lease(refresh.grant):
            grant = await self._load(refresh.grant)
            if grant is None or grant.expires < time.time():
                raise OAuthError("invalid_grant", _INVALID)
            scopes = tuple((scope or "").split()) or grant.scopes
            if not set(scopes) <= set(grant.scopes):
                raise OAuthError("invalid_scope", "a refresh can not add scopes: authorize again")
            repeated = refresh.generation == grant.generation - 1
            if refresh.generation != grant.generation and not (
                repeated and time.time() - grant.rotated <= self._lifetimes.grace
            ):
                logger.warning("a refresh token was used again: its grant is revoked")
                await self._end(grant.id)
                raise OAuthError("invalid_grant", _INVALID)
            if not repeated:
                await self._renew(grant)
                if not await self._hooks.is_allowed(grant.claims):
                    await self._end(grant.id)
                    raise OAuthError("invalid_grant", "the user may not use this server any more")
                grant.generation += 1
                grant.rotated = time.time()
                await self._keep(grant)
            return self._response(grant, scopes)

    async def _renew(self, grant: Grant) -> None:
        """Renew tokens of the provider that have ended: this notices a user who may not log in any more."""
        if not _ends_soon(grant.upstream):
            return
        try:
            await self._renew_stored(grant)
        except UpstreamRefused as exc:
            logger.info("the provider ended a login: %s", exc)
            await self._end(grant.id)
            raise OAuthError("invalid_grant", "the identity provider ended the login") from None
        except AuthorizationFailed as exc:
            logger.warning("the identity provider can't be reached: %s", exc)
            raise OAuthError(
                "temporarily_unavailable", "the identity provider can not be reached: try again later", 503
            ) from None

    async def _renew_stored(self, grant: Grant) -> None:
        """Renew the tokens of the provider and store them, before anything else can fail: the former ones may be of no use now."""
        former = grant.upstream
        try:
            await self._hooks.renew(grant)
        finally:
            if grant.upstream is not former:
                ttl = max(grant.expires - time.time(), 1.0)
                await store_patiently(
                    lambda: self._store.set("grant", _place(grant.id), grant, ttl),
                    _PATIENCE,
                    "A renewed token of a provider",
                )

    async def _to_the_end(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Do something that must not end half-way because the client is gone."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await wait_shared(task)

    async def _load(self, grant_id: str) -> Grant | None:
        """A grant; None if there is none, or another one in its place."""
        grant = await self._store.get("grant", _place(grant_id), Grant)
        return grant if grant is not None and grant.id == grant_id else None

    def _lease(self, grant_id: str) -> AbstractAsyncContextManager[Any]:
        """Be the only one who changes a grant."""
        return self._store.lease("grant", _place(grant_id))

    async def _end(self, grant_id: str) -> None:
        await self._store.delete("grant", _place(grant_id))
        self._hooks.on_end(grant_id)

    async def _keep(self, grant: Grant) -> None:
        grant.expires = time.time() + self._lifetimes.grant
        await self._store.set("grant", _place(grant.id), grant, self._lifetimes.grant)

    def _response(self, grant: Grant, scopes: tuple[str, ...]) -> dict[str, Any]:
        expires = time.time() + self._lifetimes.access
        access = AccessToken(grant.id, self._resource, scopes, expires)
        refresh = RefreshToken(grant.id, grant.generation)
        return {
            "access_token": self._vault.seal(access, _ACCESS),
            "token_type": "Bearer",
            "expires_in": int(self._lifetimes.access),
            "refresh_token": self._vault.seal(refresh, _REFRESH),
            "scope": " ".join(scopes),
        }

    # ---------------------------------------------------------------- use

    def read_access(self, token: str) -> AccessToken | None:
        """What is in an access token of this server; None for any other text and an expired one."""
        access = self._vault.unseal(token, AccessToken, _ACCESS)
        if access is None or access.expires < time.time() or access.resource != self._resource:
            return None
        return access

    async def find(self, grant_id: str) -> Grant | None:
        """A grant; None if it has ended."""
        grant = await self._load(grant_id)
        return grant if grant is not None and grant.expires > time.time() else None

    async def upstream_token(self, grant_id: str) -> str:
        """The access token of the provider for a grant, renewed if it ends soon.

        Raises:
            AuthorizationFailed: The grant has ended, or the provider gives no new token.
        """
        grant = await self.find(grant_id)
        if grant is not None and _ends_soon(grant.upstream):
            grant = await self._to_the_end(self._renewed(grant_id))
        if grant is None:
            raise AuthorizationFailed("The login has ended: the client has to authorize again")
        return grant.upstream.access

    async def _renewed(self, grant_id: str) -> Grant | None:
        """A grant whose tokens of the provider are good for a while; None if it has ended."""
        async with self._lease(grant_id):
            grant = await self.find(grant_id)  # another replica may have renewed it meanwhile
            if grant is not None and _ends_soon(grant.upstream):
                await self._renew_stored(grant)
            return grant

    async def revoke(self, client: ProxyClient, token: str, notice: Notice) -> UpstreamTokens | None:
        """End the grant of an access or refresh token (RFC 7009); other tokens are ignored.

        Args:
            client: The client, authenticated.
            token: The token.
            notice: Called before anything ends.

        Returns:
            The tokens of the provider, which can be revoked there; None if nothing ended.

        Raises:
            OAuthError: The token is of another client.
        """
        named = self._vault.unseal(token, RefreshToken, _REFRESH) or self._vault.unseal(token, AccessToken, _ACCESS)
        grant = None if named is None else await self._load(named.grant)
        if grant is None:
            return None
        if grant.client_id != client.id:
            raise OAuthError("invalid_grant", "the token was issued to another client")
        await notice()
        async with self._lease(grant.id):
            ended = await self._load(grant.id)
            if ended is None:
                return None
            await self._end(grant.id)
        return ended.upstream


def _place(grant_id: str) -> str:
    """Where a grant is stored."""
    return grant_id.partition(".")[0]


def _ends_soon(tokens: UpstreamTokens) -> bool:
    """Whether the provider's access token has to be renewed before it is used. Some providers say nothing of an end."""
    return tokens.expires is not None and tokens.expires - time.time() <= _SOON
