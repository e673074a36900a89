"""How many tasks a process makes and keeps, and how many of them one caller has."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Hashable

from hinge.errors import Overloaded


class TaskBounds:
    """The tasks that this process made, until they expire.

    Args:
        most: How many are kept.
        of_caller: How many of them one caller has.
        unfinished: How many of those have not ended.
    """

    def __init__(self, *, most: int, of_caller: int, unfinished: int) -> None:
        self._most = most
        self._of_caller = of_caller
        self._unfinished = unfinished
        #: What is kept: when it expires, its id and its caller. A heap.
        self._kept: list[tuple[float, str, Hashable]] = []
        self._counts: Counter[Hashable] = Counter()
        #: What has not ended, as far as this process knows, by caller and by id.
        self._open: dict[Hashable, set[str]] = {}
        self._callers: dict[str, Hashable] = {}
        #: When the tasks of a caller were looked at last.
        self._looked: dict[Hashable, float] = {}

    def add(self, caller: Hashable, task_id: str, expires: float, now: float) -> None:
        """Count a task that is about to be made. Raises Overloaded."""
        while self._kept and self._kept[0][0] <= now:
            self._remove(heapq.heappop(self._kept))
        for count, limit, whose in (
            (len(self._kept), self._most, "this process"),
            (self._counts[caller], self._of_caller, "a caller"),
        ):
            if count >= limit:
                delay = min(max(self._kept[0][0] - now, 1.0), 60.0)
                raise Overloaded(f"Too many tasks: {limit} are the limit of {whose}", retry_after_ms=int(1000 * delay))
        if len(self._open.get(caller, ())) >= self._unfinished:
            text = f"Too many tasks that have not ended: {self._unfinished} are the limit of a caller"
            raise Overloaded(text, retry_after_ms=1000)
        heapq.heappush(self._kept, (expires, task_id, caller))
        self._counts[caller] += 1
        self._open.setdefault(caller, set()).add(task_id)
        self._callers[task_id] = caller

    def uncertain(self, caller: Hashable) -> list[str]:
        """The tasks of a caller to look at since they may have ended in another process: if it has many, once a second."""
        tasks, now = self._open.get(caller, ()), time.monotonic()
        if len(tasks) < self._unfinished or now < self._looked.get(caller, 0.0) + 1.0:
            return []
        self._looked[caller] = now
        return list(tasks)

    def end(self, task_id: str) -> None:
        """Note that a task has ended, or runs in another process; it may have been noted before."""
        caller = self._callers.pop(task_id, None)
        if caller is not None and (tasks := self._open.get(caller)) is not None:
            tasks.discard(task_id)
            if not tasks:
                del self._open[caller]
                self._looked.pop(caller, None)

    def withdraw(self, task_id: str) -> None:
        """Forget a task that was not made after all."""
        for entry in self._kept:
            if entry[1] == task_id:
                self._kept.remove(entry)
                heapq.heapify(self._kept)
                self._remove(entry)
                break

    def _remove(self, entry: tuple[float, str, Hashable]) -> None:
        _, task_id, caller = entry
        self.end(task_id)
        self._counts[caller] -= 1
        if not self._counts[caller]:
            del self._counts[caller]
