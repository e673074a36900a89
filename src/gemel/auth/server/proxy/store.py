"""What the proxy remembers: records in a backend that replicas share, encrypted, and sealed texts that clients carry.

What is encrypted is bound to its purpose or place, so that nothing can stand in for something else.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec

from gemel.auth.server.backing import Backing
from gemel.backends.keys import make_key
from gemel.backends.memory import MemoryBackend
from gemel.encryption import KeyRing
from gemel.protocol.records import Record

#: Characters of a sealed text; a longer one is not looked at.
MAX_SEALED: Final = 16 * 1024
#: Seconds after which the lease of a replica that died ends.
_LEASE_SECONDS: Final = 30.0
#: Bytes of a signature, and its characters.
_SIGNATURE_BYTES: Final = 16
SIGNATURE_LENGTH: Final = 22
RecordT = TypeVar("RecordT", bound=Record)


def digest(text: str) -> str:
    """The name under which something secret, or chosen by a peer, is stored."""
    return base64.urlsafe_b64encode(sha256(text.encode("utf-8", "surrogatepass")).digest()).decode().rstrip("=")


def random_text() -> str:
    """A text of 43 characters that nobody can guess."""
    return _to_text(os.urandom(32))


class Vault:
    """Seals records with keys that are for one context.

    Args:
        keys: Secrets of at least 32 bytes, the current one first.
        context: What the keys are for: different contexts have different keys.

    Raises:
        DefinitionError: A key is too short, or there is none.
    """

    def __init__(self, keys: Sequence[bytes], context: str) -> None:
        purpose = b"gemel oauth proxy " + sha256(context.encode()).digest()
        self._ring = KeyRing(keys, purpose, name="the OAuth proxy")
        self._secrets = [hmac.digest(key, b"sign " + purpose, "sha256") for key in keys]

    def __repr__(self) -> str:
        return "<Vault>"

    def encrypt(self, record: Record, purpose: str) -> bytes:
        """Encrypt a record so that `decrypt` returns it for the same purpose only."""
        return self._ring.encrypt(msgspec.msgpack.encode(record), purpose.encode())

    def decrypt(self, box: bytes, kind: type[RecordT], purpose: str) -> RecordT | None:
        """The record; None for what was not encrypted here, was changed, or is for another purpose."""
        try:
            return msgspec.msgpack.decode(self._ring.decrypt(box, purpose.encode()), type=kind)
        except (ValueError, msgspec.MsgspecError):  # the latter: a record of another version of this package
            return None

    def seal(self, record: Record, purpose: str) -> str:
        """A record as a text that a client or a browser carries and can neither read nor change."""
        return _to_text(self.encrypt(record, purpose))

    def unseal(self, text: str, kind: type[RecordT], purpose: str) -> RecordT | None:
        """The record in a sealed text; None for any other text."""
        if len(text) > MAX_SEALED or not text.isascii():
            return None
        try:
            box = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        # A box has one spelling: other spellings of it would be other texts, which are cached and revoked apart.
        return self.decrypt(box, kind, purpose) if _to_text(box) == text else None

    def sign(self, text: str) -> str:
        """The signature of a text by the current key, always the same."""
        return _signature(self._secrets[0], text)

    def is_signed(self, text: str, signature: str) -> bool:
        """Whether one of the keys signed a text."""
        given = signature.encode("utf-8", "replace")
        return any(hmac.compare_digest(_signature(secret, text).encode(), given) for secret in self._secrets)


class ProxyStore:
    """Records by kind and name, encrypted in a backend.

    Args:
        backing: Where they are kept.
        vault: Encrypts them.
        namespace: Keeps proxies apart that share a backend.
    """

    def __init__(self, backing: Backing, vault: Vault, namespace: str) -> None:
        self._backing = backing
        self._vault = vault
        self._namespace = digest(namespace)
        #: Claims of one process: they need no room of what they are for.
        self._claims = MemoryBackend()

    def _key(self, kind: str, name: str) -> str:
        return make_key("oauth-proxy", self._namespace, kind, digest(name))

    @property
    def shared(self) -> bool:
        """Whether other processes have the same records."""
        return self._backing.backend.shared

    async def get(self, kind: str, name: str, record: type[RecordT]) -> RecordT | None:
        """The record; None if there is none, it has expired, or can't be decrypted."""
        key = self._key(kind, name)
        box = await self._backing.backend.get(key)
        return None if box is None else self._vault.decrypt(box, record, key)

    async def set(self, kind: str, name: str, record: Record, ttl: float) -> None:
        """Store a record for so many seconds."""
        key = self._key(kind, name)
        await self._backing.backend.set(key, self._vault.encrypt(record, key), ttl=ttl)

    async def add(self, kind: str, name: str, record: Record, ttl: float) -> bool:
        """Store a record for so many seconds, if there is none: whether the caller is the first one among all replicas."""
        key = self._key(kind, name)
        return await self._backing.backend.replace(key, None, self._vault.encrypt(record, key), ttl=ttl)

    async def delete(self, kind: str, name: str) -> None:
        """Remove a record, if it is there."""
        await self._backing.backend.delete(self._key(kind, name))

    async def claim(self, kind: str, name: str, ttl: float) -> bool:
        """Whether the caller is the first among all replicas to use this name."""
        backend = self._backing.backend if self.shared else self._claims
        return await backend.claim(self._key(kind, name), ttl=ttl)

    def lease(self, kind: str, name: str) -> AbstractAsyncContextManager[Any]:
        """Be the only one who changes a record."""
        return self._backing.backend.lease(self._key(kind, name), ttl=_LEASE_SECONDS, wait=_LEASE_SECONDS)


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _signature(secret: bytes, text: str) -> str:
    return _to_text(hmac.digest(secret, text.encode("utf-8", "replace"), "sha256")[:_SIGNATURE_BYTES])
