"""Encrypting `requestState`: what a handler must remember travels through the client, which can't read or change it.

AES-256-GCM with a list of keys: the first encrypts, all decrypt. So keys can be changed while calls are under way, and several
processes can share them. See basic/patterns/mrtr of the specification, "Server Requirements".
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Sequence

import msgspec

from hinge.errors import DefinitionError, InvalidParams

_NONCE = 12
_FINGERPRINT = 4
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
        if any(len(key) < 32 for key in keys):
            raise DefinitionError("A key for requestState needs at least 32 bytes: use secrets.token_bytes(32)")
        self.shared = bool(keys)
        self._ttl = ttl
        self._once = once
        self._secrets = [_hash(b"hinge request state" + key) for key in keys] or [os.urandom(32)]
        self._used: dict[bytes, float] = {}
        self._check_at = REMEMBERED

    def encode(self, payload: bytes, bound: bytes) -> str:
        """The state as text. `bound` is whatever must be the same when it comes back."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._secrets[0]
        nonce = os.urandom(_NONCE)
        inner = msgspec.msgpack.encode(_Plain(time.time() + self._ttl, bound, payload))
        box = _fingerprint(key) + nonce + AESGCM(key).encrypt(nonce, inner, None)
        return base64.urlsafe_b64encode(box).decode().rstrip("=")

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
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            box = base64.b64decode(state + "=" * (-len(state) % 4), altchars=b"-_", validate=True)
            mark, nonce = box[:_FINGERPRINT], box[_FINGERPRINT : _FINGERPRINT + _NONCE]
            for key in self._secrets:
                if _fingerprint(key) == mark:
                    inner = AESGCM(key).decrypt(nonce, box[_FINGERPRINT + _NONCE :], None)
                    return nonce, _decoder.decode(inner)
        except (ValueError, InvalidTag, msgspec.MsgspecError):
            pass
        raise InvalidParams("Invalid requestState: it was not made here, or was changed")

    def _consume(self, nonce: bytes, expires: float, now: float) -> None:
        if nonce in self._used:
            raise InvalidParams("Invalid requestState: it was used already")
        if len(self._used) >= self._check_at:
            self._used = {key: end for key, end in self._used.items() if end >= now}
            self._check_at = max(REMEMBERED, 2 * len(self._used))
        self._used[nonce] = expires


def _fingerprint(key: bytes) -> bytes:
    return _hash(b"fingerprint" + key)[:_FINGERPRINT]


def _hash(data: bytes) -> bytes:
    from hashlib import sha256

    return sha256(data).digest()
