"""Content blocks: what tools, prompts and messages are made of (CONT-01…CONT-05). Binary data is base64 text."""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from hinge.errors import InvalidResponse
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

    @property
    def decoded(self) -> bytes:
        """The data itself. Raises InvalidResponse if it is no base64."""
        return decode(self.data)


class AudioContent(_Block, tag="audio", kw_only=True):
    """Sound: base64 `data` of the given MIME type; unknown to the first revision (CONT-02)."""

    data: str
    mime_type: str

    @property
    def decoded(self) -> bytes:
        """The data itself. Raises InvalidResponse if it is no base64."""
        return decode(self.data)


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

    @property
    def decoded(self) -> bytes:
        """The bytes, also of a text, as UTF-8. Raises InvalidResponse if `blob` is no base64."""
        return decode(self.blob) if self.blob is not None else (self.text or "").encode()


class EmbeddedResource(_Block, tag="resource", kw_only=True):
    """A resource with its contents."""

    resource: ResourceContents


def decode(data: str) -> bytes:
    """Base64 text as the bytes that it stands for, strictly. Raises InvalidResponse."""
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except ValueError as exc:  # binascii.Error, or text that isn't ASCII
        raise InvalidResponse(f"The data is no base64: {exc}") from exc


def text_of(content: object) -> str:
    """The texts of a block, or of several, a line break between them; other blocks have none."""
    blocks: Iterable[object] = content if isinstance(content, list) else (content,)
    return "\n".join(block.text for block in blocks if isinstance(block, TextContent))


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
Role = Literal["user", "assistant"]
