"""A lease whose backend is away for a time: its holder keeps it if the backend comes back before it ends."""

from __future__ import annotations

import asyncio

from gemel import BackendError
from gemel.backends import hold_lease


async def test_a_lease_is_renewed_soon_after_an_outage() -> None:
    """Even if the first renewal after the outage would come too late at the usual pace."""
    tries, renewed = 0, asyncio.Event()

    async def take(owner: bytes) -> int:
        nonlocal tries
        tries += 1
        if 1 < tries < 7:
            raise BackendError("away")
        if tries > 1:
            renewed.set()
        return 1

    async def release(owner: bytes) -> None:
        pass

    async with hold_lease(take, release, "a", ttl=3.0, wait=0) as lease, asyncio.timeout(10):
        await renewed.wait()
        assert not lease.lost
