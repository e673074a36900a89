"""The watch over the open exchanges of one app: which take long, and what has to be done for those."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf
from typing import Protocol

from gemel.transports.http.server.bodies import BodyBudget
from gemel.transports.http.server.options import HttpSettings

#: Seconds (up to twice as many) after which a request is watched: from then on a disconnect of its client is noticed.
WATCH_AFTER = 0.005
#: Seconds between two looks for authorizations that have ended, at least: many may end one after the other.
EXPIRY_INTERVAL = 0.1


class WatchedRequest(Protocol):
    """A request as `OpenExchanges` sees it: an exchange, or a request of another app."""

    watched: bool

    def watch(self) -> None:
        """It takes long: notice from now on when the client leaves."""

    def beat(self, now: float) -> None:
        """Called periodically while it is watched."""

    def drain(self) -> None:
        """The server takes no new work."""

    def stop(self, reason: str) -> None:
        """The time to drain is over."""

    def end_unfinished(self, reason: str) -> None:
        """Its handler did not stop."""

    def cut(self) -> None:
        """It is still open after `expire`."""


class OpenExchanges:
    """The requests of one app that are not over, and the one timer that looks after the slow ones.

    A request that is answered within a few milliseconds costs two set operations and no timer of its own.
    `each_beat(now)` is called periodically while a request is watched or `needed()` is true.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: HttpSettings,
        each_beat: Callable[[float], None],
        needed: Callable[[], bool],
    ) -> None:
        limits = options.limits
        self._loop = loop
        #: The time of the event loop.
        self.time = loop.time
        self._period = min(limits.keep_alive / 4, limits.session_idle / 4, options.body_wait / 4)
        self._each_beat = each_beat
        self._needed = needed
        self.bodies = BodyBudget(limits.bodies, options.requests)
        #: How many requests are not over.
        self.running = 0
        #: Whether new requests are turned away.
        self.stopping = False
        #: Requests by age: since the last look, since the one before, and those that are watched.
        self._young: set[WatchedRequest] = set()
        self._old: set[WatchedRequest] = set()
        self._watched: set[WatchedRequest] = set()
        #: When the next authorization of a watched request ends, in seconds since 1970.
        self._next_expiry = inf
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_handle: asyncio.TimerHandle | None = None
        self._beat_handle: asyncio.TimerHandle | None = None

    def add(self, request: WatchedRequest) -> None:
        """Count and watch a request until `remove`."""
        self.running += 1
        self._young.add(request)
        if self._look_handle is None:
            self._look_handle = self._loop.call_later(WATCH_AFTER, self._look)

    def remove(self, request: WatchedRequest) -> None:
        """The request is over."""
        self.running -= 1
        if request.watched:
            self._watched.discard(request)
        else:
            self._young.discard(request)
            self._old.discard(request)

    def everyone(self) -> list[WatchedRequest]:
        """All requests that are not over."""
        return [*self._young, *self._old, *self._watched]

    def _look(self) -> None:
        slow, self._old, self._young = self._old, self._young, set()
        self._look_handle = self._loop.call_later(WATCH_AFTER, self._look) if self._old else None
        for request in slow:
            request.watched = True
            self._watched.add(request)
            request.watch()
        if slow:
            self.wake()

    def wake(self) -> None:
        """Start the periodic timer: there is something to look after."""
        if self._beat_handle is None:
            self._beat_handle = self._loop.call_later(self._delay(), self._beat)

    def beat_at(self, expires: float) -> None:
        """Look after the watched requests when an authorization ends, at the latest; in seconds since 1970."""
        if expires < self._next_expiry:
            self._next_expiry = expires
            if self._beat_handle is not None:
                self._beat_handle.cancel()
                self._beat_handle = self._loop.call_later(self._delay(), self._beat)

    def _delay(self) -> float:
        return min(self._period, max(self._next_expiry - time.time(), EXPIRY_INTERVAL))

    def _beat(self) -> None:
        self._beat_handle = None
        self._next_expiry = inf
        now = self._loop.time()
        for request in list(self._watched):
            request.beat(now)
        self._each_beat(now)
        if self._watched or self._needed():
            self.wake()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a reference to a background task; the event loop has only a weak one."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Cancel the timers."""
        for handle in (self._look_handle, self._beat_handle):
            if handle is not None:
                handle.cancel()
        self._look_handle = self._beat_handle = None
