"""Time limits of requests to the peer. Knows tasks and the clock of the loop, nothing of messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from hinge.errors import DefinitionError, shorten
from hinge.protocol.calls import Record

#: The shortest time in seconds between two checks for late requests.
LEAST_PAUSE = 0.01
#: More seconds than this are so many that a clock can't count them.
_FOR_EVER = 1e12


def give_up_if_cancelled() -> None:
    """For a loop that goes on after failures. Raises CancelledError if its own task was cancelled, and what cleaned up then
    failed: otherwise that failure would hide the cancellation, and those who wait for the end would never wake.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Deadlines:
    """The time limits of all requests of one session, with one timer for all of them.

    It is set to the earliest end there was; then it looks who is late, and which end is the earliest now. While `held()`,
    nobody is late: it is the peer who waits. That time doesn't count, but no more than that time, or a peer could keep a
    request open without limit by sending requests.
    """

    __slots__ = ("_at", "_held", "_loop", "_running", "_stopping", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, held: Callable[[], bool]) -> None:
        self._loop = loop
        self._held = held
        self._running: set[Deadline] = set()
        self._at = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False

    def begin(
        self,
        task: asyncio.Task[object],
        idle: float | None,
        total: float | None,
        on_progress: Callable[[Raw], None] | None,
    ) -> Deadline:
        """Limit what this task does from now on: to `idle` seconds without a word, `total` seconds at all.

        Raises DefinitionError for what are no seconds.
        """
        if idle is not None:
            idle = _seconds("idle", idle)
        if total is not None:
            total = _seconds("total", total)
        now = self._loop.time()
        end = at = float("inf") if total is None else now + total
        if idle is not None and now + idle < end:
            at = now + idle
        limit = Deadline(self, task, task.cancelling(), now, end, at, idle, total, on_progress)
        self._running.add(limit)
        if at < self._at:
            self._set(at)
        return limit

    def end(self, limit: Deadline) -> None:
        """It is over, in time or not."""
        self._running.discard(limit)
        if self._stopping and not self._running:
            self._set(float("inf"))

    def renew(self, since: float) -> None:
        """The peer waited for us since then, and no longer does: that time didn't count."""
        now = self._loop.time()
        for limit in self._running:
            limit.extend(now, since)

    def stop(self) -> None:
        """Nothing new will be limited: the timer is gone as soon as what runs is over."""
        self._stopping = True
        if not self._running:
            self._set(float("inf"))

    def now(self) -> float:
        """The time of the loop."""
        return self._loop.time()

    def _set(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = self._loop.call_at(at, self._look) if at != float("inf") else None

    def _look(self) -> None:
        now, held = self._loop.time(), self._held()
        earliest = float("inf")
        for limit in list(self._running):
            if limit.at <= now and held:
                limit.at = now + 1.0  # its end is moved by `renew`
            if limit.at <= now:
                self._running.discard(limit)
                limit.expire()
            else:
                earliest = min(earliest, limit.at)
        self._set(max(earliest, now + LEAST_PAUSE))


def _seconds(name: str, given: Any) -> float:
    """On the way of every call: no more than a look at what is right."""
    if (type(given) is float or type(given) is int) and given >= 0:
        return given if given < _FOR_EVER else _FOR_EVER
    raise DefinitionError(
        f"{name}={shorten(repr(given))} is not possible: use seconds, 0 or more, or None for no limit"
    )


class Deadline(Record):
    """The limits of one request; made by `Deadlines.begin`."""

    _all: Deadlines
    _task: asyncio.Task[object]
    _cancelling: int
    _start: float
    _end: float
    #: When it is late, unless the peer says something.
    at: float
    _idle: float | None
    _total: float | None
    _on_progress: Callable[[Raw], None] | None
    expired: bool = False
    #: Whether the peer said something meanwhile.
    _moved: bool = False

    def progress(self, params: Raw) -> None:
        """Progress is a word from the peer: it moves the end, and goes on to whoever wants it."""
        if self._idle is not None:
            self.at = min(self._end, self._all.now() + self._idle)
            self._moved = True
        if self._on_progress is not None:
            self._on_progress(params)

    def extend(self, now: float, since: float) -> None:
        """The time since then didn't count: the end is as much later, and silence begins anew."""
        self._end += now - max(since, self._start)
        self.at = self._end if self._idle is None else min(self._end, now + self._idle)

    def expire(self) -> None:
        """The time is up."""
        self.expired = True
        self._task.cancel()

    def taken_back(self) -> bool:
        """Whether the cancellation that arrived is this limit's, and nobody else's; then it is off the task."""
        return self.expired and self._task.uncancel() <= self._cancelling

    def end(self) -> None:
        """It is over, in time or not."""
        self._all.end(self)

    @property
    def words(self) -> str:
        """For an error: the limit that it passed, in seconds."""
        if self._idle is not None and self.at < self._end:
            since = " after its last progress" if self._moved else ""
            return f"within {self._idle:g} seconds{since}"
        return f"within {round(self._total or 0.0, 3):g} seconds"


class PausableTimeout:
    """The time limit of a call, which can be paused while the user is asked for input."""

    __slots__ = ("_left", "_limit", "_pauses")

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._pauses = 0
        self._left = 0.0

    def pause(self) -> None:
        """Stop the time until `resume` was called as often as this."""
        self._pauses += 1
        end = self._limit.when()
        if self._pauses == 1 and end is not None and not self._limit.expired():
            self._left = end - asyncio.get_running_loop().time()
            self._limit.reschedule(None)

    def resume(self) -> None:
        """Continue with the time that was left."""
        self._pauses -= 1
        if not self._pauses and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._left)
