"""Token stores: in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hinge.auth.client.tokens import Tokens

#: Seconds between two attempts to get a lock that is held elsewhere, at first and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.1


class MemoryTokenStore:
    """Keeps logins in this process: they end with it."""

    def __init__(self) -> None:
        self._tokens: dict[str, Tokens] = {}
        self._locks: dict[str, threading.Lock] = {}

    async def get(self, key: str, /) -> Tokens | None:
        """Return the tokens of a key, or None.

        Args:
            key: The key.

        Returns:
            The tokens.
        """
        return self._tokens.get(key)

    async def set(self, key: str, tokens: Tokens, /) -> None:
        """Store the tokens of a key.

        Args:
            key: The key.
            tokens: The tokens.
        """
        self._tokens[key] = tokens

    async def delete(self, key: str, /) -> None:
        """Delete the tokens of a key, if there are any.

        Args:
            key: The key.
        """
        self._tokens.pop(key, None)

    @asynccontextmanager
    async def lock(self, key: str, /) -> AsyncIterator[None]:
        """Wait for the lock of a key, which excludes other tasks and threads.

        Args:
            key: The key.

        Returns:
            A context manager that holds the lock.
        """
        lock = self._locks.setdefault(key, threading.Lock())
        pause = FIRST_PAUSE
        while not lock.acquire(blocking=False):
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        try:
            yield
        finally:
            lock.release()
