"""Dress a value of the newest shape for the revision of the peer."""

from __future__ import annotations

from typing import Any


def shape(value: Any, revision: str) -> Any:
    """The value as a peer of this revision knows it."""
    return value
