"""A clock that is moved by hand, for middleware that reads the time."""

from __future__ import annotations

from gemel import RateLimit


class Hand:
    """Seconds that go on when a test says so."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    #: As in the module `time`.
    monotonic = __call__


def by_hand(limit: RateLimit, clock: Hand) -> RateLimit:
    """The limit, which reads this clock."""
    limit._clock = clock
    return limit
