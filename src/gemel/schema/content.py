"""Content blocks: what tools, prompts and messages consist of.

https://modelcontextprotocol.io/specification/2025-11-25/schema#content
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import msgspec

from gemel.errors import InvalidResponse
from gemel.schema.base import Annotations, Icon, Model


class _Block(Model, tag_field="type", kw_only=True):
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class TextContent(_Block, tag="text", kw_only=True):
    """A text block.

    Args:
        text: The text.
        annotations: Hints for the client.
        meta: `_meta` of the block.
    """

    type: ClassVar[Literal["text"]] = "text"
    text: str


class ImageContent(_Block, tag="image", kw_only=True):
    """An image block. Functions may return `Image`, which makes one.

    Args:
        data: The image in base64.
        mime_type: Its MIME type, such as `image/png`.
        annotations: Hints for the client.
        meta: `_meta` of the block.
    """

    type: ClassVar[Literal["image"]] = "image"
    data: str
    mime_type: str

    @property
    def decoded(self) -> bytes:
        """The image itself.

        Raises:
            InvalidResponse: `data` isn't base64.
        """
        return decode(self.data)


class AudioContent(_Block, tag="audio", kw_only=True):
    """An audio block, since revision 2025-03-26. Functions may return `Audio`, which makes one.

    Args:
        data: The audio data in base64.
        mime_type: Its MIME type, such as `audio/wav`.
        annotations: Hints for the client.
        meta: `_meta` of the block.
    """

    type: ClassVar[Literal["audio"]] = "audio"
    data: str
    mime_type: str

    @property
    def decoded(self) -> bytes:
        """The audio data itself.

        Raises:
            InvalidResponse: `data` isn't base64.
        """
        return decode(self.data)


class ResourceLink(_Block, tag="resource_link", kw_only=True):
    """A link to a resource that the client can read; it need not be in the server's list. Since revision 2025-06-18.

    Args:
        uri: The URI to read.
        name: The name of the resource.
        title: A name for people.
        description: What the resource holds.
        mime_type: Its MIME type.
        size: Its size in bytes, before base64.
        icons: Icons for user interfaces.
        annotations: Hints for the client.
        meta: `_meta` of the block.
    """

    type: ClassVar[Literal["resource_link"]] = "resource_link"
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None


class ResourceContents(Model, kw_only=True):
    """The contents of a resource: either `text` or `blob`.

    Args:
        uri: The URI of the resource.
        text: The contents as text.
        blob: The contents in base64.
        mime_type: The MIME type.
        meta: `_meta` of the contents.
    """

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    @property
    def decoded(self) -> bytes:
        """The contents as bytes; text is encoded as UTF-8.

        Raises:
            InvalidResponse: `blob` isn't base64.
        """
        return decode(self.blob) if self.blob is not None else (self.text or "").encode()


class EmbeddedResource(_Block, tag="resource", kw_only=True):
    """A resource with its contents. Functions may return `File`, which makes one.

    Args:
        resource: The contents.
        annotations: Hints for the client.
        meta: `_meta` of the block.
    """

    type: ClassVar[Literal["resource"]] = "resource"
    resource: ResourceContents


def decode(data: str) -> bytes:
    """Decode base64 strictly, but for line ends, as MIME has them (RFC 2045). Raises InvalidResponse."""
    try:
        return binascii.a2b_base64(data.replace("\r", "").replace("\n", ""), strict_mode=True)
    except ValueError as exc:  # binascii.Error, or text that isn't ASCII
        raise InvalidResponse(f"The data is not base64: {exc}") from exc


def text_of(content: object) -> str:
    """The text of a block or of several, joined by line breaks; only text blocks have any."""
    blocks: Iterable[object] = content if isinstance(content, list) else (content,)
    return "\n".join(block.text for block in blocks if isinstance(block, TextContent))


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
Role = Literal["user", "assistant"]
