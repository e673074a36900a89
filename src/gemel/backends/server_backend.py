"""The part of a backend that belongs to one server: all keys and changes name the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, runtime_checkable

from gemel.backends.base import Backend, Listener, Reopenable, check_key
from gemel.backends.keys import LONGEST_PART, make_key
from gemel.backends.lease import Lease
from gemel.protocol.changes import Changed, ChangesLost


class ServerBackend(Backend, Reopenable):
    """What one server has in a backend that several may use: `server.backend` is one.

    Keys and changes carry the server's name, so servers with different names don't see each other's. A program that is not the
    server reads what it stored, or announces changes to its subscribers, with
    `ServerBackend(SqliteBackend("state.db"), "notes")`.

    Args:
        backend: The backend.
        server: The name of the server; or a function that returns the names of the servers that it is mounted in, outermost
            first, and its own: called once, by the first operation.
    """

    def __init__(self, backend: Backend, server: str | Callable[[], Sequence[str]]) -> None:
        #: The backend of which this is a part.
        self.whole = backend
        self._path: Callable[[], Sequence[str]] = (lambda: (server,)) if isinstance(server, str) else server
        self._known_scope: str | None = None

    def __repr__(self) -> str:
        """The backend and the scope."""
        return f"ServerBackend({self.whole!r}, {self.scope!r})"

    @property
    def scope(self) -> str:
        """What keys and kinds of changes begin with, in the backend."""
        if self._known_scope is None:
            scope = make_key(*self._path())
            self._known_scope = (scope if len(scope.encode()) <= LONGEST_PART else make_key(scope)) + "/"
        return self._known_scope

    def part_of(self, backend: Backend) -> ServerBackend:
        """Return the part of a backend that belongs to the same server.

        Args:
            backend: Any backend; this one is returned as it is.

        Returns:
            The part.
        """
        return self if backend is self else ServerBackend(backend, self._path)

    def _key(self, key: str) -> str:
        check_key(key)
        return self.scope + make_key(key)

    @property
    def shared(self) -> bool:
        return self.whole.shared

    # ---------------------------------------------------------------- changes

    def publish(self, event: Changed) -> None:
        self.whole.publish(Changed(self.scope + make_key(event.kind), event.uri))

    async def flush(self) -> None:
        await self.whole.flush()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        scope = self.scope

        def filtered(event: Changed | ChangesLost) -> None:
            if isinstance(event, ChangesLost):
                listener(event)
            elif event.kind.startswith(scope):
                kind = event.kind.removeprefix(scope).partition(":")[2]
                if event.kind == scope + make_key(kind):  # and not that of a server that is mounted in this one
                    listener(Changed(kind, event.uri))

        return self.whole.subscribe(filtered)

    # ---------------------------------------------------------------- values, claims, leases

    async def get(self, key: str) -> bytes | None:
        return await self.whole.get(self._key(key))

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        await self.whole.set(self._key(key), value, ttl=ttl)

    async def delete(self, key: str) -> bool:
        return await self.whole.delete(self._key(key))

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        return await self.whole.replace(self._key(key), expected, value, ttl=ttl)

    async def touch(self, key: str, *, ttl: float) -> bool:
        return await self.whole.touch(self._key(key), ttl=ttl)

    async def claim(self, key: str, *, ttl: float) -> bool:
        return await self.whole.claim(self._key(key), ttl=ttl)

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
        return self._hold(key, self.whole.lease(self._key(key), ttl=ttl, wait=wait))

    @asynccontextmanager
    async def _hold(self, key: str, whole: AbstractAsyncContextManager[Lease]) -> AsyncIterator[Lease]:
        async with whole as lease:
            lease.key = key
            yield lease

    # ---------------------------------------------------------------- logs

    async def append(
        self, log: str, entries: Sequence[bytes], *, ttl: float, most: int = 1000, after: int | None = None
    ) -> int:
        return await self.whole.append(self._key(log), entries, ttl=ttl, most=most, after=after)

    async def read(self, log: str, *, after: int = 0, most: int = 1000) -> list[tuple[int, bytes]]:
        return await self.whole.read(self._key(log), after=after, most=most)

    async def end_of(self, log: str) -> int:
        return await self.whole.end_of(self._key(log))

    def watch(self, log: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self.whole.watch(self._key(log), wake)

    def reopen(self) -> None:
        if isinstance(self.whole, Reopenable):
            self.whole.reopen()

    async def close(self) -> None:
        """Close the backend of which this is a part."""
        await self.whole.close()


@runtime_checkable
class StoresThings(Protocol):
    """Something that is given to a server and stores things: middleware, authorization, an extension."""

    @property
    def not_shared(self) -> str:
        """What other processes of the server miss, since it is in the memory of this one; "" for nothing."""
        ...


@runtime_checkable
class UsesBackend(StoresThings, Protocol):
    """Middleware or authorization that stores things."""

    def use_backend(self, backend: ServerBackend, /) -> None:
        """Store things under the name of a server. Called when it is given to one; the first server counts.

        Args:
            backend: That of the server; `ServerBackend.part_of` makes the same of another one.
        """
