"""The contract of a backend: what all processes of a server share.

It carries change notifications, and keeps values that expire, claims, leases and logs. `gemel.testing.check_backend` holds a
backend to this contract.

A notification says that something changed, not how: after the last change, every listener gets at least one for it. Repeated ones
may be merged. The order is kept for notifications of the same thing only.

Values, claims, leases and logs have keys of their own: the same text names four things. A key is a text of 1 to 512 bytes in
UTF-8, a value or an entry of a log has at most 1 MiB. Whoever stores what a peer chose makes a digest of it for the key.

A log is a list of entries with the positions 1, 2, 3 and so on, without gaps. Its oldest entries are dropped when it has too
many; all of it expires some time after the newest entry. A log that begins again after that begins with position 1.
"""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias, runtime_checkable

from gemel.backends.lease import Lease
from gemel.errors import BackendError, Overloaded
from gemel.options import is_async
from gemel.protocol.changes import Changed, ChangesLost

logger = logging.getLogger("gemel")

Event: TypeAlias = Changed | ChangesLost
#: Called with each event.
Listener: TypeAlias = Callable[[Event], None]

MAX_KEY_BYTES = 512
MAX_VALUE_BYTES = 1 << 20
#: Bytes of all entries of one append, and those that a log may keep besides its newest entry.
MAX_LOG_BYTES = 8 << 20

#: Seconds between two records that say the same of a full store.
_PAUSE = 10.0
_MOST_SAID = 100
_said: dict[str, float] = {}


