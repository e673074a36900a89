"""What all features share: implementation, icons, annotations, `_meta`, pages and the bare result."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

#: The prefix of every `_meta` key that the specification reserves (META-05).
RESERVED = "io.modelcontextprotocol/"
PROTOCOL_VERSION = RESERVED + "protocolVersion"
CLIENT_CAPABILITIES = RESERVED + "clientCapabilities"
CLIENT_INFO = RESERVED + "clientInfo"
LOG_LEVEL = RESERVED + "logLevel"
SUBSCRIPTION_ID = RESERVED + "subscriptionId"
SERVER_INFO = RESERVED + "serverInfo"

ProgressToken = str | int

#: Stands in a field of undecoded JSON that wasn't there; compared by identity.
NOTHING = Raw(b"")


class Model(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The root of all wire types: camelCase on the wire, absent when default, unknown members ignored (BASE-20)."""


class Icon(Model, kw_only=True):
    """A picture for a list: `src` is an https or data URI; `sizes` are `WxH` or `any` (ICON-01)."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Implementation(Model, kw_only=True):
    """Who a peer says it is: display data, never a ground for decisions (REQM-08)."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class Annotations(Model, kw_only=True):
    """Hints about a resource or a content block (CONT-05). `priority` 0..1, `last_modified` ISO 8601."""

    audience: list[Literal["user", "assistant"]] | None = None
    priority: float | None = None
    last_modified: str | None = None


class RequestMeta(Model, kw_only=True):
    """The `_meta` of a request as the kernel needs it. What the client says of itself is decoded when asked for."""

    progress_token: ProgressToken | None = None
    #: A string, unless the client errs.
    protocol_version: Any = msgspec.field(name=PROTOCOL_VERSION, default=NOTHING)
    client_capabilities: Raw = msgspec.field(name=CLIENT_CAPABILITIES, default=NOTHING)
    client_info: Raw = msgspec.field(name=CLIENT_INFO, default=NOTHING)
    log_level: Raw = msgspec.field(name=LOG_LEVEL, default=NOTHING)
    subscription_id: str | int | None = msgspec.field(name=SUBSCRIPTION_ID, default=None)


class Result(Model, kw_only=True):
    """What every result may carry. The era writes `result_type` and the reserved `_meta` keys, never a feature."""

    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str | UnsetType = UNSET


class EmptyResult(Result, kw_only=True):
    """A result that says only: done."""


class CacheableResult(Result, kw_only=True):
    """A result that may be kept for `ttl_ms` milliseconds, by all (`public`) or its caller (`private`) (CACHE-02)."""

    ttl_ms: int | UnsetType = UNSET
    cache_scope: Literal["public", "private"] | UnsetType = UNSET


class PageParams(Model, kw_only=True):
    """Which page of a list; "" is a cursor like any other (PAGE-04)."""

    cursor: str | None = None


class Page(CacheableResult, kw_only=True):
    """A page of a list; no `next_cursor` means the end (PAGE-03)."""

    next_cursor: str | None = None


class EmptyParams(Model, kw_only=True):
    """No parameters of its own."""


class NotificationParams(Model, kw_only=True):
    """What every notification may carry; on a subscription, `meta` names it (SUB-05)."""

    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
