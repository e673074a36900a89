"""The contract of a backend: what all processes of a server share.

It carries change notifications, and keeps values that expire, claims and leases. `hinge.testing.check_backend` holds a backend
to this contract.

A notification says that something changed, not how: after the last change, every listener gets at least one for it. Repeated ones
may be merged. The order is kept for notifications of the same thing only.

Values, claims and leases have keys of their own: the same text names three things. A key is a text of 1 to 512 bytes in UTF-8, a
value has at most 1 MiB. Whoever stores what a peer chose makes a digest of it for the key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from hinge.backends.lease import Lease
from hinge.protocol.changes import Changed, ChangesLost

Event: TypeAlias = Changed | ChangesLost
#: Called with each event.
Listener: TypeAlias = Callable[[Event], None]

MAX_KEY_BYTES = 512
MAX_VALUE_BYTES = 1 << 20


class Backend(Protocol):
    """Publishes change notifications, and keeps what the processes of a server share.

    The asynchronous methods can be used from any event loop. They raise `ValueError` for a key, value or time that is not
    allowed, `Overloaded` if there is no room, and `BackendError` if the backend can't be reached or is damaged.
    """

    def publish(self, event: Changed) -> None:
        """Notify all listeners in all processes. This must not block or raise.

        A backend without connection notifies the local listeners, and sends ChangesLost to all when it is connected again.

        Args:
            event: What changed.
        """

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener. This must not block.

        Args:
            listener: Called with each event, on any thread.

        Returns:
            A function that removes the listener.
        """
        ...

    async def get(self, key: str) -> bytes | None:
        """Return a value.

        Args:
            key: Its key.

        Returns:
            The value; None if there is none, or it has expired.
        """
        ...

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Store a value, in place of an earlier one and its expiry.

        Args:
            key: Its key.
            value: The value.
            ttl: Seconds until it expires; None keeps it.
        """

    async def delete(self, key: str) -> bool:
        """Delete a value.

        Args:
            key: Its key.

        Returns:
            Whether there was one that had not expired: of several callers one gets True. So a value is used once.
        """
        ...

    async def claim(self, key: str, *, ttl: float) -> bool:
        """Claim a key, which nobody else can until the claim expires.

        Args:
            key: The key.
            ttl: Seconds until it can be claimed again.

        Returns:
            True for one caller among all processes, False for the others.
        """
        ...

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
        """Hold a key inside of `async with`, as the only one among all tasks, threads and processes.

        The lease is renewed while the block runs, and ends with it, or after `ttl` seconds if its process dies. A block that
        keeps its event loop busy for longer loses it: call `Lease.check` before what must not happen twice.

        Args:
            key: The key.
            ttl: Seconds after which the lease of a dead process ends.
            wait: Seconds to wait until the lease is free, 0 to try once; None waits without limit.

        Returns:
            A context manager. It raises TimeoutError if the lease was not free in time, and LeaseLost at the end of a block that
            lost its lease.
        """
        ...

    async def close(self) -> None:
        """Close connections and files. The backend can't be used afterwards."""


def check_key(key: str) -> bytes:
    """Return a key in UTF-8. Raises ValueError if it is not allowed."""
    encoded = key.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
    if not 0 < len(encoded) <= MAX_KEY_BYTES:
        raise ValueError(f"A key has 1 to {MAX_KEY_BYTES} bytes, this one {len(encoded)}: use a digest")
    return encoded


def check_value(value: bytes, limit: int = MAX_VALUE_BYTES) -> bytes:
    """Return a value. Raises ValueError if it is too large."""
    if len(value) > limit:
        raise ValueError(f"A value has at most {limit} bytes, this one {len(value)}")
    return value


def check_ttl(ttl: float) -> float:
    """Return seconds until something expires. Raises ValueError if they are not a positive number."""
    if not (ttl > 0 and math.isfinite(ttl)):
        raise ValueError(f"A time to live is a positive number of seconds, not {ttl}")
    return ttl
