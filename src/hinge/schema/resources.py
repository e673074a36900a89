"""Resources: listing, templates, reading, watching (RES-01…RES-09)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from hinge.schema.base import Annotations, CacheableResult, Icon, Model, NotificationParams, Page
from hinge.schema.content import ResourceContents


class Resource(Model, kw_only=True):
    """A resource as it is listed; `size` in bytes before base64."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ResourceTemplate(Model, kw_only=True):
    """A family of resources, named by an RFC 6570 template; `mime_type` only when all of them share it (RES-03)."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ListResourcesResult(Page, kw_only=True):
    """A page of resources."""

    resources: list[Resource]


class ListResourceTemplatesResult(Page, kw_only=True):
    """A page of templates."""

    resource_templates: list[ResourceTemplate]


class ReadResourceParams(Model, kw_only=True):
    """Which resource; the answers and the state of an earlier round, if there was one."""

    uri: str
    input_responses: Raw = Raw(b"")
    request_state: str | UnsetType = msgspec.UNSET


class ReadResourceResult(CacheableResult, kw_only=True):
    """What a resource holds; several items are allowed, none is not."""

    contents: list[ResourceContents]

    @property
    def text(self) -> str:
        """All texts, joined; binary contents have none."""
        return "".join(item.text for item in self.contents if item.text is not None)


class SubscribeParams(Model, kw_only=True):
    """Which resource to watch, or to watch no longer (handshake revisions)."""

    uri: str


class ResourceUpdatedParams(NotificationParams, kw_only=True):
    """A watched resource, or one below it, changed (SUB-13)."""

    uri: str
