"""All pages of one list: when they end, and what they may cost together. Must not know what is listed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hinge.client.requests import CallOptions
from hinge.errors import CallTimeout, InvalidResponse
from hinge.protocol.limits import Limits
from hinge.schema.base import Page

PageT = TypeVar("PageT", bound=Page)


class _Weight:
    """What the pages of one list weigh together, in bytes."""

    def __init__(self, method: str, most: int) -> None:
        self._method = method
        self._left = self._most = most

    def add(self, size: int) -> None:
        """One more. Raises InvalidResponse when it is too much."""
        self._left -= size
        if self._left < 0:
            raise InvalidResponse(
                f"{self._method}: the pages have more than {self._most} bytes together. Raise `limits.reply` to take them"
            )


async def all_pages(
    request: Callable[..., Awaitable[Any]], method: str, kind: type[PageT], limits: Limits, options: CallOptions
) -> list[PageT]:
    """All pages of a list, bounded in number, bytes and time (PAGE-02…PAGE-04).

    `total` is for all of them, `idle` for each. Raises InvalidResponse and CallTimeout.
    """
    pages: list[PageT] = []
    params: dict[str, Any] = {}
    seen: set[str] = set()
    weight = _Weight(method, limits.reply)
    given = options.get("total", limits.call_total)
    total = given if isinstance(given, int | float) else limits.call_total if given is not None else None
    begin = time.monotonic()
    while True:
        left = None if total is None else total - (time.monotonic() - begin)
        if left is not None and left <= 0:
            raise CallTimeout(f"{method}: {len(pages)} pages came within {total:g} seconds, and more were to come")
        page = await request(method, params, **{**options, "total": left}, result=kind, weigh=weight.add)
        pages.append(page)
        cursor = page.next_cursor
        if cursor is None:
            return pages
        if cursor in seen or len(seen) >= limits.pages:
            raise InvalidResponse(f"{method}: the server's pages don't end")
        seen.add(cursor)
        params = {"cursor": cursor}
