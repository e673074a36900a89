"""One shape for middleware on both sides: `(ctx, call_next) -> result`. Knows nothing of what a context is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

ContextT = TypeVar("ContextT")


def compose(
    chain: Sequence[Callable[[ContextT, Callable[[ContextT], Awaitable[Any]]], Awaitable[Any]]],
    inner: Callable[[ContextT], Awaitable[Any]],
) -> Callable[[ContextT], Awaitable[Any]]:
    """One callable out of a list, outermost first. Built when the list changes, never per call."""
    for one in reversed(chain):
        inner = _wrap(one, inner)
    return inner


def _wrap(
    middleware: Callable[[ContextT, Callable[[ContextT], Awaitable[Any]]], Awaitable[Any]],
    call_next: Callable[[ContextT], Awaitable[Any]],
) -> Callable[[ContextT], Awaitable[Any]]:
    def step(ctx: ContextT) -> Awaitable[Any]:
        return middleware(ctx, call_next)

    return step
