"""A stream of server-sent events as a client follows it: where it stands, and when it may be opened again.

Knows events and waiting times. Must not know messages, sessions or how a stream is opened.
"""

from __future__ import annotations

import random

from hinge.http1.client.wire import WireResponse
from hinge.protocol.http.sse import Decoder, Event

#: Event ids that are longer can't go back in a header.
_ID_LENGTH = 4096


class Cursor:
    """How far a stream was read, as its events say: the last id, and the seconds to wait before resuming."""

    __slots__ = ("last_id", "retry")

    def __init__(self) -> None:
        self.last_id = ""
        self.retry = 0.0

    def note(self, event: Event) -> None:
        """Remember what an event says about resuming."""
        if event.id is not None:
            usable = event.id.isprintable() and len(event.id) <= _ID_LENGTH
            self.last_id = event.id if usable else ""
        if event.retry is not None:
            self.retry = event.retry / 1000


class Backoff:
    """When to try again: 0.5 s to 30 s, doubling, spread by chance; after 8 tries without progress, never.

    The server's `retry` makes a wait longer, not shorter; none is below 0.2 s.
    """

    FIRST = 0.5
    MOST = 30.0
    FLOOR = 0.2
    TRIES = 8

    __slots__ = ("tries",)

    def __init__(self) -> None:
        self.tries = 0

    def progress(self) -> None:
        """Something real came: the budget starts anew."""
        self.tries = 0

    def wait(self, retry: float) -> float | None:
        """Seconds until the next try, None when there have been enough."""
        if self.tries >= self.TRIES:
            return None
        full = min(self.FIRST * float(2**self.tries), self.MOST)
        self.tries += 1
        return max(retry, self.FLOOR, full * random.uniform(0.5, 1.0))


class EventReader:
    """The events of one response as they come."""

    __slots__ = ("_decoder", "_over", "_response")

    def __init__(self, response: WireResponse, limit: int) -> None:
        self._response = response
        self._decoder = Decoder(limit)
        self._over = False

    async def read(self) -> list[Event] | None:
        """The next events, those of one piece together; None when the stream has ended in good order.

        Raises ConnectionLost when it breaks off, InvalidResponse for an event over the limit.
        """
        while not self._over:
            piece = await self._response.read()
            self._over = not piece
            events = self._decoder.feed(piece) if piece else self._decoder.end()
            if events:
                return events
        return None
