"""The clock of time limits: deadlines of requests to the peer, and the pausable limit of a call.

How long each limit is stands in `protocol/limits.py`. This file knows tasks and the clock of the loop, nothing of messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar, cast

from msgspec import Raw, field

from gemel.errors import DefinitionError, NotSent, shorten
from gemel.protocol.records import Pending, Record

ResultT = TypeVar("ResultT")
OptionsT = TypeVar("OptionsT")

#: The shortest time in seconds between two checks for late requests.
MIN_PAUSE = 0.01
#: So many requests of the peer may stop the clock of one request of ours.
MOST_PAUSES = 1000
#: Seconds by which limits are extended again and again while a person is asked.
_EXTENSION = 0.2
#: Longer limits are cut to this many seconds: a clock can't add more.
_MAX_SECONDS = 1e12

#: Extend the time limits of what the current task waits for, by the seconds in which a person was asked: to log in, to answer.
PERSON_LIMITS: ContextVar[tuple[Callable[[float], None], ...]] = ContextVar("PERSON_LIMITS", default=())


@contextmanager
def person_extends(extend: Callable[[float], None]) -> Iterator[None]:
    """Inside the block, call `extend` with the seconds in which a person is asked: they don't count."""
    token = PERSON_LIMITS.set((*PERSON_LIMITS.get(), extend))
    try:
        yield
    finally:
        PERSON_LIMITS.reset(token)


def add_time(limit: asyncio.Timeout, seconds: float) -> None:
    """Move the end of a limit, unless it is over."""
    if (when := limit.when()) is not None:
        with suppress(RuntimeError):
            limit.reschedule(when + seconds)


async def asking_person(work: Awaitable[ResultT], is_asked: Callable[[], bool] = lambda: True) -> ResultT:
    """Wait for something while a person is asked: the time does not count for the limits of the current task.

    Args:
        work: What is waited for.
        is_asked: Whether a person is asked now.
    """
    limits, loop = PERSON_LIMITS.get(), asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def extend() -> None:
        nonlocal timer
        if is_asked():
            for add in limits:
                add(_EXTENSION)
        timer = loop.call_later(_EXTENSION, extend)

    timer = loop.call_later(_EXTENSION, extend)
    try:
        return await work
    finally:
        timer.cancel()


@asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """`asyncio.timeout` without the time in which a person is asked."""
    async with asyncio.timeout(seconds) as limit:
        with person_extends(partial(add_time, limit)):
            yield limit


def give_up_if_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled. For loops that go on after failures.

    If cleaning up after a cancellation fails, that failure would hide the cancellation otherwise.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def wait_shared(future: asyncio.Future[ResultT]) -> ResultT:
    """Wait for what others wait for, too: cancelling one of them does not cancel it.

    `asyncio.shield` of some Pythons (3.14.7) also logs a failure that comes after a waiter was cancelled, as if nobody knew.
    """
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError:
        future.add_done_callback(_mark_as_retrieved)
        raise
    return future.result()


