"""Limits of one tool: how long a call may take, how many run at once. Tools without them never come here.

Knows nothing of what runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from hinge.errors import DefinitionError, Overloaded, ToolError
from hinge.server.composition.namespace import called
from hinge.server.context import Context
from hinge.server.dependencies import ResultT, Run
from hinge.timeouts import PausableTimeout

logger = logging.getLogger("hinge")

#: What a caller is told to wait, in milliseconds, as long as nothing is known, and within which bounds later.
_FIRST_HINT, _LEAST_HINT, _MOST_HINT = 1000, 100, 60_000


class Turns:
    """At most `at_once` run; up to `waiting` more wait in order, for at most `patience` seconds."""

    def __init__(self, name: str, at_once: int, waiting: int, patience: float) -> None:
        if not _is_whole(at_once, 1) or not _is_whole(waiting, 0):
            raise DefinitionError(f"Tool {name!r}: concurrency must be 1 or more, waiting 0 or more")
        self._name = name
        self._at_once = at_once
        self._most_waiting = waiting
        self._patience = patience
        self._running = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        #: How long a call takes, in seconds, as far as seen.
        self._mean = _FIRST_HINT / 1000

    async def take(self) -> None:
        """Wait for a turn. Raises Overloaded when too many wait already, or it takes too long."""
        if self._running < self._at_once and not self._queue:
            self._running += 1
            return
        if len(self._queue) >= self._most_waiting:
            raise self._overloaded(self._name)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        limit = asyncio.timeout(self._patience)
        try:
            async with limit:
                await turn
        except BaseException as exc:
            if turn in self._queue:
                self._queue.remove(turn)
            elif turn.done() and not turn.cancelled():  # the turn came at the same moment
                self._pass_on()
            if isinstance(exc, TimeoutError) and limit.expired():
                raise self._overloaded(self._name) from None
            raise

    def give_back(self, seconds: float) -> None:
        """The call is over, after this time; the next one in the queue takes its place."""
        self._mean += (seconds - self._mean) / 8
        self._pass_on()

    def _pass_on(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1

    def _overloaded(self, name: str) -> Overloaded:
        hint = 1000 * self._mean * (len(self._queue) + 1) / self._at_once
        return Overloaded(
            f"Tool {name!r} is busy: {self._at_once} at once is its limit",
            retry_after_ms=int(min(max(hint, _LEAST_HINT), _MOST_HINT)),
        )

    def around(self, run: Run[ResultT]) -> Run[ResultT]:
        """Run only in turn."""

        async def in_turn(ctx: Context[Any], arguments: dict[str, Any]) -> ResultT:
            try:
                await self.take()
            except Overloaded:
                raise self._overloaded(called(ctx, "tools", self._name)) from None
            clock = asyncio.get_running_loop().time
            start = clock()
            try:
                return await run(ctx, arguments)
            finally:
                self.give_back(clock() - start)

        return in_turn


def _is_whole(given: Any, least: int) -> bool:
    return isinstance(given, int) and given >= least


def limited_in_time(name: str, run: Run[ResultT], seconds: Any) -> Run[ResultT]:
    """Run for so many seconds at most: then the function is cancelled, and the call fails in words for the model."""
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise DefinitionError(f"Tool {name!r}: timeout={seconds!r} is not possible: use seconds, more than 0")

    async def in_time(ctx: Context[Any], arguments: dict[str, Any]) -> ResultT:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                ctx._timeout = PausableTimeout(limit)
                return await run(ctx, arguments)
        except TimeoutError:
            if not limit.expired():
                raise
            logger.warning("Tool %r did not finish within %g seconds and was stopped", name, seconds)
            outer = called(ctx, "tools", name)
            raise ToolError(f"Tool {outer!r} did not finish within {seconds:g} seconds and was stopped") from None
        finally:
            ctx._timeout = None

    return in_time
