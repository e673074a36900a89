"""The one timer of an HTTP app: it looks after requests that take long, quiet streams, slow bodies and idle sessions.

A request that is answered within a few milliseconds costs two set operations here, and no timer of its own.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

#: After this long (to twice this long) a request is looked after: somebody waits for its client to leave.
FRESH = 0.005


class Watched(Protocol):
    """A request as the clock sees it."""

    watched: bool

    def watch(self) -> None:
        """It takes long: notice from now on when the client leaves."""

    def beat(self, now: float) -> None:
        """Called now and then while it is watched: keep a quiet stream open, give up on a slow body."""

    def drain(self) -> None:
        """The server takes no more work."""

    def stop(self, reason: str) -> None:
        """The server can wait no longer."""

    def cut(self) -> None:
        """It is still there though it was stopped: end it at once."""


class Clock:
    """Knows every request of one app on one loop. `each_beat(now)` is called at every beat while `wanted()` says so."""

    __slots__ = (
        "_beat_handle",
        "_each_beat",
        "_look_handle",
        "_old",
        "_period",
        "_tasks",
        "_wanted",
        "_young",
        "loop",
        "running",
        "watched",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        period: float,
        each_beat: Callable[[float], None],
        wanted: Callable[[], bool],
    ) -> None:
        self.loop = loop
        self._period = period
        self._each_beat = each_beat
        self._wanted = wanted
        #: Requests that are not over.
        self.running = 0
        self._young: set[Watched] = set()
        self._old: set[Watched] = set()
        self.watched: set[Watched] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_handle: asyncio.TimerHandle | None = None
        self._beat_handle: asyncio.TimerHandle | None = None

    def begin(self, request: Watched) -> None:
        """A request has come; whoever says so says `end`, once."""
        self.running += 1
        self._young.add(request)
        if self._look_handle is None:
            self._look_handle = self.loop.call_later(FRESH, self._look)

    def end(self, request: Watched) -> None:
        """It is over."""
        self.running -= 1
        if request.watched:
            self.watched.discard(request)
        else:
            self._young.discard(request)
            self._old.discard(request)

    def everyone(self) -> list[Watched]:
        """All requests that are not over."""
        return [*self._young, *self._old, *self.watched]

    def _look(self) -> None:
        slow, self._old, self._young = self._old, self._young, set()
        self._look_handle = self.loop.call_later(FRESH, self._look) if self._old else None
        for request in slow:
            request.watched = True
            self.watched.add(request)
            request.watch()
        if slow:
            self.wake()

    def wake(self) -> None:
        """There is something to beat for."""
        if self._beat_handle is None:
            self._beat_handle = self.loop.call_later(self._period, self._beat)

    def _beat(self) -> None:
        self._beat_handle = None
        now = self.loop.time()
        for request in list(self.watched):
            request.beat(now)
        self._each_beat(now)
        if self.watched or self._wanted():
            self.wake()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold on to a task that nobody waits for: the loop itself forgets it."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """No more timers."""
        for handle in (self._look_handle, self._beat_handle):
            if handle is not None:
                handle.cancel()
        self._look_handle = self._beat_handle = None


ENDING = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Put before the signal handlers of the server, once they are there; each signal still reaches them."""

    __slots__ = ("_loop", "_previous", "_stop")

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen, where somebody else does: a signal without a handler has its default effect, and must keep it.

        Nothing happens where nobody handles SIGTERM, and outside the main thread, where Python allows no handlers.
        """
        if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGTERM)):
            return
        self._loop = loop
        for number in ENDING:
            previous = signal.getsignal(number)
            ours = previous == self._caught
            if ours or not callable(previous) or previous is signal.default_int_handler:
                continue
            self._previous[number] = previous
            signal.signal(number, self._caught)

    def disarm(self) -> None:
        """Take ourselves out, where nobody has put himself before us meanwhile."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._caught:
                signal.signal(number, previous)
        self._previous.clear()

    def _caught(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous.get(number)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)
        if previous is not None:
            previous(number, frame)
