"""The settings of an HTTP endpoint. Data only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from hinge.http1.asgi import Scope
from hinge.protocol.calls import EraName
from hinge.protocol.http.headers import Headers, Principal, Refusal
from hinge.protocol.http.origin import Guard
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.transports.http.server.routes import AsgiApp

#: Who is calling: a name, a Principal with scopes, None for nobody in particular, or a Refusal (401, 403), sent as it is.
Authenticate: TypeAlias = Callable[[Scope, Headers], Awaitable[str | Principal | Refusal | None]]
Hook: TypeAlias = Callable[[], Awaitable[None]]


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an `HttpApp` serves. Times in seconds."""

    #: The endpoint, when the app isn't mounted below a path by another one.
    path: str = "/mcp"
    limits: Limits = DEFAULT_LIMITS
    eras: tuple[EraName, ...] = ("2025", "2026")
    #: Where clients of the first revision find its transport, HTTP+SSE (deprecated), like "/sse"; None for nowhere.
    sse_path: str | None = None
    #: Whether handshake clients get sessions. Without, each of their POSTs stands alone: nothing can be asked of them.
    sessions: bool = True
    #: Where the server listens, as far as it is known; names that clients use besides; pages of other sites that may
    #: call: see `Guard.for_bind`. A `guard` of your own replaces all three.
    bind: str | None = None
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    guard: Guard | None = None
    authenticate: Authenticate | None = None
    #: ASGI apps beside the endpoint, by path: `/metrics` that path alone, `/static/` all below. `authenticate` isn't asked.
    routes: Mapping[str, AsgiApp] | None = None
    #: Run before the first request is served; its failure is the server's.
    on_start: Hook | None = None
    #: Run as soon as a stop is asked for, while calls still may finish: end here what would never end by itself.
    on_drain: Hook | None = None
    #: Run when all calls are over.
    on_stop: Hook | None = None
    #: Headers of one request: how many, and the bytes of their values.
    headers: int = 100
    header_bytes: int = 64 * 1024
    #: How long a client may take to send a body.
    body_wait: float = 30.0
    #: Requests in flight on all connections together; the next one gets 503.
    requests: int = 20_000
    #: What handshake clients are told to wait before they resume a stream, in milliseconds (LHTTP-09).
    retry: int = 1000
