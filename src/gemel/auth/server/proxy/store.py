"""What the proxy remembers: records in a backend that replicas share, encrypted, and sealed texts that clients carry.

What is encrypted is bound to its purpose or place, so that nothing can stand in for something else.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec

from gemel.auth.server.backing import Backing
from gemel.backends.keys import make_key
from gemel.encryption import KeyRing
from gemel.protocol.records import Record

#: Characters of a sealed text; a longer one is not looked at.
MAX_SEALED: Final = 16 * 1024
#: Seconds after which the lease of a replica that died ends.
_LEASE_SECONDS: Final = 30.0
#: Characters of a signature that only tells one's own names from others.
_SIGNATURE: Final = 11
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
        self._secret = hmac.digest(keys[0], b"derive " + purpose, "sha256")

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

    def derive(self, name: str) -> str:
        """A text that only holders of the current key can compute from a name."""
        return _to_text(hmac.digest(self._secret, name.encode(), "sha256"))


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

    def _key(self, kind: str, name: str) -> str:
        return make_key("oauth-proxy", self._namespace, kind, digest(name))

    @property
    def shared(self) -> bool:
        """Whether other processes have the same records."""
        return self._backing.backend.shared

    def signed(self, name: str) -> str:
        """A name of which every process with the current key can tell that one of them made it."""
        return name + self._vault.derive(f"name {name}")[:_SIGNATURE]

    def has_signed(self, name: str) -> bool:
        """Whether `signed` made a name."""
        return hmac.compare_digest(self.signed(name[:-_SIGNATURE]).encode(), name.encode())

    async def get(self, kind: str, name: str, record: type[RecordT]) -> RecordT | None:
        """The record; None if there is none, it has expired, or can't be decrypted."""
        key = self._key(kind, name)
        box = await self._backing.backend.get(key)
        return None if box is None else self._vault.decrypt(box, record, key)

    async def set(self, kind: str, name: str, record: Record, ttl: float) -> None:
        """ProxyStore a record for so many seconds."""
        key = self._key(kind, name)
        await self._backing.backend.set(key, self._vault.encrypt(record, key), ttl=ttl)

    async def update(
        self,
        kind: str,
        name: str,
        record: type[RecordT],
        edit: Callable[[RecordT | None], tuple[RecordT, float] | None],
    ) -> RecordT | None:
        """Change a record as one atomic step among all replicas.

        Args:
            kind: What it is.
            name: Its name.
            record: Its type.
            edit: Gets the present record, or None, and returns the new one with the seconds that it lasts; None to leave it as
                it is. It is called again if another replica was faster.

        Returns:
            The record as it is stored.
        """
        key, backend = self._key(kind, name), self._backing.backend
        while True:
            box = await backend.get(key)
            present = None if box is None else self._vault.decrypt(box, record, key)
            changed = edit(present)
            if changed is None:
                return present
            made, ttl = changed
            if await backend.replace(key, box, self._vault.encrypt(made, key), ttl=ttl):
                return made

    async def delete(self, kind: str, name: str) -> None:
        """Remove a record, if it is there."""
        await self._backing.backend.delete(self._key(kind, name))

    async def claim(self, kind: str, name: str, ttl: float) -> bool:
        """Whether the caller is the first among all replicas to use this name."""
        return await self._backing.backend.claim(self._key(kind, name), ttl=ttl)

    def lease(self, kind: str, name: str) -> AbstractAsyncContextManager[Any]:
        """Be the only one who changes a record."""
        return self._backing.backend.lease(self._key(kind, name), ttl=_LEASE_SECONDS, wait=_LEASE_SECONDS)


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
