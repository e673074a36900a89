"""Pictures, sounds and files that a function returns, as content blocks: from a path or from bytes. Knows no tools."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from hinge.errors import DefinitionError, shorten
from hinge.schema.base import Annotations
from hinge.schema.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent, ResourceContents
from hinge.server.features import mime

#: How data begins, and what it is then. RIFF files say what they are eight bytes further on.
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF????WEBP", "image/webp"),
    (b"<svg", "image/svg+xml"),
    (b"RIFF????WAVE", "audio/wav"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)


class Media:
    """What a tool or prompt may return in place of a content block: `content()` makes the block.

    `source` is a path (text or Path), read at once, or the bytes themselves. The MIME type, where none is given, follows
    from the file's name or from how the data begins. `annotations` and `meta` go onto the block.
    Raises OSError for a file that can't be read, DefinitionError for data of the wrong kind.
    """

    #: What the MIME type begins with; empty for any.
    family: ClassVar[str] = ""

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes,
        mime_type: str | None = None,
        *,
        annotations: Annotations | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = "" if isinstance(source, bytes) else os.path.basename(os.fspath(source))
        self.data = source if isinstance(source, bytes) else _read(source)
        self.mime_type = mime_type or mime.guess(self.name) or _sniffed(self.data) or mime.BINARY
        self.annotations = annotations
        self.meta = dict(meta) if meta is not None else None
        if not self.mime_type.startswith(self.family):
            kind = type(self).__name__
            raise DefinitionError(
                f"{kind}({shorten(self.name) or 'bytes'!r}) is {self.mime_type}, not {self.family}…: "
                f'say what it is, as in {kind}(data, "{self.family}…"), or return a File'
            )

    @property
    def base64(self) -> str:
        """The data as it goes on the wire."""
        return base64.b64encode(self.data).decode()

    def content(self) -> ContentBlock:
        """The content block."""
        raise NotImplementedError


class Image(Media):
    """A picture: `return Image("chart.png")`, or `Image(data)` with bytes; see Media for the arguments."""

    family = "image/"

    def content(self) -> ImageContent:
        """The picture as an `image` block (CONT-01)."""
        return ImageContent(data=self.base64, mime_type=self.mime_type, annotations=self.annotations, meta=self.meta)


class Audio(Media):
    """A sound: `return Audio("hello.wav")`, or `Audio(data)` with bytes; see Media for the arguments."""

    family = "audio/"

    def content(self) -> AudioContent:
        """The sound as an `audio` block; peers of the first revision get a text in its place (CONT-02)."""
        return AudioContent(data=self.base64, mime_type=self.mime_type, annotations=self.annotations, meta=self.meta)


class File(Media):
    """A file inside the answer: `return File("report.pdf")`, or `File(data, name="report.pdf")` with bytes.

    The client sees the name, never the folder. Text goes as text if it is UTF-8, all else as base64; see Media.
    """

    def __init__(
        self, source: str | os.PathLike[str] | bytes, mime_type: str | None = None, *, name: str = "", **options: Any
    ) -> None:
        guessed = mime.guess(name) if name else None
        super().__init__(source, mime_type or guessed, **options)
        self.name = name or self.name or "data"

    def content(self) -> EmbeddedResource:
        """The file as an embedded resource (CONT-04)."""
        from urllib.parse import quote

        contents = ResourceContents(uri=f"file:///{quote(self.name)}", mime_type=self.mime_type)
        text = _text(self.data) if mime.is_text(self.mime_type) else None
        if text is None:
            contents.blob = self.base64
        else:
            contents.text = text
        return EmbeddedResource(resource=contents, annotations=self.annotations, meta=self.meta)


def _read(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _sniffed(data: bytes) -> str | None:
    for beginning, kind in _BEGINNINGS:
        start, _, rest = beginning.partition(b"????")
        if data.startswith(start) and data[len(start) + 4 :].startswith(rest):
            return kind
    return None


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
