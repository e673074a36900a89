"""Work at other servers that anybody can cause: each once at a time, bounded, with shares, and ended with those who wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from gemel.loops import PerLoop
from gemel.shares import Shares
from gemel.timeouts import wait_shared

ResultT = TypeVar("ResultT")


class GaveWay(Exception):
    """Work gave way to that of others.

    Args:
        holder: Whose share it took.
    """

    def __init__(self, holder: Hashable) -> None:
        super().__init__("Too much is being asked of other servers: try again later")
        self.holder = holder


class _Job(Generic[ResultT]):
    """Work that is under way or waits for its turn."""

    __slots__ = ("holder", "key", "result", "task", "waiters", "work")

    def __init__(self, key: Hashable, holder: Hashable, work: Callable[[], Awaitable[ResultT]]) -> None:
        self.key = key
        self.holder = holder
        self.work = work
        self.result: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        #: None while it waits for its turn.
        self.task: asyncio.Task[None] | None = None
        self.waiters = 0

    async def run(self) -> None:
        """Do the work."""
        try:
            result = await self.work()
        except asyncio.CancelledError:
            self.result.cancel()
            raise
        except Exception as exc:
            if not self.result.done():
                self.result.set_exception(exc)
        else:
            if not self.result.done():
                self.result.set_result(result)


class _Jobs(Generic[ResultT]):
    """The work of one event loop."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._at_once = at_once
        self._most_waiting = waiting
        self.by_key: dict[Hashable, _Job[ResultT]] = {}
        self._running: Shares[_Job[ResultT]] = Shares()
        self._waiting: Shares[_Job[ResultT]] = Shares()

    def begin(self, job: _Job[ResultT]) -> None:
        """Do the work, now or later. Whoever has most gives way to others."""
        self.by_key[job.key] = job
        job.result.add_done_callback(lambda _: self._end(job))
        if len(self._running) < self._at_once:
            self._start(job)
            return
        oldest = self._running.giving_way(job.holder)[0]
        if not self._most_waiting or self._running.held(oldest.holder) > self._running.held(job.holder) + 1:
            self._start(job)
            self._give_way(oldest)
            return
        self._waiting.add(job.holder, job)
        if len(self._waiting) > self._most_waiting:
            self._give_way(self._waiting.giving_way(job.holder)[0])

    def _give_way(self, job: _Job[ResultT]) -> None:
        job.result.set_exception(GaveWay(job.holder))
        self._end(job)

    def _start(self, job: _Job[ResultT]) -> None:
        self._running.add(job.holder, job)
        job.task = asyncio.get_running_loop().create_task(job.run())

    def _end(self, job: _Job[ResultT]) -> None:
        """Work is done, gave way, or nobody waits for it. May be called twice."""
        if self.by_key.get(job.key) is job:
            del self.by_key[job.key]
        if job.result.done() and not job.result.cancelled():
            job.result.exception()  # marks it as retrieved: those who waited may have left
        self._waiting.discard(job.holder, job)
        self._running.discard(job.holder, job)
        if job.task is not None:
            job.task.cancel()
        while len(self._running) < self._at_once and len(self._waiting):
            self._start(self._next())

    def _next(self) -> _Job[ResultT]:
        """The next one: the oldest of the caller for whom least is under way now."""
        holder = min(self._waiting.holders(), key=self._running.held)
        job = self._waiting.oldest_of(holder)
        self._waiting.discard(holder, job)
        return job


class SharedWork(Generic[ResultT]):
    """Does work for callers who may be strangers.

    Whoever wants what is under way waits for it, and it is cancelled when nobody does. When there is too much, the oldest of the
    caller with most of it gives way.

    Args:
        at_once: How much may be under way at once, in one event loop.
        waiting: How much more may wait for its turn: then a caller that has most waits. Without, its own oldest gives way.
    """

    def __init__(self, at_once: int, waiting: int = 0) -> None:
        self._by_loop: PerLoop[_Jobs[ResultT]] = PerLoop(lambda: _Jobs(at_once, waiting))

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_loop.here().by_key

    async def run(self, key: Hashable, holder: Hashable, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Do some work, or wait for it if it is under way.

        Args:
            key: Which work it is.
            holder: Whose share it takes.
            work: Does it.

        Returns:
            Its result.

        Raises:
            GaveWay: It gave way to that of others.
        """
        while True:
            try:
                return await self._wait_for(key, holder, work)
            except GaveWay as gave_way:
                if gave_way.holder == holder:
                    raise

    async def _wait_for(self, key: Hashable, holder: Hashable, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        jobs = self._by_loop.here()
        job = jobs.by_key.get(key)
        is_new = job is None
        if job is None:
            job = _Job(key, holder, work)
        job.waiters += 1
        if is_new:
            jobs.begin(job)
        try:
            return await wait_shared(job.result)
        finally:
            job.waiters -= 1
            if not job.waiters:
                job.result.cancel()
