"""Limits of one tool: how long a call may take, and how many run at once."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Hashable
from functools import partial
from typing import Any

from gemel.errors import DefinitionError, Overloaded, ToolError
from gemel.loops import PerLoop
from gemel.options import is_whole
from gemel.server.composition.namespace import called
from gemel.server.context import Context, served_call
from gemel.server.dependencies import ResultT, Run
from gemel.shares import Shares
from gemel.timeouts import PausableTimeout

logger = logging.getLogger("gemel")

#: The retry delay in milliseconds: before a call has been measured, and its bounds.
_FIRST_DELAY, _MIN_DELAY, _MAX_DELAY = 1000, 100, 60_000


class ConcurrencyLimit:
    """At most `limit` calls of a tool run; up to `max_waiting` more wait in order, for at most `wait` seconds each.

    When too many wait, the latest one of the caller with most of them gives way to others.

    Each event loop counts its own calls.
    """

    def __init__(self, tool: str, limit: int, max_waiting: int, wait: float) -> None:
        if not is_whole(limit, 1) or not is_whole(max_waiting, 0):
            raise DefinitionError(f"Tool {tool!r}: concurrency must be 1 or more, waiting 0 or more")
        self._queues = PerLoop(partial(_Queue, tool, limit, max_waiting, wait))

    def around(self, run: Run[ResultT]) -> Run[ResultT]:
        """The same function, under this limit."""

        async def run_limited(ctx: Context[Any], arguments: dict[str, Any]) -> ResultT:
            queue, call = self._queues.here(), served_call(ctx).call
            call.queued = not ctx.depth
            await queue.acquire(ctx)
            call.queued = False
            clock = asyncio.get_running_loop().time
            start = clock()
            try:
                return await run(ctx, arguments)
            finally:
                # A function that still runs in a thread counts until it returns.
                call.when_released(lambda: queue.release(clock() - start))

        return run_limited


class _Waiter:
    """A call that waits."""

    __slots__ = ("future", "holder")

    def __init__(self, holder: Hashable) -> None:
        self.holder = holder
        #: Whether it may run; False if it gave way.
        self.future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


class _Queue:
    """The calls of a tool in one event loop that run, and those that wait."""

    def __init__(self, tool: str, limit: int, max_waiting: int, wait: float) -> None:
        self._tool = tool
        self._limit = limit
        self._max_waiting = max_waiting
        self._wait = wait
        self._running = 0
        self._waiting: OrderedDict[_Waiter, None] = OrderedDict()
        #: The same by holder.
        self._shares: Shares[_Waiter] = Shares()
        #: How long a call takes, in seconds: a moving average.
        self._mean_seconds = _FIRST_DELAY / 1000

    async def acquire(self, ctx: Context[Any]) -> None:
        """Wait until the call may run. Raises Overloaded if too many wait already, or it takes too long."""
        if self._running < self._limit and not self._waiting:
            self._running += 1
            return
        waiter = _Waiter(served_call(ctx).call.origin.holder)
        if len(self._waiting) >= self._max_waiting and not self._gives_way(waiter.holder):
            raise self._overloaded(ctx)
        self._waiting[waiter] = None
        self._shares.add(waiter.holder, waiter)
        timeout = asyncio.timeout(self._wait)
        try:
            async with timeout:
                may_run = await waiter.future
        except BaseException as exc:
            if waiter in self._waiting:
                del self._waiting[waiter]
            elif not waiter.future.cancelled() and waiter.future.result():  # it was woken at the same moment
                self._wake_next()
            if isinstance(exc, TimeoutError) and timeout.expired():
                raise self._overloaded(ctx) from None
            raise
        finally:
            self._shares.discard(waiter.holder, waiter)
        if not may_run:
            raise self._overloaded(ctx)

    def _gives_way(self, newcomer: Hashable) -> bool:
        """End the wait of the latest call of whoever has most of them, if that leaves no fewer than the newcomer has."""
        theirs = self._shares.giving_way(newcomer)
        if not theirs or self._shares.held(theirs[-1].holder) <= self._shares.held(newcomer) + 1:
            return False
        waiter = theirs[-1]
        self._shares.discard(waiter.holder, waiter)
        del self._waiting[waiter]
        if not waiter.future.done():
            waiter.future.set_result(False)
        return True

    def release(self, seconds: float) -> None:
        """A call is over, after this time: the next one in the queue may run."""
        self._mean_seconds += (seconds - self._mean_seconds) / 8
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popitem(last=False)[0]
            if not waiter.future.done():
                waiter.future.set_result(True)
                return
        self._running -= 1

    def _overloaded(self, ctx: Context[Any]) -> Overloaded:
        delay = 1000 * self._mean_seconds * (len(self._waiting) + 1) / self._limit
        return Overloaded(
            f"Tool {called(served_call(ctx).layers, 'tools', self._tool)!r} is busy: {self._limit} at once is its limit",
            retry_after_ms=int(min(max(delay, _MIN_DELAY), _MAX_DELAY)),
        )


def limited_in_time(name: str, run: Run[ResultT], seconds: object) -> Run[ResultT]:
    """The same function with a time limit: beyond it the function is cancelled, and the call fails with a text for the model."""
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise DefinitionError(f"Tool {name!r}: timeout={seconds!r} is not possible: use seconds, more than 0")

    async def run_limited(ctx: Context[Any], arguments: dict[str, Any]) -> ResultT:
        timeout, outer = asyncio.timeout(seconds), served_call(ctx).timeout
        try:
            async with timeout:
                served_call(ctx).timeout = PausableTimeout(timeout, outer)
                return await run(ctx, arguments)
        except TimeoutError:
            if not timeout.expired():
                raise
            logger.warning("Tool %r did not finish within %g seconds and was stopped", name, seconds)
            shown = called(served_call(ctx).layers, "tools", name)
            raise ToolError(f"Tool {shown!r} did not finish within {seconds:g} seconds and was stopped") from None
        finally:
            served_call(ctx).timeout = outer

    return run_limited
