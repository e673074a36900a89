"""Authenticated encryption with keys that can be changed: AES-256-GCM, by the first key of a ring; all decrypt.

What is encrypted has the fingerprint of its key (4 bytes), a random nonce (12 bytes), and the ciphertext with its tag (16 bytes).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from gemel.errors import DefinitionError

_FINGERPRINT = 4
_NONCE = 12
#: How many bytes encryption adds.
OVERHEAD = _FINGERPRINT + _NONCE + 16
KEY_BYTES = 32


class KeyRing:
    """Encrypts and decrypts with a list of keys.

    Args:
        keys: Secrets of at least 32 bytes, the current one first.
        purpose: What they are used for: another purpose makes other keys of the same secrets.
        name: What the keys are for, in the message of an error.

    Raises:
        DefinitionError: A key is too short, or there is none.
    """

    def __init__(self, keys: Sequence[bytes], purpose: bytes, *, name: str) -> None:
        if not keys or any(len(key) < KEY_BYTES for key in keys):
            raise DefinitionError(f"A key for {name} needs at least 32 bytes: use secrets.token_bytes(32)")
        self._keys = [_hash(purpose + key) for key in keys]

    def __repr__(self) -> str:
        """The number of keys."""
        return f"<KeyRing with {len(self._keys)} keys>"

    def encrypt(self, plain: bytes, bound: bytes | None = None) -> bytes:
        """Encrypt with the first key.

        Args:
            plain: What is encrypted.
            bound: What must be the same for decryption; it is not part of the result.

        Returns:
            The result, `OVERHEAD` bytes longer.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._keys[0]
        nonce = os.urandom(_NONCE)
        return _fingerprint(key) + nonce + AESGCM(key).encrypt(nonce, plain, bound)

    def decrypt(self, box: bytes, bound: bytes | None = None) -> bytes:
        """Decrypt what any of the keys encrypted.

        Args:
            box: The result of `encrypt`.
            bound: As for `encrypt`.

        Returns:
            What was encrypted.

        Raises:
            ValueError: It was changed, is bound to something else, or no key fits.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        mark, nonce, ciphertext = box[:_FINGERPRINT], self.nonce(box), box[_FINGERPRINT + _NONCE :]
        for key in self._keys:
            if _fingerprint(key) == mark:
                with suppress(InvalidTag):
                    return AESGCM(key).decrypt(nonce, ciphertext, bound)
        raise ValueError("it was not encrypted with these keys, or was changed")

    def knows(self, box: bytes) -> bool:
        """Whether a key of the ring may have encrypted something.

        Args:
            box: The result of `encrypt`.
        """
        return any(_fingerprint(key) == box[:_FINGERPRINT] for key in self._keys)

    @staticmethod
    def nonce(box: bytes) -> bytes:
        """The nonce of what was encrypted, which no other result has."""
        return box[_FINGERPRINT : _FINGERPRINT + _NONCE]


def _fingerprint(key: bytes) -> bytes:
    return _hash(b"fingerprint" + key)[:_FINGERPRINT]


def _hash(data: bytes) -> bytes:
    from hashlib import sha256

    return sha256(data).digest()
