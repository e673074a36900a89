"""A backend whose values are encrypted, for what must be neither read nor forged by those who reach the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from hinge.backends.base import MAX_VALUE_BYTES, Backend, Listener, check_key, check_value
from hinge.backends.lease import Lease
from hinge.encryption import OVERHEAD, KeyRing
from hinge.errors import BackendError
from hinge.protocol.changes import Changed


class EncryptedBackend:
    """Encrypts the values of another backend with AES-256-GCM. Keys, claims, leases and changes pass as they are.

    A value is bound to its key: it can't be moved to another one. An older value of the same key can be put back by somebody who
    can write to the store.

    Args:
        backend: The other backend.
        keys: Secrets of at least 32 bytes, the same in all processes: the first encrypts, all decrypt. To change them, first add
            the new one at the end everywhere, then put it first, then remove the old one when its values have expired.

    Raises:
        DefinitionError: A key is too short, or there is none.
    """

    def __init__(self, backend: Backend, keys: Sequence[bytes]) -> None:
        self._backend = backend
        self._ring = KeyRing(keys, b"hinge backend values", name="stored values")

    def publish(self, event: Changed) -> None:
        """Pass a change on.

        Args:
            event: What changed.
        """
        self._backend.publish(event)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener to the other backend.

        Args:
            listener: Called with each event.

        Returns:
            A function that removes the listener.
        """
        return self._backend.subscribe(listener)

    async def get(self, key: str) -> bytes | None:
        """Return a value, decrypted.

        Args:
            key: Its key.

        Returns:
            The value; None if there is none, or it has expired.

        Raises:
            ValueError: The key is not allowed.
            BackendError: The value was not encrypted with these keys for this key, or the other backend failed.
        """
        box = await self._backend.get(key)
        if box is None:
            return None
        try:
            return self._ring.decrypt(box, check_key(key))
        except ValueError as exc:
            raise BackendError(f"The stored value can't be decrypted: {exc}") from None

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Store a value, encrypted.

        Args:
            key: Its key.
            value: The value, 32 bytes less than the other backend takes.
            ttl: Seconds until it expires; None keeps it.

        Raises:
            ValueError: The key, value or time is not allowed.
            Overloaded: There is no room.
            BackendError: The other backend failed.
        """
        check_value(value, MAX_VALUE_BYTES - OVERHEAD)
        await self._backend.set(key, self._ring.encrypt(value, check_key(key)), ttl=ttl)

    async def delete(self, key: str) -> bool:
        """Delete a value.

        Args:
            key: Its key.

        Returns:
            Whether there was one that had not expired: of several callers one gets True.

        Raises:
            ValueError: The key is not allowed.
            BackendError: The other backend failed.
        """
        return await self._backend.delete(key)

    async def claim(self, key: str, *, ttl: float) -> bool:
        """Claim a key in the other backend.

        Args:
            key: The key.
            ttl: Seconds until it can be claimed again.

        Returns:
            True for one caller among all processes, False for the others.

        Raises:
            ValueError: The key or time is not allowed.
            Overloaded: There is no room.
            BackendError: The other backend failed.
        """
        return await self._backend.claim(key, ttl=ttl)

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
        """Hold a key in the other backend; see `Backend.lease`.

        Args:
            key: The key.
            ttl: Seconds after which the lease of a dead process ends.
            wait: Seconds to wait until the lease is free, 0 to try once; None waits without limit.

        Returns:
            A context manager, which raises TimeoutError or LeaseLost.

        Raises:
            ValueError: The key or time is not allowed.
        """
        return self._backend.lease(key, ttl=ttl, wait=wait)

    async def close(self) -> None:
        """Close the other backend."""
        await self._backend.close()
