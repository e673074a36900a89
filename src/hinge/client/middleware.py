"""Client middleware: `(ctx, call_next) -> result`, for what the client sends and for what the server sends."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import UNSET, UnsetType

from hinge.client.cache import CacheMode
from hinge.client.call_options import OnProgress
from hinge.client.methods import ClientMethods
from hinge.jsonrpc import RequestId
from hinge.protocol.eras.base import EraName


class ClientContext(msgspec.Struct, kw_only=True, eq=False):
    """One request or notification on its way through the middleware of a client.

    Pass a changed copy on with `call_next(ctx.replace(params=…))`. An inbound message has only `client`, `method`, `params`
    and `request_id`.

    Attributes:
        client: The client that sends or received it.
        method: The method, for example "tools/call".
        params: The params without what the client adds to them.
        inbound: Whether the server sent it.
        notification: Whether it is a notification, which has no result.
        request_id: The id of a request of the server; None for other messages.
        meta: Keys for the `_meta` of the params, besides those of the client.
        headers: HTTP headers of this request, which replace those of the client.
        idle: Seconds without a message from the server until the request fails; None for no limit.
        total: Seconds until the request fails; None for no limit.
        on_progress: Called with the progress of the request.
        safe: Whether the request may be repeated when it is unknown whether it ran.
        result: The type that the result is read into; None for a dict.
        cache: How the cache of the client is used.
        on_size: Called with the size of the result in bytes.
    """

    client: ClientMethods
    method: str
    params: dict[str, Any]
    inbound: bool = False
    notification: bool = False
    request_id: RequestId | None = None
    meta: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None
    idle: float | None = None
    total: float | None = None
    on_progress: OnProgress | None = None
    safe: bool = False
    result: Any = None
    cache: CacheMode = "use"
    on_size: Callable[[int], None] | None = None

    @property
    def era(self) -> EraName:
        """The era of the connection."""
        return self.client.era

    @property
    def protocol_version(self) -> str:
        """The protocol revision of the connection."""
        return self.client.protocol_version

    def replace(
        self,
        *,
        method: str | None = None,
        params: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | UnsetType | None = UNSET,
        headers: Mapping[str, str] | UnsetType | None = UNSET,
        idle: float | UnsetType | None = UNSET,
        total: float | UnsetType | None = UNSET,
    ) -> ClientContext:
        """Copy this context with changes.

        Args:
            method: Another method.
            params: Other params.
            meta: Other keys for `_meta`, None for none.
            headers: Other HTTP headers, None for none.
            idle: Another limit for silence in seconds, None for no limit.
            total: Another limit for the request in seconds, None for no limit.

        Returns:
            The changed copy.
        """
        changes: dict[str, Any] = {"meta": meta, "headers": headers, "idle": idle, "total": total}
        changes = {name: value for name, value in changes.items() if value is not UNSET}
        if method is not None:
            changes["method"] = method
        if params is not None:
            changes["params"] = dict(params)
        return msgspec.structs.replace(self, **changes)


CallNext: TypeAlias = Callable[[ClientContext], Awaitable[Any]]
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

    def connected(self, client: ClientMethods, /) -> None:
        """Inspect what the server declares, in `client.discovery`.

        Called after each negotiation, also after a reconnection, before a request is sent. An error raised here ends
        `Client.connect()`, which closes the client and raises it.

        Args:
            client: The client that is connected now.
        """
        ...


class _Contract(Protocol):
    """A `hinge.Contract`; this package does not import the add-on that defines it."""

    def seen_in(self, revision: str, /) -> Any: ...


#: The path of a lock file, or a contract; what happens if the server differs; what is called with the `Difference`s.
Lock: TypeAlias = str | os.PathLike[str] | _Contract
Drift: TypeAlias = Literal["refuse", "warn"]
OnDrift: TypeAlias = Callable[[Sequence[Any]], Any]
