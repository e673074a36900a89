"""Content blocks: what tools, prompts and messages consist of.

https://modelcontextprotocol.io/specification/2025-11-25/schema#content
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, get_args

import msgspec

from gemel.errors import InvalidResponse
from gemel.schema.base import Annotations, Icon, Model


class Content:
    """A content block, or the contents of a resource. Each kind says how it is read; the functions below ask it."""

    __slots__ = ()

    def _contents(self) -> ResourceContents | None:
        """What it holds as the contents of a resource; None for a block that holds no data itself."""
        return None

    def _shown(self) -> str:
        """The text that people read."""
        contents = self._contents()
        return type(self).__name__ if contents is None else contents._shown()

    def _stand_in(self, revision: str) -> TextContent:
        """What is sent in its place to a peer whose revision doesn't know it: text, so that nothing is lost silently."""
        return TextContent(text=self._shown())


class _Block(Model, Content, tag_field="type", kw_only=True):
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class _Media(_Block, kw_only=True):
    data: str
    mime_type: str

    @property
    def decoded(self) -> bytes:
        """The data itself.

        Raises:
            InvalidResponse: `data` isn't base64.
        """
        return decode(self.data)

    def _contents(self) -> ResourceContents:
        return ResourceContents(uri="", blob=self.data, mime_type=self.mime_type)


class TextContent(_Block, tag="text", kw_only=True):
    """A text block.

    Args:
        text: The text.
        annotations: Hints for the client.
        meta: `_meta` of the block.
    """

    #: The kind of block.
    type: ClassVar[Literal["text"]] = "text"
    text: str

    def _contents(self) -> ResourceContents:
        return ResourceContents(uri="", text=self.text, mime_type="text/plain")


class ImageContent(_Media, tag="image", kw_only=True):
    """An image block. Functions may return `Image`, which makes one.

    Args:
        data: The image in base64.
        mime_type: Its MIME type, such as `image/png`.
        annotations: Hints for the client.
        meta: `_meta` of the block.
    """

    #: The kind of block.
    type: ClassVar[Literal["image"]] = "image"


class AudioContent(_Media, tag="audio", kw_only=True):
    """An audio block, since revision 2025-03-26. Functions may return `Audio`, which makes one.

    Args:
        data: The audio data in base64.
        mime_type: Its MIME type, such as `audio/wav`.
        annotations: Hints for the client.
        meta: `_meta` of the block.
    """

    #: The kind of block.
    type: ClassVar[Literal["audio"]] = "audio"

    def _stand_in(self, revision: str) -> TextContent:
        text = f"[Audio ({self.mime_type}) is left out: revision {revision} of the protocol has none]"
        return TextContent(text=text, annotations=self.annotations)


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

    #: The kind of block.
    type: ClassVar[Literal["resource_link"]] = "resource_link"
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None

    def _shown(self) -> str:
        return f"[link to {self.uri}{f', {self.title}' if self.title else ''}]"

    def _stand_in(self, revision: str) -> TextContent:
        kind = f" ({self.mime_type})" if self.mime_type else ""
        about = f"\n{self.description}" if self.description else ""
        text = f"{self.title or self.name}: {self.uri}{kind}{about}"
        return TextContent(text=text, annotations=self.annotations)


class ResourceContents(Model, Content, kw_only=True):
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

    def _contents(self) -> ResourceContents:
        return self

    def _shown(self) -> str:
        if self.text is not None:
            return self.text
        parts = (self.mime_type or "data", _size(self.blob or ""), self.uri)
        return f"[{', '.join(part for part in parts if part)}]"


class EmbeddedResource(_Block, tag="resource", kw_only=True):
    """A resource with its contents. Functions may return `File`, which makes one.

    Args:
        resource: The contents.
        annotations: Hints for the client.
        meta: `_meta` of the block.
    """

    #: The kind of block.
    type: ClassVar[Literal["resource"]] = "resource"
    resource: ResourceContents

    def _contents(self) -> ResourceContents:
        return self.resource


def contents_of(block: object) -> ResourceContents | None:
    """What a block holds as the contents of a resource, text or data; None for links, tool calls and their results."""
    return block._contents() if isinstance(block, Content) else None


def shown(block: Content) -> str:
    """A block as people read it: its text; other content in brackets, with its type, size and name."""
    return block._shown()


def stand_in(block: Content, revision: str) -> TextContent:
    """The text that is sent to a peer whose revision doesn't know the type of a block."""
    return block._stand_in(revision)


def _size(data: str) -> str:
    """The size of data in base64."""
    size = len(data) * 3 // 4 - data[-2:].count("=")
    return f"{size} bytes" if size < 10_000 else f"{size / 1000:,.0f} kB"


def decode(data: str) -> bytes:
    """Decode base64 strictly, except for line ends, as MIME has them (RFC 2045). Raises InvalidResponse."""
    try:
        return binascii.a2b_base64(data.replace("\r", "").replace("\n", ""), strict_mode=True)
    except ValueError as exc:  # binascii.Error, or text that isn't ASCII
        raise InvalidResponse(f"The data is not base64: {exc}") from exc


def text_of(content: object) -> str:
    """The text of a block or of several, joined by line breaks; only text blocks have any."""
    blocks: Iterable[object] = content if isinstance(content, list) else (content,)
    return "\n".join(block.text for block in blocks if isinstance(block, TextContent))


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
#: The content blocks by their type on the wire.
BLOCKS: Mapping[str, type[Content]] = {kind.type: kind for kind in get_args(ContentBlock)}
Role = Literal["user", "assistant"]
