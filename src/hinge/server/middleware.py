"""Middleware: one shape, `(ctx, call_next) -> result`, around every inbound request and notification (A-020…A-038)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from hinge.server.context import Context

CallNext: TypeAlias = Callable[[Context[Any]], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Context[Any], CallNext], Awaitable[Any]]


def compose(chain: Sequence[Middleware], inner: CallNext) -> CallNext:
    """One callable out of a list, outermost first. Built when the list changes, never per call."""
    for one in reversed(chain):
        inner = _wrap(one, inner)
    return inner


def _wrap(middleware: Middleware, call_next: CallNext) -> CallNext:
    def step(ctx: Context[Any]) -> Awaitable[Any]:
        return middleware(ctx, call_next)

    return step
