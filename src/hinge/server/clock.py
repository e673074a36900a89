"""The clock of a call that has a time limit: it stands still while a person is asked."""

from __future__ import annotations

import asyncio


class Clock:
    """The time limit of one call, which can be halted while a person is asked."""

    __slots__ = ("_halts", "_left", "_limit")

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._halts = 0
        self._left = 0.0

    def halt(self) -> None:
        """Stand still until `go_on` was called as often."""
        self._halts += 1
        end = self._limit.when()
        if self._halts == 1 and end is not None and not self._limit.expired():
            self._left = end - asyncio.get_running_loop().time()
            self._limit.reschedule(None)

    def go_on(self) -> None:
        """The time that was left runs again."""
        self._halts -= 1
        if not self._halts and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._left)
