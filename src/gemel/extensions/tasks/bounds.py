"""How many tasks a process makes and keeps, how many of them one caller has, and how many bytes they take."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Hashable

from gemel.errors import Overloaded
from gemel.extensions.tasks.limits import TaskLimits
from gemel.shares import Shares

#: What is kept by default in memory, and on a shared backend: tasks, their bytes, the bytes of those of one caller.
_IN_MEMORY = (10_000, 128 << 20, 64 << 20)
_SHARED = (100_000, 1 << 30, 256 << 20)


class TaskBounds:
    """The tasks that this process made, until they expire.

    A task takes the bytes of its arguments until it ends, and then those of its result. Tasks that have ended make room for
    others: of the caller who has most of them, those that ended first before later ones.

    Args:
        limits: How many are kept, and how large they are.
        shared: Whether they are on a backend that other processes share, which has room for more.
    """

    def __init__(self, limits: TaskLimits, *, shared: bool) -> None:
        tasks, all_bytes, caller_bytes = _SHARED if shared else _IN_MEMORY
        self._most = limits.tasks or tasks
        self._of_caller = limits.tasks_per_caller
        self._unfinished = limits.unfinished_per_caller
        self._most_bytes = limits.bytes or all_bytes
        self._bytes_of_caller = limits.bytes_per_caller or caller_bytes
        #: When tasks expire, and their ids, as a heap; some of them are forgotten already.
        self._expiries: list[tuple[float, str]] = []
        #: The callers of the tasks that are kept.
        self._callers: dict[str, Hashable] = {}
        self._counts: Counter[Hashable] = Counter()
        #: What has not ended, as far as this process knows, by caller and by id.
        self._open: dict[Hashable, set[str]] = {}
        #: When the tasks of a caller were looked at last.
        self._looked: dict[Hashable, float] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._bytes_of: Counter[Hashable] = Counter()
        #: The tasks that have ended, as far as this process knows, and the bytes of their results.
        self._ended: Shares[str] = Shares()
        self._results: Shares[str] = Shares()

    @property
    def bytes(self) -> int:
        """The bytes of all tasks."""
        return self._bytes

    def add(self, caller: Hashable, task_id: str, expires: float, now: float, size: int) -> list[str]:
        """Count a task that is about to be made. Returns the ids of those that make room for it. Raises Overloaded."""
        while self._expiries and (self._expiries[0][0] <= now or self._expiries[0][1] not in self._callers):
            self.forget(heapq.heappop(self._expiries)[1])
        is_full = len(self._callers) >= self._most
        for has_room, limit, whose in (
            (not is_full or len(self._ended) > 0, self._most, "this process"),
            (self._counts[caller] < self._of_caller, self._of_caller, "a caller"),
        ):
            if not has_room:
                delay = min(max(self._expiries[0][0] - now, 1.0), 60.0)
                raise Overloaded(f"Too many tasks: {limit} are the limit of {whose}", retry_after_ms=int(1000 * delay))
        if len(self._open.get(caller, ())) >= self._unfinished:
            text = f"Too many tasks that have not ended: {self._unfinished} are the limit of a caller"
            raise Overloaded(text, retry_after_ms=1000)
        own = sum(self._sizes[each] for each in self._open.get(caller, ()))
        for taken, limit, whose in (
            (own, self._bytes_of_caller, "a caller"),
            (self._bytes - self._results.size, self._most_bytes, "this process"),
        ):
            if taken + size > limit:
                text = f"The arguments of the tasks that have not ended are too large: {limit} bytes are the limit of {whose}"
                raise Overloaded(text, retry_after_ms=1000)
        gone = [self._ended.giving_way(caller)[0]] if is_full else []
        for task in gone:
            self.forget(task)
        if len(self._expiries) > 2 * len(self._callers) + 16:
            self._expiries = [entry for entry in self._expiries if entry[1] in self._callers]
            heapq.heapify(self._expiries)
        heapq.heappush(self._expiries, (expires, task_id))
        self._callers[task_id] = caller
        self._counts[caller] += 1
        self._open.setdefault(caller, set()).add(task_id)
        self._resize(task_id, size)
        return gone + self._make_room(caller)

    def uncertain(self, caller: Hashable) -> list[str]:
        """The tasks of a caller to look at since they may have ended in another process: if it has many, once a second."""
        tasks, now = self._open.get(caller, ()), time.monotonic()
        if len(tasks) < self._unfinished or now < self._looked.get(caller, 0.0) + 1.0:
            return []
        self._looked[caller] = now
        return list(tasks)

    def complete(self, task_id: str, size: int) -> list[str]:
        """Count the result of a task that is about to be stored. Returns the ids of those that make room for it."""
        caller = self._callers.get(task_id)
        if caller is None or task_id not in self._open.get(caller, ()):
            return []
        self.end(task_id)
        self._resize(task_id, size)
        gone = self._make_room(caller)
        if size:
            self._results.add(caller, task_id, size)
        return gone

    def end(self, task_id: str) -> None:
        """Note that a task has ended, or runs in another process; it may have been noted before."""
        caller = self._callers.get(task_id)
        tasks = self._open.get(caller)
        if tasks is not None and task_id in tasks:
            self._resize(task_id, 0)
            tasks.remove(task_id)
            self._ended.add(caller, task_id)
            if not tasks:
                del self._open[caller]
                self._looked.pop(caller, None)

    def forget(self, task_id: str) -> None:
        """Forget a task that does not exist any more, or was not made after all."""
        self.end(task_id)
        if task_id not in self._callers:
            return
        self._resize(task_id, 0)
        caller = self._callers.pop(task_id)
        del self._sizes[task_id]
        self._ended.discard(caller, task_id)
        self._results.discard(caller, task_id)
        self._counts[caller] -= 1
        if not self._counts[caller]:
            del self._counts[caller]
            del self._bytes_of[caller]

    def _resize(self, task_id: str, size: int) -> None:
        grown = size - self._sizes.get(task_id, 0)
        self._sizes[task_id] = size
        self._bytes += grown
        self._bytes_of[self._callers[task_id]] += grown

    def _make_room(self, caller: Hashable) -> list[str]:
        """Forget tasks that have ended with a result, until the others fit."""
        gone: list[str] = []
        while self._bytes_of[caller] > self._bytes_of_caller and self._results.held(caller):
            gone.append(self._results.oldest_of(caller))
            self.forget(gone[-1])
        while self._bytes > self._most_bytes and len(self._results):
            gone.append(self._results.giving_way(caller)[0])
            self.forget(gone[-1])
        return gone
