"""Time limits of a request to the peer. Knows tasks and the clock of the loop, nothing of messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Raw


class Deadline:
    """The time limits of one request: one timer, which looks at its end whether the end has moved.

    `idle` seconds without a word, `total` seconds at all. While `held()`, no time passes: it is the peer who waits.
    """

    __slots__ = (
        "_at",
        "_cancelling",
        "_end",
        "_held",
        "_idle",
        "_loop",
        "_start",
        "_task",
        "_timer",
        "_was_held",
        "expired",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        task: asyncio.Task[Any],
        idle: float | None,
        total: float | None,
        *,
        held: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._held = held
        self._was_held = False
        self._task = task
        self._idle = idle
        self._cancelling = task.cancelling()
        self._start = now = loop.time()
        self._end = float("inf") if total is None else now + total
        self._at = self._end if idle is None else min(self._end, now + idle)
        self.expired = False
        self._timer = loop.call_at(self._at, self._look)

    def renewing(self, on_progress: Callable[[Raw], None] | None) -> Callable[[Raw], None]:
        """Progress is a word from the peer: it moves the end, and goes on to whoever wants it."""

        def progress(params: Raw) -> None:
            if self._idle is not None:
                self._at = min(self._end, self._loop.time() + self._idle)
            if on_progress is not None:
                on_progress(params)

        return progress

    def _look(self) -> None:
        loop = self._loop
        now = loop.time()
        held, was_held = self._held(), self._was_held
        if held or was_held:  # after a question the peer gets the usual time anew
            pause = 1.0 if self._idle is None else self._idle
            self._end = max(self._end, now + pause)
            self._at = now + pause
        self._was_held = held
        if now < self._at:
            self._timer = loop.call_at(self._at, self._look)
        else:
            self.expired = True
            self._task.cancel()

    def taken_back(self) -> bool:
        """Whether the cancellation that arrived is this limit's, and nobody else's; then it is off the task."""
        return self.expired and self._task.uncancel() <= self._cancelling

    @property
    def waited(self) -> float:
        """Seconds since the start."""
        return self._loop.time() - self._start

    def end(self) -> None:
        """Over, in time or not."""
        self._timer.cancel()
