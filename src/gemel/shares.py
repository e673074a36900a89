"""Shares of what is bounded: when it is full, whoever holds most gives way, and nobody is refused because of somebody else."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class Shares(Generic[ItemT]):
    """Items by who holds them, in the order in which they were added or used last.

    The limit is the caller's: it asks `giving_way` when it has no room for another item.

    Attributes:
        size: The sizes of all items together.
    """

    def __init__(self) -> None:
        #: The sizes of items, by holder.
        self._items: dict[Hashable, dict[ItemT, int]] = {}
        self._held: dict[Hashable, int] = {}
        #: The holders of so much. Where each item counts as one there are few different numbers: their sum is that of the items.
        self._holders: dict[int, dict[Hashable, None]] = {}
        self._count = 0
        self.size = 0

    def __len__(self) -> int:
        return self._count

    def held(self, holder: Hashable) -> int:
        """Return the sizes of all items of a holder together: their number, unless they were added with sizes."""
        return self._held.get(holder, 0)

    def holders(self) -> Iterable[Hashable]:
        """Return all who hold something."""
        return self._items.keys()

    def oldest_of(self, holder: Hashable) -> ItemT:
        """Return the item that a holder added or used before all others. Raises KeyError for one who holds nothing."""
        return next(iter(self._items[holder]))

    def add(self, holder: Hashable, item: ItemT, size: int = 1) -> None:
        """Add an item, or say that it was used: it is the last one that gives way.

        Args:
            holder: Who holds it.
            item: The item.
            size: How much it counts, 1 or more; always the same for one item.
        """
        items = self._items.setdefault(holder, {})
        if item in items:
            items[item] = items.pop(item)
            return
        items[item] = size
        self._count += 1
        self._change(holder, size)

    def discard(self, holder: Hashable, item: ItemT) -> None:
        """Remove an item, if it is there."""
        items = self._items.get(holder)
        if items is None or item not in items:
            return
        size = items.pop(item)
        self._count -= 1
        if not items:
            del self._items[holder]
        self._change(holder, -size)

    def _change(self, holder: Hashable, change: int) -> None:
        self.size += change
        before = self._held.pop(holder, 0)
        if before:
            del self._holders[before][holder]
            if not self._holders[before]:
                del self._holders[before]
        if after := before + change:
            self._held[holder] = after
            self._holders.setdefault(after, {})[holder] = None

    def giving_way(self, newcomer: Hashable) -> Sequence[ItemT]:
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
