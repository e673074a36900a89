"""Content blocks: what tools, prompts and messages are made of (CONT-01…CONT-05). Binary data is base64 text."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hinge.schema.base import Annotations, Icon, Model


class _Block(Model, tag_field="type"):
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class TextContent(_Block, tag="text"):
    """Text."""

    text: str


class ImageContent(_Block, tag="image"):
    """A picture: base64 `data` of the given MIME type."""

    data: str
    mime_type: str


class AudioContent(_Block, tag="audio"):
    """Sound: base64 `data` of the given MIME type; unknown to the first revision (CONT-02)."""

    data: str
    mime_type: str


class ResourceLink(_Block, tag="resource_link"):
    """A pointer to a resource, which need not stand in the server's list (CONT-03)."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None


class TextResourceContents(Model):
    """The text of a resource."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class BlobResourceContents(Model):
    """The bytes of a resource, in base64."""

    uri: str
    blob: str
    mime_type: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ResourceContents(Model):
    """Either form, as it is read: exactly one of `text` and `blob` is set (CONT-04)."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class EmbeddedResource(_Block, tag="resource"):
    """A resource with its contents."""

    resource: ResourceContents | TextResourceContents | BlobResourceContents


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
Role = Literal["user", "assistant"]
