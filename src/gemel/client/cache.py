"""The result cache of a client: by method, params and revision, for as long as the server allows, never shared between
clients. Change notifications drop entries."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gemel.protocol.changes import Changed, ChangesLost
from gemel.protocol.limits import DEFAULT_LIMITS
from gemel.schema.methods import lists_of
from gemel.values.encoding import ordered_text

CacheMode: TypeAlias = Literal["use", "refresh", "bypass"]


class _Hint(msgspec.Struct, rename="camel"):
    ttl_ms: int | UnsetType = UNSET
    cache_scope: str | UnsetType = UNSET


_hint = msgspec.json.Decoder(_Hint)


class CacheEntry(msgspec.Struct, frozen=True):
    """One result.

    Attributes:
        text: The result as JSON text.
        until: When it is stale, in seconds since the epoch.
        scope: "public", or "private": for the caller only that it was sent to.
        credentials: What the request was sent with, as an opaque text.
    """

    text: bytes
    until: float
    scope: str
    credentials: str = ""


class Store(Protocol):
    """Where entries are kept. Keys are opaque strings."""

    def get(self, key: str) -> CacheEntry | None:
        """Get an entry, stale or not."""

    def put(self, key: str, entry: CacheEntry) -> None:
        """Keep an entry; others may be dropped for it."""

    def drop(self, concerns: Callable[[str], bool]) -> None:
        """Drop all entries for whose key `concerns` is true."""


class MemoryStore:
    """Entries in memory; at a limit the least recently used one is dropped.

    Args:
        limit: How many entries.
        most_bytes: Bytes of their texts and keys.
    """

    def __init__(self, limit: int, most_bytes: int = DEFAULT_LIMITS.cache_bytes) -> None:
        self._limit = limit
        self._most_bytes = most_bytes
        self._bytes = 0
        self._entries: OrderedDict[str, CacheEntry] = OrderedDict()

    def get(self, key: str) -> CacheEntry | None:
        """Get an entry, which counts as used."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: str, entry: CacheEntry) -> None:
        """Keep an entry, unless it is larger than all may be."""
        self._remove(key)
        size = _size(key, entry)
        if size > self._most_bytes:
            return
        self._entries[key] = entry
        self._bytes += size
        while len(self._entries) > self._limit or self._bytes > self._most_bytes:
            self._remove(next(iter(self._entries)))

    def drop(self, concerns: Callable[[str], bool]) -> None:
        """Drop entries."""
        for key in [key for key in self._entries if concerns(key)]:
            self._remove(key)

    def _remove(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= _size(key, entry)


def _size(key: str, entry: CacheEntry) -> int:
    return len(key) + len(entry.text)


class Cache:
    """The cache of one client. `partition` separates it from other clients with the same store."""

    def __init__(self, store: Store, *, partition: str, longest: float) -> None:
        self._store = store
        self._partition = partition
        self._longest = longest

    def key(self, method: str, params: dict[str, Any], revision: str) -> str:
        """The key of a request: its method, params and revision."""
        asked = {name: value for name, value in params.items() if name != "_meta"}
        text = ordered_text([revision, asked]).decode()
        return f"{method}\n{self._partition}\n{text}"

    def get(self, key: str) -> CacheEntry | None:
        """Get a fresh entry. A private one must not be used with other credentials."""
        entry = self._store.get(key)
        return entry if entry is not None and time.time() < entry.until else None

    def put(self, key: str, raw: Raw, credentials: str = "") -> None:
        """Keep a complete result if the server gave it a valid `ttlMs`."""
        try:
            hint = _hint.decode(raw)
        except msgspec.MsgspecError:
            return
        if hint.ttl_ms is UNSET or hint.ttl_ms <= 0:
            return
        until = time.time() + min(hint.ttl_ms / 1000, self._longest)
        scope = hint.cache_scope if hint.cache_scope is not UNSET else "private"
        self._store.put(key, CacheEntry(bytes(raw), until, scope, credentials))

    def changed(self, event: Changed | ChangesLost) -> None:
        """Drop the entries that a change concerns, all if changes were lost."""
        if isinstance(event, ChangesLost):
            self.clear()
            return
        methods = ["resources/read"] if event.kind == "resource" else [of.method for of in lists_of(event.kind)]
        quoted = msgspec.json.encode(event.uri).decode() if event.uri is not None else ""

        def concerns(key: str) -> bool:
            method, partition, asked = key.split("\n", 2)
            return partition == self._partition and method in methods and quoted[:-1] in asked

        self._store.drop(concerns)

    def clear(self) -> None:
        """Drop all entries of this client: what changed at the server is not known."""
        self._store.drop(lambda key: key.split("\n", 2)[1] == self._partition)
