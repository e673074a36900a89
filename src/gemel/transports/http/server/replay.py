"""Replay logs: the events of HTTP sessions, kept so that a client can resume a stream after the last event that it got.

`ReplayStore` and `ReplayLog` are the interface. `MemoryReplayStore` keeps events in this process, within one budget for all
sessions. Each session has a log of its own, so that no event can reach another one.

Writing is on the path of a call, so it does not wait: a log that keeps events elsewhere makes the ids itself, and writes
behind, in order. Reading happens when a client resumes a stream; it is awaited, and includes all that was written before.
Specification (2025-11-25): Transports, section "Resumability and Redelivery".
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from heapq import heapify, heappop, heappush, heapreplace
from secrets import token_urlsafe
from typing import NamedTuple, Protocol

from gemel.errors import InvalidRequest, shorten
from gemel.protocol.http import sse
from gemel.protocol.limits import Limits

#: Bytes that keeping an event takes besides its content.
EVENT_OVERHEAD = 256


class ReplayLog(Protocol):
    """The events of all streams of one session, with ids that are unique in it."""

    @property
    def position(self) -> int:
        """The position of the newest event of any stream."""
        ...

    def append(self, stream: int, data: bytes) -> bytes:
        """Keep one message of a stream. Returns its encoded event."""
        ...

    def mark(self, stream: int, retry: int | None) -> bytes:
        """Encode an event without a message, which gives the client an id to resume from."""
        ...

    def end(self, stream: int) -> None:
        """No more events follow on this stream; those that are kept can still be read."""

    async def find(self, event_id: str) -> tuple[int, int]:
        """Return the stream and the position of an event id.

        Raises:
            InvalidRequest: The id is unknown or of another session, or its stream is no longer kept.
        """
        ...

    async def after(self, stream: int, position: int) -> list[bytes]:
        """Return the events of one stream after a position. Raises InvalidRequest if some of them were dropped."""
        ...

    def close(self) -> None:
        """The session has ended: drop all events."""


class ReplayStore(Protocol):
    """Makes the replay logs of the sessions of one app."""

    def open(self, session_id: str, holder: Hashable) -> ReplayLog:
        """Make the log of a new session, which the id names in every process, in the share of a holder."""
        ...


class _HolderEvents:
    """The events of all sessions of one holder."""

    __slots__ = ("bytes", "holder", "log_of", "rank")

    def __init__(self, holder: Hashable) -> None:
        self.holder = holder
        self.bytes = 0
        #: The log of each event, the oldest event first.
        self.log_of: OrderedDict[int, MemoryReplayLog] = OrderedDict()
        #: The bytes that it is ranked with: half as many as it has, at least.
        self.rank = 0


class MemoryReplayStore:
    """Replay logs in memory. Beyond `limits.replay_total` bytes the holder of most of them loses the oldest event.

    Holders are ranked when their bytes have doubled, so that an event costs nothing more: one with less than half of the bytes of
    another loses nothing.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        #: Bytes of all events that are kept.
        self.bytes = 0
        self._next_number = 0
        #: Those who have events.
        self._parts: dict[Hashable, _HolderEvents] = {}
        #: Negative ranks, as a heap; one that a part no longer has counts for nothing. The number makes entries comparable.
        self._ranking: list[tuple[int, int, _HolderEvents]] = []

    def open(self, session_id: str, holder: Hashable) -> MemoryReplayLog:
        """Make the log of a new session."""
        return MemoryReplayLog(self, self._limits, holder)

    def add(self, log: MemoryReplayLog, size: int) -> int:
        """Count an event of a log. Returns its number."""
        self._next_number += 1
        part = self._parts.get(log.holder)
        if part is None:
            part = self._parts[log.holder] = _HolderEvents(log.holder)
        part.log_of[self._next_number] = log
        part.bytes += size
        self.bytes += size
        if part.bytes > 2 * part.rank:
            self._rank(part)
        return self._next_number

    def remove(self, log: MemoryReplayLog, number: int, size: int) -> None:
        """The event is no longer kept."""
        part = self._parts[log.holder]
        del part.log_of[number]
        part.bytes -= size
        self.bytes -= size
        if not part.log_of:
            part.rank = 0
            del self._parts[log.holder]

    def _rank(self, part: _HolderEvents) -> None:
        part.rank = part.bytes
        heappush(self._ranking, (-part.rank, self._next_number, part))
        if len(self._ranking) > 4 * len(self._parts) + 64:
            self._ranking = [(-one.rank, number, one) for number, one in enumerate(self._parts.values()) if one.rank]
            heapify(self._ranking)

    def trim(self) -> None:
        """Drop events until the rest is within the budget."""
        while self.bytes > self._limits.replay_total:
            rank, number, part = self._ranking[0]
            if part.rank != -rank:
                heappop(self._ranking)
            elif part.bytes < part.rank:
                part.rank = part.bytes
                heapreplace(self._ranking, (-part.rank, number, part))
            else:
                next(iter(part.log_of.values())).drop_oldest()