class Backend(Protocol):
    """Publishes change notifications, and keeps what the processes of a server share.

    The asynchronous methods can be used from any event loop. They raise `ValueError` for a key, value, time or number that is
    not allowed, `Overloaded` if there is no room, and `BackendError` if the backend can't be reached or is damaged. Each ends
    within seconds, even if the store hangs, unless its text says otherwise: those who wait for it set no time limit.
    """

    @property
    def shared(self) -> bool:
        """Whether other processes see what this one stores."""
        ...

    def publish(self, event: Changed) -> None:
        """Notify all listeners in all processes. This must not block or raise.

        A backend without connection notifies the local listeners, and sends ChangesLost to all when it is connected again.

        Args:
            event: What changed.
        """

    async def flush(self) -> None:
        """Wait until the changes that were published before can't be lost with this process.

        While the backend can't be reached, this waits: callers set a time limit.

        Raises:
            BackendError: The backend was closed.
        """

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener. This must not block.

        Args:
            listener: Called with each event, on any thread. What it raises is logged, and keeps no other from being called.

        Returns:
            A function that removes the listener; calling it twice is harmless.
        """
        ...

    async def get(self, key: str) -> bytes | None:
        """Return a value.

        Args:
            key: Its key.

        Returns:
            The value; None if there is none, or it has expired.

        Raises:
            ValueError: The key is not allowed.
            BackendError: The store can't be reached, or is damaged.
        """
        ...

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Store a value, in place of an earlier one and its expiry.

        Args:
            key: Its key.
            value: The value.
            ttl: Seconds until it expires; None keeps it.

        Raises:
            ValueError: The key, value or time is not allowed.
            Overloaded: There is no room.
            BackendError: The store can't be reached, or is damaged.
        """

    async def delete(self, key: str) -> bool:
        """Delete a value.

        Args:
            key: Its key.

        Returns:
            Whether there was one that had not expired: of several callers one gets True. So a value is used once.

        Raises:
            ValueError: The key is not allowed.
            BackendError: The store can't be reached, or is damaged.
        """
        ...

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        """Store a value if the current one is what the caller expects: one atomic step among all processes.

        Args:
            key: Its key.
            expected: The present value; None if there is none, or it has expired.
            value: The new value.
            ttl: Seconds until it expires; None keeps it.

        Returns:
            Whether it was stored.

        Raises:
            ValueError: The key, value or time is not allowed.
            Overloaded: There is no room.
            BackendError: The store can't be reached, or is damaged.
        """
        ...

    async def touch(self, key: str, *, ttl: float) -> bool:
        """Let a value expire at another time.

        Args:
            key: Its key.
            ttl: Seconds from now until it expires.

        Returns:
            Whether there is one that had not expired.

        Raises:
            ValueError: The key or time is not allowed.
            Overloaded: There is no room.
            BackendError: The store can't be reached, or is damaged.
        """
        ...

    async def claim(self, key: str, *, ttl: float) -> bool:
        """Claim a key, which nobody else can until the claim expires.

        Args:
            key: The key.
            ttl: Seconds until it can be claimed again.

        Returns:
            True for one caller among all processes, False for the others.

        Raises:
            ValueError: The key or time is not allowed.
            Overloaded: There is no room.
            BackendError: The store can't be reached, or is damaged.
        """
        ...

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
        """Hold a key inside of `async with`, as the only one among all tasks, threads and processes.

        The lease is renewed while the block runs, and ends with it, or after `ttl` seconds if its process dies. A block that
        keeps its event loop busy for longer loses it: call `Lease.check` before what must not happen twice.

        `Lease.token` is above 0, and greater than those of all earlier holders of the key, as long as the store lives: what a
        holder writes can name it, so that what a former holder writes late is told apart.

        Args:
            key: The key.
            ttl: Seconds after which the lease of a dead process ends.
            wait: Seconds to wait until the lease is free, 0 to try once; None waits without limit.

        Returns:
            A context manager. It raises TimeoutError if the lease was not free in time, and LeaseLost at the end of a block that
            lost its lease.

        Raises:
            ValueError: The key or time is not allowed.
        """
        ...

    async def append(
        self, log: str, entries: Sequence[bytes], *, ttl: float, most: int = 1000, after: int | None = None
    ) -> int:
        """Append entries to a log, all of them or none.

        Args:
            log: Its key.
            entries: What is appended: one entry or more, together at most 8 MiB.
            ttl: Seconds until the log expires, unless more is appended.
            most: Entries that the log keeps, at least 1. Beyond, or beyond some bytes (8 MiB, or more if the backend says so), the
                oldest are dropped. The newest entry is always kept.
            after: The newest position must be this one, 0 if there is none: of several writers one goes on.

        Returns:
            The position of the last of the entries.

        Raises:
            LogConflict: The newest position is not `after`.
            ValueError: The key, an entry, the time or number is not allowed.
            Overloaded: There is no room.
            BackendError: The store can't be reached, or is damaged. The entries may have been appended.
        """
        ...

    async def read(self, log: str, *, after: int = 0, most: int = 1000) -> list[tuple[int, bytes]]:
        """Read entries of a log, oldest first.

        Args:
            log: Its key.
            after: Entries up to this position are left out.
            most: Entries to return, at least 1.

        Returns:
            Positions and entries. If the first position is greater than `after + 1`, entries between were dropped.

        Raises:
            ValueError: The key or number is not allowed.
            BackendError: The store can't be reached, or is damaged.
        """
        ...

    async def end_of(self, log: str) -> int:
        """Return the newest position of a log.

        Args:
            log: Its key.

        Returns:
            The position; 0 if there is no such log, or it has expired.

        Raises:
            ValueError: The key is not allowed.
            BackendError: The store can't be reached, or is damaged.
        """
        ...

    def watch(self, log: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Be called when a log has new entries. This must not block; it raises nothing but ValueError, for a key.

        Args:
            log: Its key.
            wake: Called soon after entries were appended by any process, on any thread; it must not block. Several appends may
                be one call. It is also called when entries may have been missed, so it reads the log to find out. What it raises
                is logged, and keeps no other from being called.

        Returns:
            A function that ends it; calling it twice is harmless.

        Raises:
            ValueError: The key is not allowed.
        """
        ...

    async def close(self) -> None:
        """Close connections and files. The backend can't be used afterwards."""


@runtime_checkable
class Reopenable(Protocol):
    """A backend that can be used again after it was closed, as those can that a server makes from a URL."""

    def reopen(self) -> None:
        """Undo `close`, for a server that serves again. Does nothing if the backend is open; must not block."""


def missing_members(backend: object) -> list[str]:
    """What an object lacks of `Backend`, or has in a form that can't be called like that: each as it is written."""
    members = {name: member for name, member in vars(Backend).items() if not name.startswith("_")}
    found = (_missing(name, getattr(backend, name, None), member) for name, member in members.items())
    return [written for written in found if written is not None]


def _missing(name: str, own: object, member: Callable[..., object] | property) -> str | None:
    """How a member is written that is missing; None if it is there."""
    if isinstance(member, property):
        return None if own is not None else f"`{name}`"
    parameters = list(inspect.signature(member).parameters.values())[1:]
    named = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    plain = not inspect.iscoroutinefunction(member)
    shown = ", ".join(
        ["self"] + [each.name for each in parameters if each.name not in named] + ["*"] * bool(named) + named
    )
    written = f"`{'' if plain else 'async '}def {name}({shown})`"
    try:
        if not callable(own) or (plain and is_async(own)):
            return written
        inspect.signature(own).bind(*[None] * (len(parameters) - len(named)), **dict.fromkeys(named))
    except TypeError:
        return written
    except (ValueError, NameError):  # it has no signature that can be read
        pass
    return None


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


def check_entries(entries: Sequence[bytes], limit: int = MAX_VALUE_BYTES) -> Sequence[bytes]:
    """Return entries to append to a log. Raises ValueError if there are none, or they are too large."""
    if not entries:
        raise ValueError("An append needs at least 1 entry")
    if sum(len(check_value(entry, limit)) for entry in entries) > MAX_LOG_BYTES:
        raise ValueError(f"The entries of one append have at most {MAX_LOG_BYTES} bytes")
    return entries


def check_most(most: int) -> int:
    """Return how many entries a log keeps or a caller reads. Raises ValueError if that is none."""
    if most < 1:
        raise ValueError(f"A log keeps and returns at least 1 entry, not {most}")
    return most


def store_full(detail: str) -> Overloaded:
    """Return the error of a store without room. Callers aren't told which one it is; the log is, now and then.

    Args:
        detail: Which store, and how much it may keep.
    """
    now = time.monotonic()
    if now >= _said.get(detail, now):
        if len(_said) >= _MOST_SAID:
            _said.clear()
        _said[detail] = now + _PAUSE
        logger.warning("A store is full: %s. What must be stored is refused with 429", detail)
    return Overloaded("The store is full", detail=detail)


def store_refusal(what: str, exc: BackendError | Overloaded) -> Overloaded:
    """Log why a store can't be used, and return the error for a caller, who isn't told which store it is.

    Args:
        what: What could not be done.
        exc: The error of the store.
    """
    logger.warning("%s: %s", what, exc)
    reason = exc.error.message if isinstance(exc, Overloaded) else "try again later"
    return Overloaded(f"{what}: {reason}")
