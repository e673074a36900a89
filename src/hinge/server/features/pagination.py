"""Pages of a list, with opaque cursors that survive changes of the list (PAGE-01…PAGE-06)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, TypeVar

from hinge.errors import InvalidParams

ItemT = TypeVar("ItemT")


def paginate(items: Sequence[ItemT], cursor: str | None, size: int | None) -> tuple[list[ItemT], str | None]:
    """The page that `cursor` names and the cursor of the next one; all items when `size` is None.

    A cursor names the last item given out and its place: when that item is gone the place serves. Raises InvalidParams.
    """
    if cursor is None:
        start = 0
    else:
        name, place = _read(cursor)
        start = next((i + 1 for i, item in enumerate(items) if _key(item) == name), min(place, len(items)))
    if size is None or start + size >= len(items):
        return list(items[start:]), None
    page = list(items[start : start + size])
    return page, _write(_key(page[-1]), start + size)


def _key(item: Any) -> str:
    return str(getattr(item, "uri", None) or getattr(item, "uri_template", None) or item.name)


def _write(name: str, place: int) -> str:
    return base64.urlsafe_b64encode(f"{place}:{name}".encode()).decode()


def _read(cursor: str) -> tuple[str, int]:
    try:
        place, colon, name = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode().partition(":")
        if colon and place.isascii() and place.isdigit():
            return name, int(place)
    except ValueError:
        pass
    raise InvalidParams("Invalid cursor: use the nextCursor of an earlier page, unchanged")
