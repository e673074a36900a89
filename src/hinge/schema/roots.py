"""Roots: the folders that a client lets a server know (ROOT-01…ROOT-07)."""

from __future__ import annotations

from typing import Any

import msgspec

from hinge.schema.base import Model, Result


class Root(Model, kw_only=True):
    """One root, a `file://` URI."""

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ListRootsResult(Result, kw_only=True):
    """The answer to `roots/list`."""

    roots: list[Root]
