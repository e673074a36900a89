"""Pagination of lists, with opaque cursors that stay valid when the list changes.

https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/pagination
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, TypeVar

from gemel.errors import InvalidParams

ItemT = TypeVar("ItemT")

_PREFIX = "after:"


def paginate(items: Sequence[ItemT], cursor: str | None, size: int | None) -> tuple[list[ItemT], str | None]:
    """The page at `cursor` and the cursor of the next one; all items if `size` is None.

    A list of several pages is sorted by the items' names or URIs, and a cursor holds that of the last item sent. So it needs
    no position: whatever is added or removed meanwhile, no other item is left out or sent twice. Raises InvalidParams.
    """
    if cursor is None and (size is None or len(items) <= size):
        return list(items), None
    remaining = sorted(items, key=item_key)
    if cursor is not None:
        last = _read(cursor)
        remaining = [item for item in remaining if item_key(item) > last]
    if size is None or len(remaining) <= size:
        return remaining, None
    page = remaining[:size]
    return page, _write(item_key(page[-1]))


def item_key(item: Any) -> str:
    """What identifies an item of a list, a struct or a JSON object: its URI, URI template or name."""
    if isinstance(item, dict):
        return str(item.get("uri") or item.get("uriTemplate") or item.get("name"))
    return str(getattr(item, "uri", None) or getattr(item, "uri_template", None) or item.name)


def _write(name: str) -> str:
    return base64.urlsafe_b64encode(f"{_PREFIX}{name}".encode()).decode()


def _read(cursor: str) -> str:
    try:
        text = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
        if text.startswith(_PREFIX):
            return text.removeprefix(_PREFIX)
    except ValueError:
        pass
    raise InvalidParams("Invalid cursor: use the nextCursor of an earlier page, unchanged")
