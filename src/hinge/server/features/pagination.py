"""Pagination of lists, with opaque cursors that stay valid when the list changes.

https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/pagination
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, TypeVar

from hinge.errors import InvalidParams

ItemT = TypeVar("ItemT")


def paginate(items: Sequence[ItemT], cursor: str | None, size: int | None) -> tuple[list[ItemT], str | None]:
    """The page at `cursor` and the cursor of the next one; all items if `size` is None.

    A cursor holds the last item sent and its position, which is used if that item is gone. Raises InvalidParams.
    """
    if cursor is None:
        start = 0
    else:
        name, position = _read(cursor)
        start = next((i + 1 for i, item in enumerate(items) if _key(item) == name), min(position, len(items)))
    if size is None or start + size >= len(items):
        return list(items[start:]), None
    page = list(items[start : start + size])
    return page, _write(_key(page[-1]), start + size)


def _key(item: Any) -> str:
    return str(getattr(item, "uri", None) or getattr(item, "uri_template", None) or item.name)


def _write(name: str, position: int) -> str:
    return base64.urlsafe_b64encode(f"{position}:{name}".encode()).decode()


def _read(cursor: str) -> tuple[str, int]:
    try:
        position, colon, name = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode().partition(":")
        if colon and position.isascii() and position.isdigit():
            return name, int(position)
    except ValueError:
        pass
    raise InvalidParams("Invalid cursor: use the nextCursor of an earlier page, unchanged")