class _StoredEvent(NamedTuple):
    number: int
    stream: int
    position: int
    #: The message, not its event: sessions share the bytes of a message that is sent to many of them.
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data) + EVENT_OVERHEAD


class _StreamState:
    """Of one stream: how many events are kept, the position of the newest dropped one, and whether it has ended."""

    __slots__ = ("dropped", "ended", "events")

    def __init__(self) -> None:
        self.events = 0
        self.dropped = 0
        self.ended = False


class MemoryReplayLog:
    """A replay log in memory. Ids have the form `tag.stream.position`.

    Positions grow over the whole session. The random tag distinguishes sessions.
    """

    __slots__ = ("_bytes", "_events", "_limits", "_position", "_store", "_streams", "_tag", "holder")

    def __init__(self, store: MemoryReplayStore, limits: Limits, holder: Hashable) -> None:
        self._store = store
        #: Whose share its events take.
        self.holder = holder
        self._limits = limits
        self._bytes = 0
        self._position = 0
        self._tag = token_urlsafe(6)
        #: Made with the first event: an empty deque has room for 64.
        self._events: deque[_StoredEvent] | None = None
        self._streams: dict[int, _StreamState] = {}

    @property
    def position(self) -> int:
        """The position of the newest event of any stream."""
        return self._position

    def append(self, stream: int, data: bytes) -> bytes:
        """Keep one message of a stream. Returns its encoded event."""
        encoded = sse.encode(data, id=self._next_id(stream))
        event = _StoredEvent(self._store.add(self, len(data) + EVENT_OVERHEAD), stream, self._position, data)
        if self._events is None:
            self._events = deque()
        self._events.append(event)
        self._bytes += len(data)
        self._streams[stream].events += 1
        while self._events and (
            len(self._events) > self._limits.replay_events or self._bytes > self._limits.replay_bytes
        ):
            self.drop_oldest()
        self._store.trim()
        return encoded

    def mark(self, stream: int, retry: int | None) -> bytes:
        """Encode an event without a message, which gives the client an id to resume from."""
        return sse.priming(self._next_id(stream), retry)

    def _next_id(self, stream: int) -> str:
        if stream not in self._streams:
            self._streams[stream] = _StreamState()
        self._position += 1
        return self._id(stream, self._position)

    def _id(self, stream: int, position: int) -> str:
        return f"{self._tag}.{stream}.{position}"

    def drop_oldest(self) -> None:
        """Drop the oldest event."""
        assert self._events is not None
        event = self._events.popleft()
        if not self._events:
            self._events = None
        self._store.remove(self, event.number, event.size)
        self._bytes -= len(event.data)
        state = self._streams[event.stream]
        state.events -= 1
        state.dropped = event.position
        self._forget_if_over(event.stream, state)

    def end(self, stream: int) -> None:
        """No more events follow on this stream; those that are kept can still be read."""
        state = self._streams.get(stream)
        if state is not None:
            state.ended = True
            self._forget_if_over(stream, state)

    def _forget_if_over(self, stream: int, state: _StreamState) -> None:
        if state.ended and not state.events:
            del self._streams[stream]

    async def find(self, event_id: str) -> tuple[int, int]:
        """Return the stream and the position of an event id.

        Raises:
            InvalidRequest: The id is unknown or of another session, or its stream is no longer kept.
        """
        tag, *numbers = event_id.split(".")
        ours = tag == self._tag and len(numbers) == 2 and all(map(_is_number, numbers))
        stream, position = map(int, numbers) if ours else (0, 0)
        if not 0 < position <= self._position:
            raise InvalidRequest(f"Last-Event-ID {shorten(ascii(event_id))} is not an event of this session")
        if stream not in self._streams:
            raise InvalidRequest("The stream of this Last-Event-ID is no longer kept: call again")
        return stream, position

    async def after(self, stream: int, position: int) -> list[bytes]:
        """Return the events of one stream after a position. Raises InvalidRequest if some of them were dropped."""
        state = self._streams.get(stream)
        if state is None:
            return []
        if state.dropped > position:
            raise InvalidRequest("Events after this Last-Event-ID are no longer kept: open the stream without it")
        return [
            sse.encode(event.data, id=self._id(stream, event.position))
            for event in self._events or ()
            if event.stream == stream and event.position > position
        ]

    def close(self) -> None:
        """The session has ended: drop all events."""
        while self._events:
            self.drop_oldest()


def _is_number(text: str) -> bool:
    return len(text) < 16 and text.isascii() and text.isdigit()
