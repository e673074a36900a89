"""The backend for one process: listeners are called immediately, values are kept in its memory."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple, TypeAlias

from hinge.backends.base import Event, Listener, check_key, check_ttl, check_value
from hinge.backends.lease import Lease, hold_lease
from hinge.errors import Overloaded
from hinge.protocol.changes import Changed

logger = logging.getLogger("hinge")

_NEVER = float("inf")
#: Expired entries that one operation deletes at most, unless there is no room.
_SWEPT = 100
_Key: TypeAlias = tuple[Literal["value", "claim", "lease"], bytes]


class _Stored(NamedTuple):
    value: bytes
    expires: float


class MemoryBackend:
    """Publishes changes within this process, and keeps values in its memory; any thread may use it.

    Args:
        max_entries: Values, claims and leases that are kept at once. Beyond, `Overloaded` is raised.
        max_bytes: Bytes of their keys and values.
    """

    def __init__(self, *, max_entries: int = 100_000, max_bytes: int = 256 << 20) -> None:
        self._listeners: dict[object, Listener] = {}
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: dict[_Key, _Stored] = {}
        self._bytes = 0
        #: When entries expire, the next one first. Some of them were replaced or deleted meanwhile.
        self._expiries: list[tuple[float, _Key]] = []

    # ---------------------------------------------------------------- changes

    def publish(self, event: Changed) -> None:
        """Call all listeners; an error of one is logged.

        Args:
            event: What changed.
        """
        self.tell(event)

    def tell(self, event: Event) -> None:
        """Call all listeners with any event; an error of one is logged.

        Args:
            event: What changed, or that changes were lost.
        """
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener for changes failed")

    @property
    def has_listeners(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener.

        Args:
            listener: Called with each event, on the thread that calls `publish`.

        Returns:
            A function that removes the listener; calling it twice is harmless.
        """
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    # ---------------------------------------------------------------- values, claims, leases

    async def get(self, key: str) -> bytes | None:
        """Return a value.

        Args:
            key: Its key.

        Returns:
            The value; None if there is none, or it has expired.

        Raises:
            ValueError: The key is not allowed.
        """
        entry = self._entries.get(("value", check_key(key)))
        return entry.value if entry is not None and entry.expires > time.monotonic() else None

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Store a value, in place of an earlier one and its expiry.

        Args:
            key: Its key.
            value: The value.
            ttl: Seconds until it expires; None keeps it.

        Raises:
            ValueError: The key, value or time is not allowed.
            Overloaded: There is no room.
        """
        lasts = _NEVER if ttl is None else check_ttl(ttl)
        self._put(("value", check_key(key)), check_value(value), lasts, lambda present: True)

    async def delete(self, key: str) -> bool:
        """Delete a value.

        Args:
            key: Its key.

        Returns:
            Whether there was one that had not expired.

        Raises:
            ValueError: The key is not allowed.
        """
        name: _Key = ("value", check_key(key))
        with self._lock:
            present = self._remove(name)
            return present is not None and present.expires > time.monotonic()

    async def claim(self, key: str, *, ttl: float) -> bool:
        """Claim a key, which nobody else can until the claim expires.

        Args:
            key: The key.
            ttl: Seconds until it can be claimed again.

        Returns:
            True for one caller, False for the others.

        Raises:
            ValueError: The key or time is not allowed.
            Overloaded: There is no room.
        """
        return self._put(("claim", check_key(key)), b"", check_ttl(ttl), lambda present: False)

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
        """Hold a key inside of `async with`, as the only one among all tasks and threads.

        Args:
            key: The key.
            ttl: Seconds after which the lease ends if it is not renewed.
            wait: Seconds to wait until the lease is free, 0 to try once; None waits without limit.

        Returns:
            A context manager, which raises TimeoutError or LeaseLost; see `Backend.lease`.

        Raises:
            ValueError: The key or time is not allowed.
        """
        name: _Key = ("lease", check_key(key))
        check_ttl(ttl)

        async def take(owner: bytes) -> bool:
            return self._put(name, owner, ttl, lambda present: present == owner)

        async def release(owner: bytes) -> None:
            with self._lock:
                present = self._entries.get(name)
                if present is not None and present.value == owner:
                    self._remove(name)

        return hold_lease(take, release, key, ttl=ttl, wait=wait)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    # ---------------------------------------------------------------- entries

    def _put(self, name: _Key, value: bytes, lasts: float, may_replace: Callable[[bytes], bool]) -> bool:
        """Store an entry unless there is one that may not be replaced. Raises Overloaded if there is no room."""
        with self._lock:
            now = time.monotonic()
            self._sweep(now, _SWEPT)
            present = self._entries.get(name)
            if present is not None and present.expires > now and not may_replace(present.value):
                return False
            self._make_room(name, value, now)
            self._remove(name)
            expires = now + lasts
            self._entries[name] = _Stored(value, expires)
            self._bytes += len(name[1]) + len(value)
            if expires < _NEVER:
                heappush(self._expiries, (expires, name))
                if len(self._expiries) > 2 * len(self._entries) + 100:
                    self._expiries = [
                        (entry.expires, key) for key, entry in self._entries.items() if entry.expires < _NEVER
                    ]
                    heapify(self._expiries)
            return True

    def _make_room(self, name: _Key, value: bytes, now: float) -> None:
        def is_full() -> bool:
            present = self._entries.get(name)
            more = len(value) - len(present.value) if present is not None else len(name[1]) + len(value)
            count = len(self._entries) + (present is None)
            return count > self._max_entries or self._bytes + more > self._max_bytes

        if is_full():
            self._sweep(now, len(self._expiries))
        if is_full():
            raise Overloaded(
                f"The backend in memory is full: it has {len(self._entries)} entries with {self._bytes} bytes, "
                f"and keeps at most {self._max_entries} with {self._max_bytes}"
            )

    def _remove(self, name: _Key) -> _Stored | None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._bytes -= len(name[1]) + len(entry.value)
        return entry

    def _sweep(self, now: float, limit: int) -> None:
        """Delete entries that have expired."""
        while limit > 0 and self._expiries and self._expiries[0][0] <= now:
            expires, name = heappop(self._expiries)
            entry = self._entries.get(name)
            if entry is not None and entry.expires == expires:
                self._remove(name)
            limit -= 1
