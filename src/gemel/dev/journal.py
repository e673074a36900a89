"""The journal: everything that happens, as numbered events, bounded in number and bytes. Readers follow it at their own speed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import msgspec

MAX_EVENTS = 100_000
MAX_BYTES = 64 * 1024 * 1024


class JournalEvent(NamedTuple):
    """One event.

    Attributes:
        n: Its number, counted from 1; 0 for one that belongs to one reader only.
        data: The event as JSON on one line.
        message: The bytes of a message that is too large for `data`.
    """

    n: int
    data: bytes
    message: bytes | None = None

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return len(self.data) + len(self.message or b"")


_DROPPED = JournalEvent(0, b"")


class EventJournal:
    """The events, oldest first. The oldest are dropped when there are too many.

    Events that describe the current state have a key: the last one of each key is kept apart, and repeated to readers that
    come later.

    Args:
        max_events: How many events are kept.
        max_bytes: How many bytes they may have together.
    """

    def __init__(self, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: list[JournalEvent] = []
        #: How many at the beginning of the list are dropped.
        self._dropped = 0
        self._bytes = 0
        self._next = 1
        #: The last event of each key.
        self._state: dict[Hashable, JournalEvent] = {}
        self._readers: set[asyncio.Event] = set()
        self.closed = False

    @property
    def next(self) -> int:
        """The number of the next event."""
        return self._next

    @property
    def first(self) -> int:
        """The number of the oldest event that is kept."""
        return self._next - len(self)

    def __len__(self) -> int:
        return len(self._events) - self._dropped

    def add(
        self,
        kind: str,
        fields: Mapping[str, Any],
        *,
        key: Hashable | None = None,
        state: Mapping[str, Any] | None = None,
        message: bytes | None = None,
    ) -> int:
        """Add an event.

        Args:
            kind: Its kind.
            fields: Its further members. `msgspec.Raw` values must be valid JSON on one line.
            key: What it is the current state of; None if it isn't a state.
            state: The members of the whole state, if the event only says what changed.
            message: The bytes of a message that `fields` doesn't contain.

        Returns:
            Its number.
        """
        n = self._next
        self._next += 1
        head = {"n": n, "kind": kind, "at": round(time.time() * 1000)}
        event = JournalEvent(n, msgspec.json.encode({**head, **fields}), message)
        self._events.append(event)
        self._bytes += event.size
        while len(self) > self._max_events or (self._bytes > self._max_bytes and len(self) > 1):
            self._drop_oldest()
        if key is not None:
            whole = event if state is None else JournalEvent(n, msgspec.json.encode({**head, **state}))
            self._state[key] = whole
        for reader in self._readers:
            reader.set()
        return n

    def _drop_oldest(self) -> None:
        self._bytes -= self._events[self._dropped].size
        self._events[self._dropped] = _DROPPED
        self._dropped += 1
        if self._dropped > 1000 and self._dropped * 2 > len(self._events):
            del self._events[: self._dropped]
            self._dropped = 0

    def forget(self, *keys: Hashable) -> None:
        """Forget what the current state of keys is."""
        for key in keys:
            self._state.pop(key, None)

    def state(self, key: Hashable) -> bytes | None:
        """Return the last event of a key."""
        event = self._state.get(key)
        return None if event is None else event.data

    def get(self, n: int) -> JournalEvent | None:
        """Return one event; None if it was dropped or hasn't happened."""
        index = n - self.first
        if 0 <= index < len(self):
            return self._events[self._dropped + index]
        return next((event for event in self._state.values() if event.n == n), None)

    def clear(self) -> None:
        """Drop all events. The present state stays."""
        self._events.clear()
        self._dropped = self._bytes = 0

    def after(self, n: int, most: int = MAX_EVENTS) -> list[JournalEvent]:
        """Return the events after a number, at most so many besides the current state.

        If some of them were dropped, the list begins with an event "lost", and those that are still the current state.
        """
        found: list[JournalEvent] = []
        first = self.first
        if n + 1 < first:
            kept = sorted(event for event in set(self._state.values()) if n < event.n < first)
            count = first - 1 - n - len(kept)
            if count > 0:
                found.append(JournalEvent(0, msgspec.json.encode({"kind": "lost", "count": count})))
            found += kept
        start = self._dropped + max(0, n + 1 - first)
        return found + self._events[start : start + most]

    def join(self) -> asyncio.Event:
        """Return what is set whenever an event was added; for `leave`."""
        reader = asyncio.Event()
        self._readers.add(reader)
        return reader

    def leave(self, reader: asyncio.Event) -> None:
        """Forget a reader."""
        self._readers.discard(reader)

    def close(self) -> None:
        """End all readers."""
        self.closed = True
        for reader in self._readers:
            reader.set()
