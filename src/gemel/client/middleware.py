"""The kinds of client middleware; what it receives is in `methods.py`."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from gemel.client.methods import CallNext, ClientContext, ClientMethods
from gemel.errors import Difference

ClientMiddleware: TypeAlias = Callable[[ClientContext, CallNext], Awaitable[Any]]


@runtime_checkable
class ConnectionMiddleware(Protocol):
    """Middleware that is also called when a connection was opened."""

    async def __call__(self, ctx: ClientContext, call_next: CallNext, /) -> Any:
        """Handle a request or notification, like any middleware.

        Args:
            ctx: The message.
            call_next: Passes it on.

        Returns:
            The result.
        """
        ...

    async def connected(self, client: ClientMethods, /) -> None:
        """Inspect what the server declares, in `client.discovery`.

        Called after each negotiation, also after a reconnection, before a request is sent. An error raised here ends
        `Client.connect()`, which closes the client and raises it.

        Args:
            client: The client that is connected now.
        """
        ...


class _Contract(Protocol):
    """A `gemel.Contract`; this package does not import the add-on that defines it."""

    @property
    def instructions(self) -> str | None: ...
    def seen_in(self, revision: str, /) -> _Contract: ...


#: The path of a lock file, or a contract; what happens if the server differs; what is called with the `Difference`s.
Lock: TypeAlias = str | os.PathLike[str] | _Contract
Drift: TypeAlias = Literal["refuse", "warn"]
OnDrift: TypeAlias = Callable[[Sequence[Difference]], object]
