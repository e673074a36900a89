"""Storing what must not be lost, because what it records has happened."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gemel.errors import BackendError, Overloaded

logger = logging.getLogger("gemel")

ResultT = TypeVar("ResultT")


async def store_patiently(write: Callable[[], Awaitable[ResultT]], seconds: float, what: str) -> ResultT:
    """Store something, again for some time while the backend can't be reached or is full.

    Args:
        write: Stores it. It may be called again after it has stored it and failed.
        seconds: How long to try.
        what: What is stored, for the log.

    Returns:
        What `write` returned.

    Raises:
        BackendError: The backend could not be reached.
        Overloaded: There was no room.
    """
    until, pause = time.monotonic() + seconds, 0.05
    while True:
        try:
            return await write()
        except (BackendError, Overloaded) as exc:
            if time.monotonic() >= until:
                raise
            logger.warning("%s can't be stored yet: %s", what, exc)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, 1.0)
