"""One shape for middleware on both sides: `(ctx, call_next) -> result`. Knows nothing of what a context is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from gemel.errors import DefinitionError
from gemel.options import is_function, shown

ContextT = TypeVar("ContextT")
MiddlewareT = TypeVar("MiddlewareT", bound=Callable[..., Any])


def checked(middleware: MiddlewareT) -> MiddlewareT:
    """The same middleware. Raises DefinitionError for what can't be called with these arguments."""
    if isinstance(middleware, type):
        raise DefinitionError(f"{middleware.__name__} is a class, not middleware: write {middleware.__name__}(…)")
    if not is_function(middleware, 2):
        raise DefinitionError(f"{shown(middleware)} is not middleware: write `async def middleware(ctx, call_next)`")
    return middleware


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
