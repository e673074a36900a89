"""The sessions that all processes of a server have stored, counted so that their number is bounded."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import msgspec

from gemel.backends.base import Backend
from gemel.backends.keys import make_key
from gemel.errors import BackendError, Overloaded
from gemel.transports.http.server.sharing.stored_sessions import session_key

#: Values that the register consists of at most, and sessions from which on it has more than one.
_PARTS, _PART = 256, 100
#: Seconds that a part is kept which does not change.
_KEPT = 30 * 86400.0

_encode = msgspec.msgpack.Encoder().encode
_EMPTY = _encode({})


class _SessionEntry(NamedTuple):
    """When a session expires, a hash of its holder, and the process that opened it."""

    expires: int
    holder: bytes
    process: str


_decode = msgspec.msgpack.Decoder(dict[bytes, _SessionEntry]).decode


class SessionRegister:
    """Counts stored sessions. Each has an entry in one of two parts that its digest names.

    An entry says when its session expires unless it is used. That is looked up only when the part is full, so that the use of a
    session changes nothing here. In a part that is still full, whoever holds most of it loses the session with the earliest end.

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

    async def add(
        self, digest: str, holder: Hashable, process: str, end_of: Callable[[str], float]
    ) -> list[tuple[str, str]]:
        """Count a new session.

        Args:
            digest: The session.
            holder: Whose share it takes.
            process: The process that opened it.
            end_of: When a session expires as far as this process knows, in seconds since 1970; 0 for one that it doesn't know.

        Returns:
            The sessions that gave way, which are to be ended, each with the process that opened it.

        Raises:
            BackendError: The backend can't be used.
            Overloaded: The backend is full, or no session may be stored.
        """
        parts, name = self._parts_of(digest), bytes.fromhex(digest)
        held_by = sha256(repr(holder).encode()).digest()[:8]
        gone: list[tuple[str, str]] = []

        async def enter(entries: dict[bytes, _SessionEntry], *, full: bool) -> bool:
            gone.clear()
            if len(entries) >= self._most:
                await self._drop_expired(entries)
            while full and len(entries) >= self._most and entries:
                oldest = _oldest_of_largest(entries, held_by, end_of)
                gone.append((oldest.hex(), entries.pop(oldest).process))
            if len(entries) < self._most:
                entries[name] = _SessionEntry(int(time.time() + self._ttl), held_by, process)
            return name in entries

        for part, full in (*((part, False) for part in parts), (parts[0], True)):
            if await self._change(part, partial(enter, full=full)):
                return gone
        raise Overloaded("no session may be stored")

    async def remove(self, digest: str) -> None:
        """Count a session no longer. Raises BackendError and Overloaded."""
        name = bytes.fromhex(digest)

        async def leave(entries: dict[bytes, _SessionEntry]) -> bool:
            return entries.pop(name, None) is not None

        for part in self._parts_of(digest):
            if await self._change(part, leave):
                return

    def _parts_of(self, digest: str) -> list[str]:
        numbers = dict.fromkeys(int(digest[at : at + 4], 16) % self._parts for at in (0, 4))
        return [make_key("sessions", str(number)) for number in numbers]

    async def _change(self, key: str, change: Callable[[dict[bytes, _SessionEntry]], Awaitable[bool]]) -> bool:
        """Change a part, again if another process has changed it meanwhile. Returns what `change` returned."""
        while True:
            box = await self._backend.get(key)
            try:
                entries = {} if box is None else _decode(box)
            except msgspec.MsgspecError as exc:
                raise BackendError(f"The register of sessions can't be read: {exc}") from None
            done = await change(entries)
            changed = _encode(entries)
            if changed == (box or _EMPTY) or await self._backend.replace(key, box, changed, ttl=_KEPT):
                return done

    async def _drop_expired(self, entries: dict[bytes, _SessionEntry]) -> None:
        """Remove the entries whose sessions are gone; those of sessions that were used are good for another while."""
        now = time.time()
        due = [name for name, entry in entries.items() if entry.expires <= now]
        present = await asyncio.gather(*(self._backend.get(session_key(name.hex())) for name in due))
        for name, box in zip(due, present, strict=True):
            entry = entries.pop(name)
            if box is not None:
                entries[name] = entry._replace(expires=int(now + self._ttl))


def _oldest_of_largest(
    entries: Mapping[bytes, _SessionEntry], newcomer: bytes, end_of: Callable[[str], float]
) -> bytes:
    """The entry that ends first of whoever holds most, of the newcomer if nobody holds more."""
    held = Counter(entry.holder for entry in entries.values())
    most = max(held.values())
    largest = newcomer if held[newcomer] == most else next(holder for holder, count in held.items() if count == most)
    theirs = (name for name, entry in entries.items() if entry.holder == largest)
    return min(theirs, key=lambda name: max(entries[name].expires, end_of(name.hex())))
