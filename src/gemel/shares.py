"""Shares of what is bounded: when it is full, whoever holds most gives way, and nobody is refused because of somebody else."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)


class Shares(Generic[ItemT]):
    """Items by who holds them, in the order in which they were added or used last.

    The limit is the caller's: it asks `giving_way` when it has no room for another item.
    """

    def __init__(self) -> None:
        self._items: dict[Hashable, dict[ItemT, None]] = {}
        #: The holders of so many items. There are few different numbers: their sum is the number of items.
        self._holders: dict[int, dict[Hashable, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def held(self, holder: Hashable) -> int:
        """Return how many items one holds."""
        return len(self._items.get(holder, ()))

    def add(self, holder: Hashable, item: ItemT) -> None:
        """Add an item, or say that it was used: it is the last one that gives way."""
        items = self._items.setdefault(holder, {})
        if item in items:
            del items[item]
            items[item] = None
            return
        items[item] = None
        self._count += 1
        self._moved(holder, len(items) - 1, len(items))

    def discard(self, holder: Hashable, item: ItemT) -> None:
        """Remove an item, if it is there."""
        items = self._items.get(holder)
        if items is None or item not in items:
            return
        del items[item]
        self._count -= 1
        self._moved(holder, len(items) + 1, len(items))
        if not items:
            del self._items[holder]

    def _moved(self, holder: Hashable, before: int, after: int) -> None:
        if before:
            del self._holders[before][holder]
            if not self._holders[before]:
                del self._holders[before]
        if after:
            self._holders.setdefault(after, {})[holder] = None

    def giving_way(self, newcomer: Hashable) -> Iterable[ItemT]:
        """Return the items of the holder that holds most, oldest first: one of them makes room for an item of another holder.

        Args:
            newcomer: Who wants to add an item. If nobody holds more, these are the newcomer's own.

        Returns:
            The items; none if nobody holds any.
        """
        if not self._holders:
            return ()
        largest = self._holders[max(self._holders)]
        return tuple(self._items[newcomer if newcomer in largest else next(iter(largest))])


@lru_cache(maxsize=1024)
def address_share(address: str | None) -> str:
    """Return the share that an address has part in.

    Args:
        address: The address of a peer; None if it is unknown.

    Returns:
        IPv4 addresses have a share each, IPv6 addresses one for each network of 64 bits (what one customer gets at least), and all
        that are unknown, or no addresses, the same one: `""`.
    """
    from ipaddress import IPv6Address, ip_address

    try:
        parsed = ip_address((address or "").partition("%")[0])
    except ValueError:
        return ""
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"
