"""The sessions that all processes of a server have stored, counted so that their number is bounded."""

from __future__ import annotations

import asyncio
import time

import msgspec

from gemel.backends.base import Backend
from gemel.backends.keys import make_key
from gemel.errors import BackendError
from gemel.transports.http.server.sharing.records import session_key

#: Values that the register consists of at most, and sessions from which on it has more than one.
_PARTS, _PART = 256, 100
#: Seconds that a part is kept which does not change.
_KEPT = 30 * 86400.0

_encode = msgspec.msgpack.Encoder().encode
_EMPTY = _encode({})
_decode = msgspec.msgpack.Decoder(dict[bytes, int]).decode


class SessionRegister:
    """Counts stored sessions. Each has an entry in one of two parts that its digest names.

    An entry says when its session expires unless it is used. That is looked up only when the part is full, so that the use of a
    session changes nothing here.

    Args:
        backend: Has the parts.
        most: Sessions in all parts.
        ttl: Seconds that a session is kept without use.
    """

    def __init__(self, backend: Backend, most: int, ttl: float) -> None:
        self._backend = backend
        self._parts = max(1, min(_PARTS, most // _PART))
        self._most = most // self._parts
        self._ttl = ttl

    async def add(self, digest: str) -> bool:
        """Count a new session. Returns False if there are too many. Raises BackendError and Overloaded."""
        return await self._change_first(digest, add=True)

    async def remove(self, digest: str) -> None:
        """Count a session no longer. Raises BackendError and Overloaded."""
        await self._change_first(digest, add=False)

    async def _change_first(self, digest: str, *, add: bool) -> bool:
        """Change the first part of the two where that is possible."""
        for part in dict.fromkeys(int(digest[at : at + 4], 16) % self._parts for at in (0, 4)):
            if await self._change(make_key("sessions", str(part)), bytes.fromhex(digest), add=add):
                return True
        return False

    async def _change(self, key: str, name: bytes, *, add: bool) -> bool:
        """Add or remove an entry of a part. Returns False if there is no room, or no such entry."""
        while True:
            box = await self._backend.get(key)
            try:
                entries = {} if box is None else _decode(box)
            except msgspec.MsgspecError as exc:
                raise BackendError(f"The register of sessions can't be read: {exc}") from None
            if add and len(entries) >= self._most:
                await self._drop_expired(entries)
            possible = len(entries) < self._most if add else name in entries
            if possible and add:
                entries[name] = int(time.time() + self._ttl)
            elif possible:
                del entries[name]
            changed = _encode(entries)
            if changed == (box or _EMPTY) or await self._backend.replace(key, box, changed, ttl=_KEPT):
                return possible

    async def _drop_expired(self, entries: dict[bytes, int]) -> None:
        """Remove the entries whose sessions are gone; those of sessions that were used are good for another while."""
        now = time.time()
        due = [name for name, expires in entries.items() if expires <= now]
        present = await asyncio.gather(*(self._backend.get(session_key(name.hex())) for name in due))
        for name, box in zip(due, present, strict=True):
            if box is None:
                del entries[name]
            else:
                entries[name] = int(now + self._ttl)
