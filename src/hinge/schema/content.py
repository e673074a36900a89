"""Content blocks: what tools, prompts and messages are made of (CONT-01…CONT-05). Binary data is base64 text."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hinge.schema.base import Annotations, Icon, Model


class _Block(Model, tag_field="type", kw_only=True):
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class TextContent(_Block, tag="text", kw_only=True):
    """Text."""

    text: str


class ImageContent(_Block, tag="image", kw_only=True):
    """A picture: base64 `data` of the given MIME type."""

    data: str
    mime_type: str


class AudioContent(_Block, tag="audio", kw_only=True):
    """Sound: base64 `data` of the given MIME type; unknown to the first revision (CONT-02)."""

    data: str
    mime_type: str


class ResourceLink(_Block, tag="resource_link", kw_only=True):
    """A pointer to a resource, which need not stand in the server's list (CONT-03)."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None


class ResourceContents(Model, kw_only=True):
    """What a resource holds: one of `text` and `blob` (base64) is set; an empty text is not an absent one (CONT-04)."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class EmbeddedResource(_Block, tag="resource", kw_only=True):
    """A resource with its contents."""

    resource: ResourceContents


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
Role = Literal["user", "assistant"]
