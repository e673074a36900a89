"""The backend for one process: listeners are called immediately, values are kept in its memory."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

from gemel.backends.base import (
    MAX_LOG_BYTES,
    Backend,
    Event,
    Listener,
    check_entries,
    check_key,
    check_most,
    check_ttl,
    check_value,
    store_full,
)
from gemel.backends.lease import Lease, hold_lease
from gemel.errors import LogConflict
from gemel.loops import on_fork
from gemel.protocol.changes import Changed

logger = logging.getLogger("gemel")

_NEVER = float("inf")
#: Expired entries that one operation deletes at most, unless there is no room.
_SWEPT = 100
_Key: TypeAlias = tuple[Literal["value", "claim", "lease", "log"], bytes]


class _Stored(NamedTuple):
    value: bytes
    expires: float
    #: Greater than those of entries that were here before, for the holder of a lease.
    token: int = 0


def _size(name: _Key, value: bytes) -> int:
    """The bytes for which an entry counts."""
    return 0 if name[0] == "lease" else len(name[1]) + len(value)


class _Log:
    """The entries of a log."""

    __slots__ = ("end", "entries", "expires", "size")

    def __init__(self) -> None:
        self.entries: deque[bytes] = deque()
        self.end = 0
        self.size = 0
        self.expires = _NEVER


class MemoryBackend(Backend):
    """Publishes changes within this process, and keeps values in its memory; any thread may use it.

    Args:
        max_entries: Values, claims and entries of logs that are kept at once. Beyond, `Overloaded` is raised. Leases don't
            count: each belongs to code that runs, and what exists can be changed under one when there is no room.
        max_bytes: Bytes of their keys and values.
    """

    #: Other processes do not see what is stored.
    shared: bool = False  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]  # a constant

    def __init__(self, *, max_entries: int = 100_000, max_bytes: int = 256 << 20) -> None:
        self._listeners: dict[object, Listener] = {}
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._set_lock()
        on_fork(self._set_lock)
        self._entries: dict[_Key, _Stored] = {}
        self._bytes = 0
        self._leases = 0
        self._tokens = 0
        self._logs: dict[bytes, _Log] = {}
        self._log_entries = 0
        self._watchers: dict[str, dict[object, Callable[[], None]]] = {}
        #: When entries expire, the next one first. Some of them were replaced or deleted meanwhile.
        self._expiries: list[tuple[float, _Key]] = []

    def _set_lock(self) -> None:
        """Another thread may have held it when this process was forked."""
        self._lock = threading.Lock()

    # ---------------------------------------------------------------- changes

    def publish(self, event: Changed) -> None:
        """Call all listeners; an error of one is logged.

        Args:
            event: What changed.
        """
        self.tell(event)

    async def flush(self) -> None:
        """Do nothing: all listeners were called."""

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
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    # ---------------------------------------------------------------- values, claims, leases

    async def get(self, key: str) -> bytes | None:
        entry = self._entries.get(("value", check_key(key)))
        return entry.value if entry is not None and entry.expires > time.monotonic() else None

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        lasts = _NEVER if ttl is None else check_ttl(ttl)
        self._put(("value", check_key(key)), check_value(value), lasts, lambda present: True)

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        lasts = _NEVER if ttl is None else check_ttl(ttl)
        name: _Key = ("value", check_key(key))
        return self._put(name, check_value(value), lasts, lambda present: present == expected) is not None

    async def touch(self, key: str, *, ttl: float) -> bool:
        name: _Key = ("value", check_key(key))
        check_ttl(ttl)
        with self._lock:
            now = time.monotonic()
            present = self._entries.get(name)
            if present is None or present.expires <= now:
                return False
            self._entries[name] = present._replace(expires=now + ttl)
            self._expire(name, now + ttl)
            return True

    async def delete(self, key: str) -> bool:
        name: _Key = ("value", check_key(key))
        with self._lock:
            present = self._remove(name)
            return present is not None and present.expires > time.monotonic()

    async def claim(self, key: str, *, ttl: float) -> bool:
        name: _Key = ("claim", check_key(key))
        return self._put(name, b"", check_ttl(ttl), lambda present: present is None) is not None

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
        name: _Key = ("lease", check_key(key))
        check_ttl(ttl)

        async def take(owner: bytes) -> int:
            entry = self._put(name, owner, ttl, lambda present: present is None or present == owner)
            return 0 if entry is None else entry.token

        async def release(owner: bytes) -> None:
            with self._lock:
                present = self._entries.get(name)
                if present is not None and present.value == owner:
                    self._remove(name)

        return hold_lease(take, release, key, ttl=ttl, wait=wait)

    # ---------------------------------------------------------------- logs

    async def append(
        self, log: str, entries: Sequence[bytes], *, ttl: float, most: int = 1000, after: int | None = None
    ) -> int:
        key = check_key(log)
        check_entries(entries)
        check_ttl(ttl)
        check_most(most)
        with self._lock:
            now = time.monotonic()
            self._sweep(now, _SWEPT)
            present = self._logs.get(key)
            if present is not None and present.expires <= now:
                self._remove_log(key)
                present = None
            newest = 0 if present is None else present.end
            if after is not None and after != newest:
                raise LogConflict(after, newest)
            added = sum(map(len, entries))
            self._make_room(len(entries) + (present is None), added + (len(key) if present is None else 0), now)
            if present is None:
                present = self._logs[key] = _Log()
                self._bytes += len(key)
            present.entries.extend(entries)
            dropped = 0
            while len(present.entries) > most or (present.size + added > MAX_LOG_BYTES and len(present.entries) > 1):
                added -= len(present.entries.popleft())
                dropped += 1
            present.end += len(entries)
            present.size += added
            present.expires = now + ttl
            self._bytes += added
            self._log_entries += len(entries) - dropped
            self._expire(("log", key), present.expires)
            end = present.end
        self.wake((log,))
        return end

    async def read(self, log: str, *, after: int = 0, most: int = 1000) -> list[tuple[int, bytes]]:
        key = check_key(log)
        check_most(most)
        with self._lock:
            present = self._logs.get(key)
            if present is None or present.expires <= time.monotonic():
                return []
            first = present.end - len(present.entries) + 1
            start = max(after + 1, first)
            return list(enumerate(islice(present.entries, start - first, start - first + most), start))

    async def end_of(self, log: str) -> int:
        present = self._logs.get(check_key(log))
        return 0 if present is None or present.expires <= time.monotonic() else present.end

    def watch(self, log: str, wake: Callable[[], None]) -> Callable[[], None]:
        check_key(log)
        key = object()
        with self._lock:
            self._watchers.setdefault(log, {})[key] = wake

        def stop() -> None:
            with self._lock:
                watchers = self._watchers.get(log, {})
                watchers.pop(key, None)
                if not watchers:
                    self._watchers.pop(log, None)

        return stop

    def wake(self, logs: Iterable[str]) -> None:
        """Call those who watch logs; an error of one is logged.

        Args:
            logs: Their keys.
        """
        for log in logs:
            with self._lock:
                watchers = list(self._watchers.get(log, {}).values())
            for call in watchers:
                try:
                    call()
                except Exception:
                    logger.exception("a function that watches a log failed")

    @property
    def has_watchers(self) -> bool:
        """Whether a log is watched."""
        return bool(self._watchers)

    @property
    def watched(self) -> list[str]:
        """The logs that are watched."""
        with self._lock:
            return list(self._watchers)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    # ---------------------------------------------------------------- entries

    def _put(
        self, name: _Key, value: bytes, lasts: float, may_replace: Callable[[bytes | None], bool]
    ) -> _Stored | None:
        """Store an entry if the current value may be replaced. Returns it. Raises Overloaded if there is no room."""
        with self._lock:
            now = time.monotonic()
            self._sweep(now, _SWEPT)
            present = self._entries.get(name)
            live = present if present is not None and present.expires > now else None
            if not may_replace(None if live is None else live.value):
                return None
            if live is None:
                self._remove(name)
                self._make_room(int(name[0] != "lease"), _size(name, value), now)
                self._tokens += 1
            else:
                self._make_room(0, _size(name, value) - _size(name, live.value), now)
                self._remove(name)
            entry = _Stored(value, now + lasts, self._tokens if live is None else live.token)
            self._entries[name] = entry
            self._bytes += _size(name, value)
            self._leases += name[0] == "lease"
            self._expire(name, entry.expires)
            return entry

    def _expire(self, name: _Key, expires: float) -> None:
        """Note when an entry or a log expires."""
        if expires == _NEVER:
            return
        heappush(self._expiries, (expires, name))
        if len(self._expiries) > 2 * (len(self._entries) + len(self._logs)) + 100:
            entries = ((entry.expires, key) for key, entry in self._entries.items() if entry.expires < _NEVER)
            logs: Iterable[tuple[float, _Key]] = ((log.expires, ("log", key)) for key, log in self._logs.items())
            self._expiries = [*entries, *logs]
            heapify(self._expiries)

    def _make_room(self, entries: int, size: int, now: float) -> None:
        """Raise Overloaded if there is no room for so many more entries and bytes."""

        def is_full() -> bool:
            return self._count + entries > self._max_entries or self._bytes + size > self._max_bytes

        if is_full():
            self._sweep(now, len(self._expiries))
        if is_full():
            raise store_full(
                f"the backend in memory has {self._count} entries with {self._bytes} bytes, and keeps at most "
                f"{self._max_entries} with {self._max_bytes}"
            )

    @property
    def _count(self) -> int:
        return len(self._entries) - self._leases + len(self._logs) + self._log_entries

    def _remove(self, name: _Key) -> _Stored | None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._bytes -= _size(name, entry.value)
            self._leases -= name[0] == "lease"
        return entry

    def _remove_log(self, key: bytes) -> None:
        log = self._logs.pop(key)
        self._bytes -= len(key) + log.size
        self._log_entries -= len(log.entries)

    def _sweep(self, now: float, limit: int) -> None:
        """Delete entries and logs that have expired."""
        while limit > 0 and self._expiries and self._expiries[0][0] <= now:
            expires, name = heappop(self._expiries)
            if name[0] == "log":
                log = self._logs.get(name[1])
                if log is not None and log.expires == expires:
                    self._remove_log(name[1])
            else:
                entry = self._entries.get(name)
                if entry is not None and entry.expires == expires:
                    self._remove(name)
            limit -= 1
