"""All pages of one list, within limits."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hinge.client.call_options import CallOptions
from hinge.errors import CallTimeout, InvalidResponse
from hinge.protocol.limits import Limits
from hinge.schema.base import Page

PageT = TypeVar("PageT", bound=Page)

#: Requests one page: its params, the seconds that are left, and what is called with its size in bytes.
RequestPage = Callable[[dict[str, Any], float | None, Callable[[int], None]], Awaitable[Any]]


async def all_pages(request: RequestPage, method: str, limits: Limits, options: CallOptions) -> list[Any]:
    """All pages, bounded in number, bytes and time. Raises InvalidResponse and CallTimeout."""
    pages: list[Any] = []
    params: dict[str, Any] = {}
    seen: set[str] = set()
    bytes_left = limits.reply

    def add_size(size: int) -> None:
        nonlocal bytes_left
        bytes_left -= size
        if bytes_left < 0:
            raise InvalidResponse(
                f"{method}: the pages have more than {limits.reply} bytes together. Raise `limits.reply` to accept them"
            )

    given = options.get("total", limits.call_total)
    total = given if isinstance(given, int | float) else limits.call_total if given is not None else None
    begin = time.monotonic()
    while True:
        left = None if total is None else total - (time.monotonic() - begin)
        if left is not None and left <= 0:
            raise CallTimeout(f"{method}: {len(pages)} pages came within {total:g} seconds, and there are more")
        page = await request(params, left, add_size)
        pages.append(page)
        cursor = page.next_cursor
        if cursor is None:
            return pages
        if cursor in seen or len(seen) >= limits.pages:
            raise InvalidResponse(f"{method}: the pages of the server don't end")
        seen.add(cursor)
        params = {"cursor": cursor}
