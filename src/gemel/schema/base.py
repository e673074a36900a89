"""What all features share: implementation, icons, annotations, `_meta`, pages, results without data."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

#: The prefix of every `_meta` key that the specification reserves.
RESERVED = "io.modelcontextprotocol/"
PROTOCOL_VERSION = RESERVED + "protocolVersion"
CLIENT_CAPABILITIES = RESERVED + "clientCapabilities"
CLIENT_INFO = RESERVED + "clientInfo"
LOG_LEVEL = RESERVED + "logLevel"
SUBSCRIPTION_ID = RESERVED + "subscriptionId"
SERVER_INFO = RESERVED + "serverInfo"

ProgressToken = str | int

#: The value of a field of undecoded JSON that was absent; compared by identity.
NOTHING = Raw(b"")


class Model(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The root of all wire types: camelCase on the wire, absent when default, unknown members ignored."""


class Icon(Model, kw_only=True):
    """An icon for user interfaces (specification: "Icons").

    Args:
        src: An https or data URI.
        mime_type: Its MIME type.
        sizes: Sizes such as `48x48`, or `any`.
        theme: The background it is made for.
    """

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


#: The version of a server that has none: the specification requires a text.
NO_VERSION: Final = "0"


class Implementation(Model, kw_only=True):
    """The identity of a client or server, for display; not to be used for decisions.

    Args:
        name: The name of the program.
        version: Its version.
        title: A name for people.
        description: What it is for.
        website_url: Where people read about it.
        icons: Icons for user interfaces.
    """

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None

    @property
    def display_name(self) -> str:
        """What user interfaces show: the title, or the name if there is none."""
        return self.title or self.name

    @property
    def name_and_version(self) -> str:
        """The name, and the version if there is one."""
        return self.name if self.version in ("", NO_VERSION) else f"{self.name} {self.version}"


class Annotations(Model, kw_only=True):
    """Hints about a resource or a content block.

    Args:
        audience: Whom it is for.
        priority: From 0 (optional) to 1 (required).
        last_modified: A time in ISO 8601.
    """

    audience: list[Literal["user", "assistant"]] | None = None
    priority: float | None = None
    last_modified: str | None = None


class RequestMeta(Model, kw_only=True):
    """The `_meta` of a request. The client's description of itself is decoded when it is needed."""

    progress_token: ProgressToken | None = None
    #: A string, unless the client is wrong.
    protocol_version: Any = msgspec.field(name=PROTOCOL_VERSION, default=NOTHING)
    client_capabilities: Raw = msgspec.field(name=CLIENT_CAPABILITIES, default=NOTHING)
    client_info: Raw = msgspec.field(name=CLIENT_INFO, default=NOTHING)
    log_level: Raw = msgspec.field(name=LOG_LEVEL, default=NOTHING)
    subscription_id: str | int | None = msgspec.field(name=SUBSCRIPTION_ID, default=None)


class Result(Model, kw_only=True):
    """The members of every result. `result_type` and the reserved `_meta` keys are written by the era."""

    #: `_meta` of the result.
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    #: "complete", or "input_required" if the call needs input first; in the stateless era only.
    result_type: str | UnsetType = UNSET


class EmptyResult(Result, kw_only=True):
    """A result without data."""


class CacheableResult(Result, kw_only=True):
    """A result that may be cached for `ttl_ms` milliseconds, for everybody (`public`) or for its caller (`private`)."""

    ttl_ms: int | UnsetType = UNSET
    cache_scope: Literal["public", "private"] | UnsetType = UNSET


class PageParams(Model, kw_only=True):
    """The page of a list; an empty cursor is a valid one."""

    cursor: str | None = None


class Page(CacheableResult, kw_only=True):
    """A page of a list, the last one if it has no `next_cursor`."""

    next_cursor: str | None = None


class EmptyParams(Model, kw_only=True):
    """Params without members."""


class NotificationParams(Model, kw_only=True):
    """The members of every notification."""

    #: `_meta` of the notification; it names the subscription that the notification belongs to, if any.
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
