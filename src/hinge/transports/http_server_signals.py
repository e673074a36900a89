"""Learns of the server's stop although the HTTP server owns the signals.

Servers wait for open responses before they tell an application to shut down, and an event stream is open for ever: so
an app that wants its server to end must hear of SIGTERM itself. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

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
