"""Storing what must not be lost, because what it records has happened."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gemel.errors import BackendError, Overloaded, shorten

logger = logging.getLogger("gemel")

ResultT = TypeVar("ResultT")


class Outage:
    """Says in the log that something fails, once, and that it works again: not each of the tries in between.

    Args:
        failing: What doesn't work.
        works: What is said when it works again.

    Attributes:
        reason: Why it failed last; None while it works.
    """

    def __init__(self, failing: str, works: str) -> None:
        self._failing, self._works = failing, works
        self._since = 0.0
        self.reason: str | None = None

    def failed(self, exc: Exception) -> None:
        """Note a failure.

        Args:
            exc: The reason.
        """
        began, self.reason = self.reason is None, str(exc)
        if began:
            self._since = time.monotonic()
            logger.warning("%s: %s", self._failing, shorten(self.reason))

    def ended(self) -> None:
        """Note that it works."""
        if self.reason is not None:
            logger.warning("%s, after %.0f s", self._works, time.monotonic() - self._since)
            self.reason = None


#: What can't be stored now, by what it is: many calls of a process wait for the same backend.
_outages: dict[str, Outage] = {}


async def store_patiently(write: Callable[[], Awaitable[ResultT]], seconds: float, what: str) -> ResultT:
    """Store something, again for some time while the backend can't be reached or is full.

    Args:
        write: Stores it. It may be called again after it has stored it and failed.
        seconds: How long to try.
        what: What is stored, for the log, in the singular; the same words for the same kind of thing.

    Returns:
        What `write` returned.

    Raises:
        BackendError: The backend could not be reached.
        Overloaded: There was no room.
    """
    until, pause = time.monotonic() + seconds, 0.05
    while True:
        try:
            stored = await write()
        except (BackendError, Overloaded) as exc:
            _outages.setdefault(what, Outage(f"{what} can't be stored yet", f"{what} is stored again")).failed(exc)
            if time.monotonic() >= until:
                raise
        else:
            if (outage := _outages.pop(what, None)) is not None:
                outage.ended()
            return stored
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, 1.0)
