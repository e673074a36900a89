"""A backend whose values are encrypted, for what must be neither read nor forged by those who reach the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from gemel.backends.base import MAX_VALUE_BYTES, Backend, Listener, check_entries, check_key, check_value
from gemel.backends.lease import Lease
from gemel.encryption import OVERHEAD, KeyRing
from gemel.errors import BackendError
from gemel.protocol.changes import Changed


class EncryptedBackend(Backend):
    """Encrypts the values and logs of another backend with AES-256-GCM. Keys, claims, leases and changes pass as they are.

    A value is bound to its key: it can't be moved to another one. An older value of the same key can be put back by somebody who
    can write to the store. An entry of a log is bound to the log, not to its position. What was not encrypted with these keys for
    this key raises BackendError. A value has 32 bytes less than the other backend takes.

    Args:
        backend: The other backend.
        keys: Secrets of at least 32 bytes, the same in all processes: the first encrypts, all decrypt. To change them, first add
            the new one at the end everywhere, then put it first, then remove the old one when its values have expired.

    Raises:
        DefinitionError: A key is too short, or there is none.
    """

    def __init__(self, backend: Backend, keys: Sequence[bytes]) -> None:
        self._backend = backend
        self._ring = KeyRing(keys, b"gemel backend values", name="stored values")
        self._log_ring = KeyRing(keys, b"gemel backend logs", name="logs")

    @property
    def shared(self) -> bool:
        """Whether other processes see what is stored in the other backend."""
        return self._backend.shared

    def publish(self, event: Changed) -> None:
        self._backend.publish(event)

    async def flush(self) -> None:
        await self._backend.flush()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        return self._backend.subscribe(listener)

    async def get(self, key: str) -> bytes | None:
        box = await self._backend.get(key)
        if box is None:
            return None
        return self._decrypt(self._ring, box, key)

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        check_value(value, MAX_VALUE_BYTES - OVERHEAD)
        await self._backend.set(key, self._ring.encrypt(value, check_key(key)), ttl=ttl)

    async def delete(self, key: str) -> bool:
        return await self._backend.delete(key)

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        check_value(value, MAX_VALUE_BYTES - OVERHEAD)
        box = self._ring.encrypt(value, check_key(key))
        while True:  # the same value may be encrypted anew between the two operations
            present = await self._backend.get(key)
            if (None if present is None else self._decrypt(self._ring, present, key)) != expected:
                return False
            if await self._backend.replace(key, present, box, ttl=ttl):
                return True

    async def touch(self, key: str, *, ttl: float) -> bool:
        return await self._backend.touch(key, ttl=ttl)

    async def claim(self, key: str, *, ttl: float) -> bool:
        return await self._backend.claim(key, ttl=ttl)

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
        return self._backend.lease(key, ttl=ttl, wait=wait)

    async def append(
        self, log: str, entries: Sequence[bytes], *, ttl: float, most: int = 1000, after: int | None = None
    ) -> int:
        encoded = check_key(log)
        check_entries(entries, MAX_VALUE_BYTES - OVERHEAD)
        boxes = [self._log_ring.encrypt(entry, encoded) for entry in entries]
        return await self._backend.append(log, boxes, ttl=ttl, most=most, after=after)

    async def read(self, log: str, *, after: int = 0, most: int = 1000) -> list[tuple[int, bytes]]:
        boxes = await self._backend.read(log, after=after, most=most)
        return [(position, self._decrypt(self._log_ring, box, log)) for position, box in boxes]

    async def end_of(self, log: str) -> int:
        return await self._backend.end_of(log)

    def watch(self, log: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self._backend.watch(log, wake)

    @staticmethod
    def _decrypt(ring: KeyRing, box: bytes, key: str) -> bytes:
        try:
            return ring.decrypt(box, check_key(key))
        except ValueError as exc:
            raise BackendError(f"The stored value can't be decrypted: {exc}") from None

    async def close(self) -> None:
        """Close the other backend."""
        await self._backend.close()
