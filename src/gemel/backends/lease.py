"""Leases: how they are waited for, renewed and lost, for backends that can take and release them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from gemel.errors import GemelError, LeaseLost

logger = logging.getLogger("gemel")

#: Seconds between two attempts to take a lease, at first and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.25


class Lease:
    """A lease that this task holds.

    Args:
        key: The key.
        token: A number that grows with each holder of the key.
        until: When it ends unless it is renewed, by `time.monotonic`.

    Attributes:
        key: The key.
        token: The number (a "fencing token").
    """

    def __init__(self, key: str, token: int, until: float) -> None:
        self.key = key
        self.token = token
        self._until = until

    @property
    def lost(self) -> bool:
        """Whether it has ended while it was held."""
        return time.monotonic() >= self._until

    async def wait_lost(self) -> None:
        """Wait until it has ended while it was held: then what must not happen twice has to stop."""
        while (left := self._until - time.monotonic()) > 0:  # noqa: ASYNC110  # it is renewed meanwhile
            await asyncio.sleep(left)

    def check(self) -> None:
        """Do nothing while the lease is held.

        Raises:
            LeaseLost: It has ended.
        """
        if self.lost:
            raise LeaseLost(f"The lease of {self.key!r} has ended: somebody else may hold it now")


@asynccontextmanager
async def hold_lease(
    take: Callable[[bytes], Awaitable[int]],
    release: Callable[[bytes], Awaitable[object]],
    key: str,
    *,
    ttl: float,
    wait: float | None,
) -> AsyncIterator[Lease]:
    """Wait for a lease and hold it, in terms of two operations of a backend.

    Args:
        take: Takes the lease for an owner, or renews that owner's. One atomic operation. Returns a number (`Lease.token`) that is
            greater than those of all earlier holders and stays the same when the lease is renewed; 0 if somebody else holds it.
        release: Ends the lease of an owner, if that holds it.
        key: The key.
        ttl: Seconds after which the lease ends unless it is renewed.
        wait: Seconds to wait, 0 to try once; None waits without limit.

    Returns:
        A context manager with the lease.

    Raises:
        TimeoutError: It was not free in time.
        LeaseLost: It has ended before the block did.
    """
    from random import uniform  # here: a server without leases need not load it

    owner = os.urandom(16).hex().encode()
    deadline = None if wait is None else time.monotonic() + wait
    pause = FIRST_PAUSE
    lease, refused = None, False
    try:
        # Measured from before the operation, the lease ends here no later than in the backend.
        began = time.monotonic()
        while not (token := await take(owner)):
            left = LONGEST_PAUSE if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"The lease of {key!r} is held by somebody else")
            await asyncio.sleep(min(left, pause * uniform(0.5, 1.0)))
            pause = min(2 * pause, LONGEST_PAUSE, ttl / 2)
            began = time.monotonic()
        lease = Lease(key, token, began + ttl)
        renewing = asyncio.get_running_loop().create_task(_renew(lease, take, owner, ttl))
        try:
            yield lease
            lease.check()
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
    except GemelError:
        refused = lease is None
        raise
    finally:  # even if the wait was cancelled: the last attempt may have taken it
        try:
            await release(owner)
        except GemelError as exc:
            level = logging.DEBUG if refused else logging.WARNING  # what could not be taken is no news
            logger.log(level, "The lease of %r could not be released, and ends by itself: %s", key, exc)


async def _renew(lease: Lease, take: Callable[[bytes], Awaitable[int]], owner: bytes, ttl: float) -> None:
    from gemel.backends.patience import Outage

    outage = Outage(f"The lease of {lease.key!r} could not be renewed yet", f"The lease of {lease.key!r} is renewed")
    pause = ttl / 3
    while not lease.lost:
        await asyncio.sleep(pause)
        began = time.monotonic()
        try:
            if await take(owner) != lease.token:  # somebody else holds it, or did meanwhile
                began = -ttl
        except GemelError as exc:
            outage.failed(exc)
            pause = ttl / 15
            continue
        outage.ended()
        pause = ttl / 3
        if not lease.lost:
            lease._until = began + ttl
