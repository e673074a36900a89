"""What can be said when a server is made from something else: of it as a server, and of what it is made from. Types only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from hinge.backends.base import Backend
from hinge.protocol.calls import EraName
from hinge.protocol.limits import Limits
from hinge.schema.base import Icon
from hinge.schema.lifecycle import ClientCapabilities
from hinge.schema.notifications import LoggingLevel
from hinge.server.features.caching import CacheHint
from hinge.server.features.subscriptions import Authorize
from hinge.server.lifespan import ConnectionLifespan
from hinge.server.middleware.chain import Middleware


class ServerOptions(TypedDict, total=False):
    """The options of Server, all but its name and its lifespan."""

    version: str
    title: str | None
    description: str | None
    website_url: str | None
    icons: Sequence[Icon | str] | None
    instructions: str | None
    eras: Sequence[EraName] | EraName
    connection_lifespan: ConnectionLifespan | None
    middleware: Sequence[Middleware]
    limits: Limits
    log_level: LoggingLevel | None
    page_size: int | None
    state_keys: Sequence[bytes]
    state_once: bool
    backend: Backend | str | None
    authorize_subscription: Authorize | None
    cache: Mapping[str, CacheHint] | None
    resource_bytes: int


class ProxyOptions(ServerOptions, total=False):
    """The options of `hinge.proxy`, which explains them, and of `Server.from_client`."""

    name: str | None
    prefix: str | None
    headers: Sequence[str]
    methods: Sequence[str]
    declare: ClientCapabilities | None
    single_user: bool
    parked: int


class ApiOptions(ServerOptions, total=False):
    """The options of `hinge.openapi.server_from`, which explains them, and of `Server.from_openapi`."""

    name: str | None
    base_url: str | None
    headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None
    #: Of the Operation, which hinge.openapi has.
    operations: Callable[[Any], bool]
    timeout: float
    reply_bytes: int
