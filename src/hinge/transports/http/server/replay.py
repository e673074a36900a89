"""The replay log of one HTTP session: the events of its streams, bounded, oldest dropped first.

It belongs to one session object, so that no event can reach another session.
Specification (2025-11-25): Transports, section "Resumability and Redelivery".
"""

from __future__ import annotations

from collections import deque
from secrets import token_urlsafe

from hinge.errors import InvalidRequest, shorten
from hinge.protocol.http import sse


class _Track:
    """Bookkeeping of one stream: events kept, the newest dropped one, and whether more can come."""

    __slots__ = ("dropped", "ended", "kept")

    def __init__(self) -> None:
        self.kept = 0
        self.dropped = 0
        self.ended = False


class ReplayLog:
    """Events of all streams of one session, by ids of the form `tag.stream.position`.

    Positions grow over the whole session, so ids are unique in it. The random tag distinguishes sessions.
    """

    __slots__ = ("_bytes", "_events", "_max_bytes", "_max_events", "_position", "_tag", "_tracks")

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._bytes = 0
        self._position = 0
        self._tag = token_urlsafe(6)
        self._events: deque[tuple[int, int, bytes]] = deque()
        self._tracks: dict[int, _Track] = {}

    def append(self, stream: int, data: bytes) -> bytes:
        """Store one message of a stream. Returns its encoded event."""
        event = sse.encode(data, id=self._next_id(stream))
        self._events.append((stream, self._position, event))
        self._bytes += len(event)
        self._tracks[stream].kept += 1
        while len(self._events) > self._max_events or self._bytes > self._max_bytes:
            self._drop_oldest()
        return event

    def mark(self, stream: int, retry: int | None) -> bytes:
        """Encode an event without a message, which gives the client an id to resume from."""
        return sse.priming(self._next_id(stream), retry)

    def _next_id(self, stream: int) -> str:
        if stream not in self._tracks:
            self._tracks[stream] = _Track()
        self._position += 1
        return f"{self._tag}.{stream}.{self._position}"

    def _drop_oldest(self) -> None:
        stream, position, event = self._events.popleft()
        self._bytes -= len(event)
        track = self._tracks[stream]
        track.kept -= 1
        track.dropped = position
        self._forget(stream, track)

    def end(self, stream: int) -> None:
        """No more events follow on this stream; those that are kept can still be read."""
        track = self._tracks.get(stream)
        if track is not None:
            track.ended = True
            self._forget(stream, track)

    def _forget(self, stream: int, track: _Track) -> None:
        if track.ended and not track.kept:
            del self._tracks[stream]

    def find(self, event_id: str) -> tuple[int, int]:
        """Return the stream and the position of an event id.

        Raises:
            InvalidRequest: The id is unknown or of another session, or its stream is no longer kept.
        """
        tag, *numbers = event_id.split(".")
        ours = tag == self._tag and len(numbers) == 2 and all(map(_is_number, numbers))
        stream, position = map(int, numbers) if ours else (0, 0)
        if not 0 < position <= self._position:
            raise InvalidRequest(f"Last-Event-ID {shorten(ascii(event_id))} is not an event of this session")
        if stream not in self._tracks:
            raise InvalidRequest("The stream of this Last-Event-ID is no longer kept: call again")
        return stream, position

    def after(self, stream: int, position: int) -> list[bytes]:
        """Return the events of one stream after a position. Raises InvalidRequest if some of them were dropped."""
        track = self._tracks.get(stream)
        if track is None:
            return []
        if track.dropped > position:
            raise InvalidRequest("Events after this Last-Event-ID are no longer kept: open the stream without it")
        return [event for number, at, event in self._events if number == stream and at > position]

    @property
    def position(self) -> int:
        """The position of the newest event of any stream."""
        return self._position


def _is_number(text: str) -> bool:
    return len(text) < 16 and text.isascii() and text.isdigit()
