"""What passes through a client, as middleware sees it: one shape, `(ctx, call_next) -> result`, for what the client asks and
says, and for what the server asks and says."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import UNSET, UnsetType

from hinge.client.requests import Ask, OnProgress
from hinge.jsonrpc import RequestId
from hinge.protocol.eras.base import EraName

if TYPE_CHECKING:
    from hinge.client.client import Client


class ClientContext(msgspec.Struct, kw_only=True, eq=False):
    """One request or notification on its way. A middleware hands on a changed one: `call_next(ctx.replace(params=…))`.

    What goes out is as its caller wants it: `meta` and `headers` come on top of the client's own, `idle` and `total` are
    seconds, None for no limit. What comes in has only `method`, `params` and `request_id`.
    """

    client: Client
    method: str
    params: dict[str, Any]
    #: Whether the server asks or says it.
    inbound: bool = False
    #: Whether nobody waits for an answer.
    notification: bool = False
    #: The server's id of what it asks in the handshake era; None otherwise.
    request_id: RequestId | None = None
    meta: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None
    idle: float | None = None
    total: float | None = None
    on_progress: OnProgress | None = None
    _ask: Ask | None = None

    @property
    def era(self) -> EraName:
        """The era in use."""
        return self.client.era

    @property
    def protocol_version(self) -> str:
        """The revision in use."""
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
        """This context with something else in it."""
        changes: dict[str, Any] = {"meta": meta, "headers": headers, "idle": idle, "total": total}
        changes = {name: value for name, value in changes.items() if value is not UNSET}
        if method is not None:
            changes["method"] = method
        if params is not None:
            changes["params"] = dict(params)
        return msgspec.structs.replace(self, **changes)

    @classmethod
    def of(cls, client: Client, ask: Ask) -> ClientContext:
        """A request that is about to go out."""
        return cls(
            client=client,
            method=ask.method,
            params=ask.params,
            meta=ask.meta,
            headers=ask.headers,
            idle=ask.idle,
            total=ask.total,
            on_progress=ask.on_progress,
            _ask=ask,
        )

    def asked(self) -> Ask:
        """The request, as the middleware left it."""
        assert self._ask is not None
        return msgspec.structs.replace(
            self._ask,
            method=self.method,
            params=self.params,
            meta=self.meta,
            headers=self.headers,
            idle=self.idle,
            total=self.total,
            on_progress=self.on_progress,
        )


CallNext: TypeAlias = Callable[[ClientContext], Awaitable[Any]]
ClientMiddleware: TypeAlias = Callable[[ClientContext, CallNext], Awaitable[Any]]


@runtime_checkable
class ConnectionMiddleware(Protocol):
    """Middleware that also wants to know when a connection was made."""

    async def __call__(self, ctx: ClientContext, call_next: CallNext, /) -> Any:
        """Handle a request or notification, like any middleware."""
        ...

    def connected(self, client: Client, /) -> None:
        """Inspect what the server said of itself, in `client.discovery`.

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
