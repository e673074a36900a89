"""The keys of request state that all processes of a server find in its backend.

The first process that needs them makes them. Each day one of the processes adds a new key. It is used some seconds later, when
all others can read it, and the earlier one is removed when all states that it encrypted have expired.
"""

from __future__ import annotations

import os
import time

import msgspec

from gemel.backends.base import Backend, store_refusal
from gemel.backends.keys import make_key
from gemel.encryption import KEY_BYTES, KeyRing
from gemel.errors import BackendError, Overloaded

#: Seconds after which a new key is added.
ROTATION = 86_400.0
#: Seconds after which a process that encrypts reads the keys again.
REREAD = 600.0
#: Seconds after which a key is used, and between two readings for states that no key fits: strangers can send many of those.
ACTIVE_AFTER, PAUSE = 10.0, 1.0
_FORMAT = 1


class _Key(msgspec.Struct, array_like=True):
    made: float
    secret: bytes


class _StoredKeys(msgspec.Struct, array_like=True):
    """The value in the backend: the version of its format, and the keys, the newest one first."""

    format: int
    keys: list[_Key]


_decoder = msgspec.msgpack.Decoder(_StoredKeys)


class SharedKeys:
    """The keys of one server.

    Args:
        backend: Where they are.
        purpose: What they are used for.
        ttl: Seconds until what is encrypted expires.
    """

    def __init__(self, backend: Backend, purpose: bytes, ttl: float) -> None:
        self._backend = backend
        self._key = make_key("request-state", "keys")
        self._purpose = purpose
        self._ttl = ttl
        self._ring: KeyRing | None = None
        self._read_at = 0.0

    async def ring(self, box: bytes | None = None) -> KeyRing:
        """Return the keys. Touches the backend only now and then.

        Args:
            box: What is to be decrypted; None to encrypt.

        Raises:
            Overloaded: There are no keys yet, and the backend can't be used.
        """
        age = time.monotonic() - self._read_at
        ring = self._ring
        if ring is not None and (age < REREAD if box is None else age < PAUSE or ring.knows(box)):
            return ring
        try:
            ring = self._ring = await self._read()
        except (BackendError, Overloaded) as exc:
            if ring is None or box is not None:
                raise store_refusal("The keys of request state can't be read", exc) from exc
        self._read_at = time.monotonic()
        return ring

    async def _read(self) -> KeyRing:
        while True:
            text = await self._backend.get(self._key)
            keys = [] if text is None else _decode(text)
            now = time.time()
            if not keys or now - keys[0].made > ROTATION:
                # A key has been out of use for all since its successor became active, and they read that.
                lasts = ACTIVE_AFTER + REREAD + self._ttl + 60
                older = [key for key, newer in zip(keys[1:], keys, strict=False) if now - newer.made < lasts]
                keys = [_Key(now, os.urandom(KEY_BYTES)), *keys[:1], *older]
                stored = msgspec.msgpack.encode(_StoredKeys(_FORMAT, keys))
                if not await self._backend.replace(self._key, text, stored):
                    continue  # another process was faster
            active = next((key for key in keys if now - key.made >= ACTIVE_AFTER), keys[-1])
            secrets = [active.secret, *(key.secret for key in keys if key is not active)]
            return KeyRing(secrets, self._purpose, name="requestState")


def _decode(text: bytes) -> list[_Key]:
    try:
        stored = _decoder.decode(text)
    except msgspec.MsgspecError:
        stored = None
    if stored is None or stored.format != _FORMAT:
        raise BackendError("the keys in the backend are those of another version of Gemel: give state_keys=[…]")
    return stored.keys
