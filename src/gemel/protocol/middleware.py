"""One shape for middleware on both sides: `(ctx, call_next) -> result`. Knows nothing of what a context is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from gemel.errors import DefinitionError
from gemel.options import is_function, shown

ContextT = TypeVar("ContextT")
MiddlewareT = TypeVar("MiddlewareT", bound=Callable[..., Any])


@runtime_checkable
class PlacedMiddleware(Protocol):
    """Middleware that has to know which server or client it is around: another object runs in each place."""

    def placed_in(self, owner: Any, name: str | None = None, /) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return the middleware for one place.

        Args:
            owner: The server or client.
            name: The name of the server in a client group.
        """
        ...


class NamedMiddleware:
    """A `PlacedMiddleware` with the name that the server of its client has in a group."""

    def __init__(self, middleware: PlacedMiddleware, name: str) -> None:
        self._middleware = middleware
        self._name = name

    def placed_in(self, owner: Any, name: str | None = None, /) -> Callable[[Any, Any], Awaitable[Any]]:
        """See `PlacedMiddleware`."""
        return self._middleware.placed_in(owner, self._name)

    def __call__(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Awaitable[Any]:
        """Raise DefinitionError: what runs is the middleware for its place."""
        raise DefinitionError(f"{shown(self._middleware)} is not added to a client")


def placed(middleware: Any, owner: Any) -> Any:
    """What runs for a middleware around this server or client: itself, or what it makes for the place."""
    return middleware.placed_in(owner) if isinstance(middleware, PlacedMiddleware) else middleware


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
