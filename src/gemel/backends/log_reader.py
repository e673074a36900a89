"""Reads a log in order, even when its store loses the newest entries and gives their positions to others."""

from __future__ import annotations

from hashlib import blake2b
from itertools import takewhile
from typing import Literal, NamedTuple, TypeAlias

from gemel.backends.base import Backend

#: Entries whose marks are remembered. A store that loses more of the newest ones has the rest read a second time.
_REMEMBERED = 100

Missing: TypeAlias = Literal["", "dropped", "lost"]


class LogPlace(NamedTuple):
    """A place in a log.

    Args:
        position: That of the last entry that was read; 0 at the beginning.
        mark: Distinguishes this entry from another one that has the same position later.
    """

    position: int = 0
    mark: str = ""


#: Before the first entry.
BEGINNING = LogPlace()


class LogReader:
    """Reads one log from a place on.

    A store that comes back without its newest writes gives the positions of the lost entries to the next ones. So the last entry is
    read once more with those that follow it. If it has changed, reading goes on behind the newest entry that is still there.

    Args:
        backend: Has the log.
        log: Its key.
        place: Up to where it was read before.

    Attributes:
        missing: What the last call of `read` noticed: entries that were not read were dropped, since the log had too many, or the
            store has lost some of its entries.
    """

    def __init__(self, backend: Backend, log: str, place: LogPlace = BEGINNING) -> None:
        self._backend = backend
        self._log = log
        #: The marks of the entries that were read last, by position.
        self._known: dict[int, str] = {place.position: place.mark} if place.position else {}
        self.missing: Missing = ""

    @property
    def place(self) -> LogPlace:
        """The place of the last entry that was read."""
        return LogPlace(*next(reversed(self._known.items()))) if self._known else BEGINNING

    async def read(self, *, most: int = 100) -> list[tuple[LogPlace, bytes]]:
        """Read the next entries.

        Args:
            most: How many.

        Returns:
            Each entry with its place; none at the end of the log.

        Raises:
            BackendError: The store can't be reached, or is damaged.
        """
        self.missing = ""
        last = self.place.position
        entries = await self._read(max(last - 1, 0), most + 1)
        if last and (not entries or entries[0][0].position <= last):
            if entries and self._is_known(entries[0]):
                del entries[0]
            else:
                self.missing = "lost"
                entries = await self._read_again(most)
        elif entries and entries[0][0].position > last + 1:
            self.missing = "dropped"
        self._known.update(place for place, _ in entries)
        for position in list(self._known)[:-_REMEMBERED]:
            del self._known[position]
        return entries

    async def _read_again(self, most: int) -> list[tuple[LogPlace, bytes]]:
        """Return the entries behind those that are known and still there."""
        entries = await self._read(next(iter(self._known)) - 1, _REMEMBERED + most)
        if not entries or not self._is_known(entries[0]):
            entries = await self._read(0, most)
        kept = list(takewhile(self._is_known, entries))
        self._known = dict(place for place, _ in kept)
        return entries[len(kept) :]

    async def _read(self, after: int, most: int) -> list[tuple[LogPlace, bytes]]:
        entries = await self._backend.read(self._log, after=after, most=most)
        return [(LogPlace(position, _mark_of(entry)), entry) for position, entry in entries]

    def _is_known(self, item: tuple[LogPlace, bytes]) -> bool:
        place, _ = item
        return self._known.get(place.position) == place.mark


def _mark_of(entry: bytes) -> str:
    return blake2b(entry, digest_size=8).hexdigest()
