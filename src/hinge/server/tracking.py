"""Whether somebody wants to know which call is running, and how it is noted then; see current.py, which sets it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class Tracking:
    """`serve(ctx, chain)` serves a call and keeps track of it; None while nobody wants to know."""

    __slots__ = ("serve",)

    def __init__(self) -> None:
        self.serve: Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]] | None = None


tracking = Tracking()
