"""Tokens of a login, and what keeps them valid: one refresh for all tasks, threads and processes that share a store.

RFC 6749, sections 5.1 and 6; refresh tokens of public clients are used once (OAuth 2.1, section 4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec

from gemel.errors import GemelError, NotSent
from gemel.loops import PerLoop
from gemel.protocol.deviations import Note, log_deviation
from gemel.timeouts import wait_shared

logger = logging.getLogger("gemel")

#: A token is refreshed so many seconds before it expires, or in the last tenth of its life if that is shorter.
EARLY = 60.0
#: Seconds before the next attempt after a refresh in the background failed.
RETRY = 5.0
#: Seconds that closing waits for a refresh on its way: without its answer a rotated refresh token would be lost.
CLOSE = 10.0


class InvalidGrant(GemelError):
    """The authorization server no longer accepts a refresh token: `invalid_grant`, or it has none to accept.

    Args:
        message: The text of the error.
        forgets_client: Whether the registration of the client is of no use any more, either.
    """

    def __init__(self, message: str, *, forgets_client: bool = False) -> None:
        super().__init__(message)
        self.forgets_client = forgets_client


class TokenStoreError(GemelError):
    """A token store can't be read or written; the message says what to do."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A login: an access token, what renews it, and the client that it was issued to.

    Args:
        access_token: The access token; "" if there is only a client registration.
        token_type: "Bearer" or "DPoP".
        refresh_token: The refresh token; None without.
        expires_at: When the access token expires, in Unix seconds; None if the server did not say.
        issued_at: When it was issued, in Unix seconds; None if unknown.
        scopes: What was granted.
        issuer: The authorization server.
        token_endpoint: Where the token is refreshed.
        revocation_endpoint: Where the tokens are revoked; None if they can't be.
        client: The client registration: `client_id`, `client_secret`, … as JSON values.
    """

    access_token: str = ""
    token_type: str = "Bearer"
    refresh_token: str | None = None
    expires_at: float | None = None
    issued_at: float | None = None
    scopes: tuple[str, ...] = ()
    issuer: str = ""
    token_endpoint: str = ""
    revocation_endpoint: str | None = None
    client: dict[str, Any] = {}

    def __repr__(self) -> str:
        """The issuer only: the other members are secret."""
        return f"<Tokens of {self.issuer or 'an unknown issuer'}>"

    @property
    def early(self) -> float:
        """How many seconds before its end the access token is refreshed."""
        if self.expires_at is None or self.issued_at is None:
            return EARLY
        return max(0.0, min(EARLY, (self.expires_at - self.issued_at) / 10))

    def is_usable(self, now: float) -> bool:
        """Whether the access token can be sent at this time.

        Args:
            now: The time in Unix seconds.
        """
        return bool(self.access_token) and (self.expires_at is None or now < self.expires_at - self.early / 10)

    def is_due(self, now: float) -> bool:
        """Whether the access token should be refreshed at this time, and can be.

        Args:
            now: The time in Unix seconds.
        """
        return self.refresh_token is not None and self.expires_at is not None and now >= self.expires_at - self.early

    def is_fresh(self, now: float) -> bool:
        """Whether the access token can be sent and need not be refreshed at this time.

        Args:
            now: The time in Unix seconds.
        """
        return self.is_usable(now) and not self.is_due(now)


def token_key(issuer: str, resource: str, client_id: str) -> str:
    """Return the key of a login in a token store: credentials belong to one issuer, resource and client.

    Args:
        issuer: The authorization server.
        resource: The canonical URI of the MCP server.
        client_id: The client; any other text if the id is part of what is stored.

    Returns:
        The key.
    """
    return f"{issuer} {resource} {client_id}"


class TokenStore(Protocol):
    """Where logins are kept. Several tasks, threads and processes may use it at once."""

    async def get(self, key: str, /) -> Tokens | None:
        """Return the tokens of a key.

        Args:
            key: The key; see `token_key`.

        Returns:
            The tokens, or None.

        Raises:
            TokenStoreError: The store can't be used.
        """
        ...

    async def set(self, key: str, tokens: Tokens, /) -> None:
        """Store the tokens of a key. When this returns, they outlive the process (unless the store is in memory).

        Args:
            key: The key; see `token_key`.
            tokens: The tokens.

        Raises:
            TokenStoreError: The store can't be used.
        """

    async def delete(self, key: str, /) -> None:
        """Delete the tokens of a key, if there are any.

        Args:
            key: The key; see `token_key`.

        Raises:
            TokenStoreError: The store can't be used.
        """

    def lock(self, key: str, /) -> AbstractAsyncContextManager[None]:
        """Wait for the lock of a key, and hold it inside of `async with`. It ends with the process that holds it.

        Args:
            key: The key; see `token_key`.

        Returns:
            A context manager that holds the lock.

        Raises:
            TokenStoreError: The store can't be used.
        """
        ...


#: Requests new tokens with those that are stored. Raises InvalidGrant if the refresh token is no longer accepted.
Refresh: TypeAlias = Callable[[Tokens], Awaitable[Tokens]]
#: Logs in, with the client registration that is stored, if there is any.
Login: TypeAlias = Callable[[Tokens | None], Awaitable[Tokens]]


class _Work:
    """The refresh or the login that is under way in one event loop."""

    def __init__(self) -> None:
        self.kind = ""
        self.task: asyncio.Task[Tokens | None] | None = None

    def end(self, task: asyncio.Task[Tokens | None]) -> None:
        """The task is done."""
        self.task = None


class TokenSource:
    """Valid tokens of one login, refreshed shortly before they expire.

    At most one refresh runs for a login, whatever number of tasks, threads and processes share its store. While a token is
    valid, nobody waits for the refresh of it. A refresh that has begun is not cancelled with the call that needed it.

    Args:
        store: Where the tokens are kept.
        key: The key of the login; see `token_key`.
        refresh: Requests new tokens.
        lock_timeout: Seconds to wait for the lock of the store, which another process may hold.
        note: Notes a refresh that failed although the token is still valid.
    """

    def __init__(
        self,
        store: TokenStore,
        key: str,
        refresh: Refresh,
        *,
        lock_timeout: float = 60.0,
        note: Note = log_deviation,
    ) -> None:
        self.store = store
        self.key = key
        self._refresh = refresh
        self._lock_timeout = lock_timeout
        self._note = note
        #: The newest tokens that this process knows.
        self._tokens: Tokens | None = None
        self._read = False
        self._next_attempt = 0.0
        #: What is under way in each event loop.
        self._work = PerLoop(_Work)

    @property
    def tokens(self) -> Tokens | None:
        """The newest tokens that this process knows, valid or not."""
        return self._tokens

    async def get(self) -> Tokens | None:
        """Return tokens that are valid now, refreshed if need be.

        Returns:
            The tokens; None if a login is needed.

        Raises:
            TokenStoreError: The store can't be read.
            NotSent: The lock of the store was not free in time.
            GemelError: The refresh failed for another reason than a refused refresh token.
        """
        now = time.time()
        tokens = self._tokens
        if tokens is None or not tokens.is_usable(now):
            if tokens is None and not self._read:
                self._tokens = tokens = await self.store.get(self.key)
                self._read = True
            if tokens is None or (tokens.refresh_token is None and not tokens.is_usable(now)):
                return None
        if not tokens.is_usable(now):
            return await self._run("refresh", partial(self._renew, None, None))
        if tokens.is_due(now) and time.monotonic() >= self._next_attempt:
            self._start("refresh", partial(self._renew, None, None)).add_done_callback(self._note_failure)
        return tokens

    async def replace(self, refused: str) -> Tokens | None:
        """Return other tokens than those that a server refused: newer ones, or refreshed ones.

        Args:
            refused: The access token that was refused.

        Returns:
            The tokens; None if a login is needed.

        Raises:
            TokenStoreError, NotSent, GemelError: As for `get`.
        """
        return await self._other("refresh", refused, None)

    async def obtain(self, login: Login, *, refused: str | None = None) -> Tokens | None:
        """Return tokens that another task or process has stored meanwhile, or log in and store what that gives.

        Args:
            login: Logs in. Only one login runs at a time for all who share the store.
            refused: The access token that was refused or lacks scopes, if there is one.

        Returns:
            The tokens.

        Raises:
            TokenStoreError, NotSent: As for `get`.
            GemelError: What `login` raises.
        """
        return await self._other("login", refused, login)

    async def forget(self) -> Tokens | None:
        """Delete the login from the store.

        Returns:
            The tokens, to be revoked; None if there were none.

        Raises:
            TokenStoreError: The store can't be written.
        """
        async with AsyncExitStack() as stack:
            await self._lock(stack)
            try:
                stored = await self.store.get(self.key)
            except TokenStoreError:  # damaged: there is nothing to revoke
                stored = None
            await self.store.delete(self.key)
            self._tokens = None
            return stored

    async def close(self) -> None:
        """Wait, bounded, for a refresh that is under way on this event loop, so that its answer is stored."""
        work = self._work.here()
        if work.task is not None and work.kind == "refresh":
            await asyncio.wait([work.task], timeout=CLOSE)

    # ---------------------------------------------------------------- one at a time

    async def _other(self, kind: str, refused: str | None, login: Login | None) -> Tokens | None:
        tokens = self._tokens
        if tokens is not None and refused not in (None, tokens.access_token) and tokens.is_usable(time.time()):
            return tokens
        return await self._run(kind, partial(self._renew, refused, login))

    async def _run(self, kind: str, work: Callable[[], Coroutine[Any, Any, Tokens | None]]) -> Tokens | None:
        """Run the work, or wait for the one of its kind that is under way on this loop."""
        present = self._work.here()
        while present.task is not None and present.kind != kind:
            await asyncio.wait([present.task])
        return await wait_shared(self._start(kind, work))

    def _start(self, kind: str, work: Callable[[], Coroutine[Any, Any, Tokens | None]]) -> asyncio.Task[Tokens | None]:
        present = self._work.here()
        if present.task is None:
            present.kind, present.task = kind, asyncio.get_running_loop().create_task(work())
            present.task.add_done_callback(present.end)
        return present.task

    def _note_failure(self, task: asyncio.Task[Tokens | None]) -> None:
        """Log the failure of a refresh in the background: the token is still valid, and there is time for another attempt."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._next_attempt = time.monotonic() + RETRY
            self._note("refresh-postponed", str(error))

    # ---------------------------------------------------------------- under the lock

    async def _lock(self, stack: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(self._lock_timeout):
                await stack.enter_async_context(self.store.lock(self.key))
        except TimeoutError as exc:
            text = f"another process has held the lock of the stored login for {self._lock_timeout:g} seconds"
            raise NotSent(f"Not sent: {text}") from exc

    async def _renew(self, refused: str | None, login: Login | None) -> Tokens | None:
        async with AsyncExitStack() as stack:
            await self._lock(stack)
            try:
                stored = self._tokens = await self.store.get(self.key)
            except TokenStoreError:
                if login is None:
                    raise
                stored = self._tokens = None  # the new login takes its place
            self._read = True
            if stored is not None and stored.access_token != refused and stored.is_fresh(time.time()):
                return stored
            if login is not None:
                return await self._keep(await login(stored), None)  # somebody else may have logged in
            return None if stored is None or stored.refresh_token is None else await self._refreshed(stored, refused)

    async def _refreshed(self, stored: Tokens, refused: str | None) -> Tokens | None:
        try:
            return await self._keep(await self._refresh(stored), stored)
        except InvalidGrant as exc:
            refusal = exc
            newer = await self.store.get(self.key)
        if newer is not None and newer.refresh_token not in (None, stored.refresh_token):
            # Somebody wrote without the lock, such as another program: the token was rotated.
            if newer.access_token != refused and newer.is_usable(time.time()):
                self._tokens = newer
                return newer
            stored = newer
            try:
                return await self._keep(await self._refresh(stored), stored)
            except InvalidGrant as exc:
                refusal = exc
        return await self._drop(stored, refused, {} if refusal.forgets_client else stored.client)

    async def _keep(self, tokens: Tokens, previous: Tokens | None) -> Tokens:
        """Store new tokens. What the server left out is as it was."""
        if previous is not None:
            names = ("refresh_token", "scopes", "issuer", "token_endpoint", "revocation_endpoint", "client")
            absent = [name for name in names if not getattr(tokens, name)]
            tokens = msgspec.structs.replace(tokens, **{name: getattr(previous, name) for name in absent})
        if tokens.issued_at is None:
            tokens = msgspec.structs.replace(tokens, issued_at=time.time())
        self._tokens = tokens
        try:
            await self.store.set(self.key, tokens)
        except TokenStoreError as exc:
            logger.warning("A login is kept in this process only: %s", exc)
        return tokens

    async def _drop(self, stored: Tokens, refused: str | None, client: dict[str, Any]) -> Tokens | None:
        """The refresh token is used up: use the access token while it is valid, and keep the client registration."""
        usable = stored.access_token != refused and stored.is_usable(time.time())
        access_token = stored.access_token if usable else ""
        self._tokens = msgspec.structs.replace(stored, access_token=access_token, refresh_token=None, client=client)
        await self.store.set(self.key, self._tokens)
        return self._tokens if usable else None
