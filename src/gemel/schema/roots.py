"""Roots: the folders that a client shares with a server."""

from __future__ import annotations

from typing import Any

import msgspec

from gemel.schema.base import Model, Result


class Root(Model, kw_only=True):
    """One root.

    Args:
        uri: A `file://` URI.
        name: A name for people.
        meta: `_meta` of the root.
    """

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ListRootsResult(Result, kw_only=True):
    """Result of `roots/list`."""

    roots: list[Root]
