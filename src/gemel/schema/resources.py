"""Resources: listing, templates, reading, subscribing."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from gemel.schema.base import Annotations, CacheableResult, Icon, Model, NotificationParams, Page
from gemel.schema.content import ResourceContents


class Resource(Model, kw_only=True):
    """A resource in a list.

    Args:
        uri: The URI to read.
        name: Its name.
        title: A name for people.
        description: What it holds.
        mime_type: Its MIME type.
        size: Its size in bytes, before base64.
        annotations: Hints for the client.
        icons: Icons for user interfaces.
        meta: `_meta` of the resource.
    """

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    @property
    def display_name(self) -> str:
        """What user interfaces show: the title, or the name if there is none."""
        return self.title or self.name


class ResourceTemplate(Model, kw_only=True):
    """A resource template in a list.

    Args:
        uri_template: An RFC 6570 template.
        name: Its name.
        title: A name for people.
        description: What its resources hold.
        mime_type: The MIME type that all its resources share.
        annotations: Hints for the client.
        icons: Icons for user interfaces.
        meta: `_meta` of the template.
    """

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    @property
    def display_name(self) -> str:
        """What user interfaces show: the title, or the name if there is none."""
        return self.title or self.name


class ListResourcesResult(Page, kw_only=True):
    """A page of resources."""

    resources: list[Resource]


class ListResourceTemplatesResult(Page, kw_only=True):
    """A page of templates."""

    resource_templates: list[ResourceTemplate]


class ReadResourceParams(Model, kw_only=True):
    """Params of `resources/read`, with the input and the state of an earlier round."""

    uri: str
    input_responses: Raw = Raw(b"")
    request_state: str | UnsetType = msgspec.UNSET


class ReadResourceResult(CacheableResult, kw_only=True):
    """Result of `resources/read`.

    Args:
        contents: The contents, at least one.
        ttl_ms: How long it may be cached, in milliseconds (stateless era).
        cache_scope: Who may share the cached result (stateless era).
        meta: `_meta` of the result.
    """

    contents: list[ResourceContents]

    @property
    def text(self) -> str:
        """The text contents, joined."""
        return "".join(item.text for item in self.contents if item.text is not None)


class SubscribeParams(Model, kw_only=True):
    """Params of `resources/subscribe` and `resources/unsubscribe` (handshake era)."""

    uri: str


class ResourceUpdatedParams(NotificationParams, kw_only=True):
    """Params of `notifications/resources/updated`: a resource, or one below it, changed."""

    uri: str