def _mark_as_retrieved(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class TimeLeft(Record):
    """What is left of the option `total` of a request that needs several steps.

    Args:
        total: Seconds; anything else is no limit.
        start: When its time begins, by the clock of the loop; now by default.
    """

    _total: object
    _start: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    #: Seconds that don't count.
    _added: float = 0.0

    @property
    def left(self) -> float | None:
        """The seconds that are left, 0 at the end; None for no limit."""
        if not isinstance(self._total, int | float):
            return None
        return max(self._total + self._added - (asyncio.get_running_loop().time() - self._start), 0.0)

    def extend(self, seconds: float) -> None:
        """Don't count seconds in which a person was asked."""
        self._added += seconds

    def limited(self, options: OptionsT) -> OptionsT:
        """The options of the last step, with the time that is left for it."""
        left = self.left
        return options if left is None else cast(OptionsT, {**cast(Any, options), "total": left})

    async def spend(self, work: Awaitable[ResultT], missing: str) -> ResultT:
        """Wait for a step before the request is sent. Raises NotSent at the end of the time, with what is missing."""
        limit = asyncio.timeout(self.left)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise NotSent(f"Nothing was sent: {missing} within {self._total:g} seconds") from None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Don't count the time of a block, in which a person is asked."""
        time = asyncio.get_running_loop().time
        start = time()
        try:
            yield
        finally:
            self.extend(time() - start)


class Deadlines:
    """The time limits of all requests of one session, with one timer for all of them.

    The timer is set to the earliest deadline; when it fires, it looks who is late and which deadline is next. While
    `is_paused()`, nobody is late, and that time doesn't count. Only that time doesn't, and only for so many requests of the
    peer: it can't keep a request open without limit by sending requests.
    """

    __slots__ = ("_idle", "_is_paused", "_loop", "_next_check", "_pauses", "_running", "_stopping", "_timer", "_total")

    def __init__(self, loop: asyncio.AbstractEventLoop, is_paused: Callable[[], bool]) -> None:
        self._loop = loop
        self._is_paused = is_paused
        #: The last limits that were checked.
        self._idle: float | None = None
        self._total: float | None = None
        self._running: set[Deadline] = set()
        #: Requests of the peer that were served.
        self._pauses = 0
        self._next_check = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False

    def checked(self, idle: float | None, total: float | None) -> tuple[float | None, float | None]:
        """These limits as numbers that a clock can add. Raises DefinitionError for limits that are not seconds."""
        if idle is not self._idle:  # most requests have the limits of the one before
            self._idle = idle = None if idle is None else _seconds("idle", idle)
        if total is not self._total:
            self._total = total = None if total is None else _seconds("total", total)
        return idle, total

    def start(self, pending: Pending, idle: float | None, total: float | None, since: float) -> Deadline:
        """Limit the current task, which waits for a request.

        Args:
            pending: The request.
            idle: Seconds without progress; see `checked`.
            total: Seconds at all.
            since: When the request began, by the clock of the loop.
        """
        end = due = float("inf") if total is None else since + total
        if idle is not None and since + idle < end:
            due = since + idle
        task = asyncio.current_task(self._loop)
        assert task is not None
        deadline = Deadline(
            self, task, task.cancelling(), since, end, due, idle, total, pending.on_progress, self._pauses
        )
        pending.on_progress, pending.limit = deadline.progress, deadline
        self._running.add(deadline)
        self.look_by(due)
        return deadline

    def end(self, deadline: Deadline) -> None:
        """End the limits of a request that is over."""
        self._running.discard(deadline)
        if self._stopping and not self._running:
            self._set_timer(float("inf"))

    def look_by(self, due: float) -> None:
        """Look for late requests at this time, at the latest."""
        if due < self._next_check:
            self._set_timer(due)

    def count_pause(self) -> None:
        """A request of the peer is being served, which is a reason to pause."""
        self._pauses += 1

    def extend(self, paused_at: float) -> None:
        """Move all deadlines after a pause."""
        now = self._loop.time()
        for deadline in self._running:
            if self._may_pause(deadline):
                deadline.extend(now, paused_at)

    def _may_pause(self, deadline: Deadline) -> bool:
        return self._pauses - deadline.pauses_before <= MOST_PAUSES

    def stop(self) -> None:
        """Remove the timer as soon as the running requests are over: the session has ended."""
        self._stopping = True
        if not self._running:
            self._set_timer(float("inf"))

    def now(self) -> float:
        """The time of the loop."""
        return self._loop.time()

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_check = at
        self._timer = self._loop.call_at(at, self._check) if at != float("inf") else None

    def _check(self) -> None:
        now, paused = self._loop.time(), self._is_paused()
        earliest = float("inf")
        for deadline in list(self._running):
            if deadline.due <= now and paused and self._may_pause(deadline):
                deadline.due = now + 1.0  # `extend` moves it at the end of the pause
            if deadline.due <= now:
                self._running.discard(deadline)
                deadline.expire()
            else:
                earliest = min(earliest, deadline.due)
        self._set_timer(max(earliest, now + MIN_PAUSE))


def _seconds(name: str, value: object) -> float:
    if (type(value) is float or type(value) is int) and value >= 0:  # the common case of every call, so it comes first
        return min(value, _MAX_SECONDS)
    raise DefinitionError(
        f"{name}={shorten(repr(value))} is not possible: use seconds, 0 or more, or None for no limit"
    )


class Deadline(Record):
    """The time limits of one request; made by `Deadlines.start`."""

    _deadlines: Deadlines
    _task: asyncio.Task[object]
    #: How often the task had been cancelled before.
    _cancellations: int
    _start: float
    #: When the total time is over.
    _end: float
    #: When the request is late, unless there is progress.
    due: float
    _idle: float | None
    _total: float | None
    _on_progress: Callable[[Raw], None] | None
    #: How many requests of the peer were served before.
    pauses_before: int
    expired: bool = False
    _has_progress: bool = False
    #: Seconds in which a person was asked, which don't count.
    extended: float = 0.0

    def progress(self, params: Raw) -> None:
        """Restart the idle time, and pass the progress on."""
        self.restart_idle()
        if self._on_progress is not None:
            self._on_progress(params)

    def restart_idle(self) -> None:
        """Restart the idle time: something happened."""
        if self._idle is not None:
            self.start_idle()
            self._has_progress = True

    def hold_idle(self) -> None:
        """Stop the idle time until `start_idle`: the peer has nothing to answer yet."""
        self.due = self._end

    def start_idle(self) -> None:
        """Count the idle time from now on."""
        if self._idle is not None:
            self.due = min(self._end, self._deadlines.now() + self._idle)
            self._deadlines.look_by(self.due)

    def extend(self, now: float, paused_at: float) -> None:
        """Move the end by the length of a pause, and restart the idle time."""
        self._end += now - max(paused_at, self._start)
        self.due = self._end if self._idle is None else min(self._end, now + self._idle)

    def add_time(self, seconds: float) -> None:
        """Move the end, and restart the idle time: a person was asked."""
        self._end += seconds
        self.extended += seconds
        self.due = self._end if self._idle is None else min(self._end, self._deadlines.now() + self._idle)

    def expire(self) -> None:
        """Cancel the task: the time is up."""
        self.expired = True
        self._task.cancel()

    def uncancel(self) -> bool:
        """After a cancellation: whether it was this deadline's alone. Then it is taken off the task."""
        return self.expired and self._task.uncancel() <= self._cancellations

    @property
    def description(self) -> str:
        """For an error: the limit that was passed, in seconds."""
        if self._idle is not None and self.due < self._end:
            since = " after its last progress" if self._has_progress else ""
            return f"within {self._idle:g} seconds{since}"
        return f"within {round(self._total or 0.0, 3):g} seconds"


class PausableTimeout:
    """The time limit of a call, which can be paused while the user is asked for input.

    Args:
        limit: The limit.
        outer: Another one around it, which pauses with it.
    """

    __slots__ = ("_limit", "_outer", "_pauses", "_remaining")

    def __init__(self, limit: asyncio.Timeout, outer: PausableTimeout | None = None) -> None:
        self._limit = limit
        self._outer = outer
        self._pauses = 0
        self._remaining: float | None = None

    def pause(self) -> None:
        """Stop the clock until `resume` was called as often as `pause`."""
        if self._outer is not None:
            self._outer.pause()
        self._pauses += 1
        end = self._limit.when()
        if self._pauses == 1 and end is not None:
            self._remaining = end - asyncio.get_running_loop().time()
            self._reschedule(None)

    def resume(self) -> None:
        """Continue with the remaining time."""
        if self._outer is not None:
            self._outer.resume()
        self._pauses -= 1
        if not self._pauses and self._remaining is not None:
            self._reschedule(asyncio.get_running_loop().time() + self._remaining)

    def _reschedule(self, when: float | None) -> None:
        with suppress(RuntimeError):  # the limit is over: what it was for has ended, or is ending
            self._limit.reschedule(when)
