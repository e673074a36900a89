"""Encrypting `requestState`: what a handler must remember travels through the client, which can't read or change it.

The keys of a `KeyRing` can be changed while calls are under way, and several processes can share them. See
basic/patterns/mrtr of the specification, "Server Requirements".
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Sequence

import msgspec

from hinge.encryption import KEY_BYTES, KeyRing
from hinge.errors import InvalidParams

#: So many used states are remembered before those that have expired are looked for.
REMEMBERED = 100_000


class _Plain(msgspec.Struct, array_like=True):
    """What is encrypted: when it expires, what it is bound to, and the payload."""

    expires: float
    bound: bytes
    payload: bytes


_decoder = msgspec.msgpack.Decoder(_Plain)


class RequestStateCodec:
    """Encrypts and decrypts states. Without keys it makes one of its own, which only this process knows.

    Args:
        keys: Secrets of at least 32 bytes, the current one first.
        ttl: Seconds until a state expires.
        once: Whether a state is accepted one time only, in this process.

    Raises:
        DefinitionError: A key is too short.
    """

    def __init__(self, keys: Sequence[bytes], *, ttl: float, once: bool) -> None:
        self.shared = bool(keys)
        self._ttl = ttl
        self._once = once
        self._ring = KeyRing(keys or [os.urandom(KEY_BYTES)], b"hinge request state", name="requestState")
        self._used: dict[bytes, float] = {}
        self._check_at = REMEMBERED

    def encode(self, payload: bytes, bound: bytes) -> str:
        """The state as text. `bound` is whatever must be the same when it comes back."""
        inner = msgspec.msgpack.encode(_Plain(time.time() + self._ttl, bound, payload))
        return base64.urlsafe_b64encode(self._ring.encrypt(inner)).decode().rstrip("=")

    def decode(self, state: str, bound: bytes) -> bytes:
        """The payload. Raises InvalidParams for a state that is foreign, changed, bound to something else, expired or used."""
        from hmac import compare_digest

        nonce, inner = self._decrypt(state)
        if not compare_digest(inner.bound, bound):
            raise InvalidParams("Invalid requestState: it belongs to another request")
        now = time.time()
        if inner.expires < now:
            raise InvalidParams("Invalid requestState: it has expired, start the call again")
        if self._once:
            self._consume(nonce, inner.expires, now)
        return inner.payload

    def _decrypt(self, state: str) -> tuple[bytes, _Plain]:
        try:
            box = base64.b64decode(state + "=" * (-len(state) % 4), altchars=b"-_", validate=True)
            return self._ring.nonce(box), _decoder.decode(self._ring.decrypt(box))
        except (ValueError, msgspec.MsgspecError):
            raise InvalidParams("Invalid requestState: it was not made here, or was changed") from None

    def _consume(self, nonce: bytes, expires: float, now: float) -> None:
        if nonce in self._used:
            raise InvalidParams("Invalid requestState: it was used already")
        if len(self._used) >= self._check_at:
            self._used = {key: end for key, end in self._used.items() if end >= now}
            self._check_at = max(REMEMBERED, 2 * len(self._used))
        self._used[nonce] = expires
