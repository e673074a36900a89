"""Content: what functions may return and what becomes of it, as content blocks and as the contents of resources.

Content blocks: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result. MIME types come from the
ending of a name, the same on every machine, or from the first bytes of the data.
"""

from __future__ import annotations

import base64
import collections.abc
import copy
import io
import os
import typing
from collections import UserString
from collections.abc import AsyncIterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, get_args

from gemel.errors import DefinitionError, InternalError, ResourceNotFound, shorten
from gemel.schema.base import Annotations, Model, Result
from gemel.schema.checks import checked_model
from gemel.schema.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextContent,
)
from gemel.schema.resources import ReadResourceResult
from gemel.server.context import Context, served_call
from gemel.server.functions.results import is_content, serialized
from gemel.server.functions.signature import Signature
from gemel.server.threads import Threads

if TYPE_CHECKING:
    from mimetypes import MimeTypes

# ---------------------------------------------------------------- MIME types

TEXT = "text/plain"
BINARY = "application/octet-stream"
JSON = "application/json"

#: Missing from Python's own table, at least in some versions.
_MORE = {
    ".avif": "image/avif",
    ".jsonl": "application/jsonl",
    ".log": TEXT,
    ".md": "text/markdown",
    ".ndjson": "application/x-ndjson",
    ".rst": "text/x-rst",
    ".rtf": "application/rtf",
    ".sql": "application/sql",
    ".toml": "application/toml",
    ".wav": "audio/wav",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_PACKED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
#: How textual types end that don't begin with `text/`.
_TEXTUAL = ("json", "xml", "yaml", "/jsonl", "/toml", "/sql", "javascript", "/x-sh")


#: First bytes and the type that they mean. RIFF files name their type eight bytes further on.
_SIGNATURES = (
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


@cache
def _table() -> MimeTypes:
    from mimetypes import MimeTypes

    table = MimeTypes()
    for ending, kind in _MORE.items():
        table.add_type(kind, ending)
    return table


def guess_mime_type(name: str) -> str | None:
    """The MIME type that the ending of a file name or URI stands for; None if it stands for nothing."""
    name = name.partition("#")[0].partition("?")[0].rpartition("/")[2]
    if "." not in name:
        return None
    kind, packing = _table().guess_type(f"./{name}")
    return kind if packing is None else _PACKED.get(packing, BINARY)


def is_text_type(mime_type: str) -> bool:
    """Whether data of this MIME type is text."""
    kind = mime_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.endswith(_TEXTUAL)


def _sniff(data: bytes) -> str | None:
    for beginning, kind in _SIGNATURES:
        start, _, later = beginning.partition(b"????")
        if data.startswith(start) and data[len(start) + 4 :].startswith(later):
            return kind
    return None


# ---------------------------------------------------------------- images, audio, files


class Media:
    """What Image, Audio and File have in common; `content()` makes the content block."""

    #: What the MIME type begins with; empty for any.
    family: ClassVar[str] = ""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        data: bytes | None = None,
        format: str | None = None,
        annotations: Annotations | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        kind, source = type(self).__name__, cast("Any", path)
        if isinstance(source, bytes) or (path is None) == (data is None):
            raise DefinitionError(f"{kind}: give a path, as in {kind}(path=…), or bytes, as in {kind}(data=…)")
        if data is not None and not isinstance(data, bytes):
            raise DefinitionError(
                f"{kind}: data is {type(data).__name__}, and must be bytes; of base64 make them with base64.b64decode(…)"
            )
        if format is not None and not isinstance(format, str):
            raise DefinitionError(f'{kind}: format={format!r} is not possible: write the ending of a file, as in "png"')
        self.name = "" if path is None else os.path.basename(os.fspath(path))
        self.data = data if data is not None else _read(source)
        self.mime_type = self._named(format) or guess_mime_type(self.name) or _sniff(self.data) or BINARY
        self.annotations = annotations
        self.meta = dict(meta) if meta is not None else None
        if not self.mime_type.startswith(self.family):
            raise DefinitionError(
                f"{kind}({shorten(self.name) or 'bytes'!r}) is {self.mime_type}, not {self.family}…: "
                f'name its format, as in {kind}(data=…, format="{self.family}…"), or return a File'
            )

    def _named(self, format: str | None) -> str | None:
        """The MIME type of a format: the ending of a file name, or a MIME type."""
        if format is None or "/" in format:
            return format
        return guess_mime_type(f"x.{format}") or f"{self.family or 'application/'}{format}"

    @property
    def base64(self) -> str:
        """The data in base64."""
        return base64.b64encode(self.data).decode()

    def to_data_uri(self) -> str:
        """Return the data as a `data:` URI, as an `Icon` can have it.

        Returns:
            The URI, with the MIME type and the data in base64.
        """
        return f"data:{self.mime_type};base64,{self.base64}"

    def content(self) -> ContentBlock:
        """The content block."""
        raise NotImplementedError


class Image(Media):
    """An image that a tool or prompt returns: `Image("chart.png")` or `Image(data=png, format="png")`.

    Sent as an `image` block:
    https://modelcontextprotocol.io/specification/2025-11-25/server/tools#image-content

    Args:
        path: The file, read at once.
        data: The bytes, in place of a path.
        format: The ending of a file name (`"png"`) or a MIME type (`"image/png"`). By default it follows from the path, else
            from the first bytes of the data.
        annotations: Hints for the client, on the block.
        meta: `_meta` of the block.

    Raises:
        DefinitionError: Not exactly one of `path` and `data`, or data that isn't an image.
        OSError: The file can't be read.
    """

    family = "image/"

    def content(self) -> ImageContent:
        """The `image` block."""
        return ImageContent(data=self.base64, mime_type=self.mime_type, annotations=self.annotations, meta=self.meta)


class Audio(Media):
    """Audio that a tool or prompt returns: `Audio("hello.wav")` or `Audio(data=wav, format="wav")`.

    Sent as an `audio` block; clients of revision 2024-11-05, which has none, get a text in its place:
    https://modelcontextprotocol.io/specification/2025-11-25/server/tools#audio-content

    Args:
        path: The file, read at once.
        data: The bytes, in place of a path.
        format: The ending of a file name (`"wav"`) or a MIME type (`"audio/wav"`). By default it follows from the path, else
            from the first bytes of the data.
        annotations: Hints for the client, on the block.
        meta: `_meta` of the block.

    Raises:
        DefinitionError: Not exactly one of `path` and `data`, or data that isn't audio.
        OSError: The file can't be read.
    """

    family = "audio/"

    def content(self) -> AudioContent:
        """The `audio` block."""
        return AudioContent(data=self.base64, mime_type=self.mime_type, annotations=self.annotations, meta=self.meta)


class File(Media):
    """A file that a tool or prompt returns: `File("report.pdf")` or `File(data=pdf, name="report.pdf")`.

    Sent as an embedded resource with a `file:///` URI that holds its name, not its folder:
    https://modelcontextprotocol.io/specification/2025-11-25/server/tools#embedded-resources
    Data of a text type is sent as text if it is UTF-8, all else as base64.

    Args:
        path: The file, read at once.
        data: The bytes, in place of a path.
        format: The ending of a file name (`"pdf"`) or a MIME type (`"application/pdf"`). By default it follows from the name,
            else from the first bytes of the data.
        name: The name that the client sees. By default that of the path, else `data`.
        annotations: Hints for the client, on the block.
        meta: `_meta` of the block.

    Raises:
        DefinitionError: Not exactly one of `path` and `data`.
        OSError: The file can't be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        data: bytes | None = None,
        format: str | None = None,
        name: str | None = None,
        annotations: Annotations | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        kind = format or guess_mime_type(name or "")
        super().__init__(path, data=data, format=kind, annotations=annotations, meta=meta)
        self.name = name or self.name or "data"

    def content(self) -> EmbeddedResource:
        """The `resource` block."""
        from urllib.parse import quote

        contents = contents_from_bytes(
            self.data, f"file:///{quote(self.name, errors='surrogateescape')}", self.mime_type
        )
        return EmbeddedResource(resource=contents, annotations=self.annotations, meta=self.meta)


def _read(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# ---------------------------------------------------------------- what tools and prompts return

_BLOCKS: tuple[type, ...] = get_args(ContentBlock)
ModelT = TypeVar("ModelT", bound=Model)


def returns_blocks(annotation: object) -> bool:
    """Whether values of this type become content blocks, so that they have no output schema."""
    return is_content(annotation) or (isinstance(annotation, type) and issubclass(annotation, Media))


def checked(model: ModelT) -> ModelT:
    """A model that a function of the user made, after its types were checked. Raises DefinitionError."""
    try:
        return checked_model(model)
    except ValueError as exc:
        raise DefinitionError(f"it returned a value that can't be sent: {exc}") from None


def to_blocks(value: Any, *, lists: bool = False) -> list[ContentBlock] | None:
    """Text, content blocks, media, and lists that hold one of the latter, as content blocks; None for any other value.

    Other items of such a list become JSON, as text. With `lists` it is any list or iterable. Raises DefinitionError for an
    item that has no JSON form.
    """
    if isinstance(value, str):
        return [TextContent(text=str.__str__(value))]
    if isinstance(value, _BLOCKS):
        return [checked(cast("ContentBlock", value))]
    if value is None:
        return []
    if isinstance(value, Media):
        return [checked(value.content())]
    if lists and is_list(value):
        value = list(value)
    elif not isinstance(value, list | tuple) or not any(isinstance(item, (*_BLOCKS, Media)) for item in value):
        return None
    blocks: list[ContentBlock] = []
    for item in value:
        item_blocks = to_blocks(item, lists=lists)
        blocks += [TextContent(text=serialized(item).decode())] if item_blocks is None else item_blocks
    return blocks


def is_list(value: object) -> bool:
    """Whether a value stands for its items. Models and mappings, which Python can iterate over, don't."""
    lists = (collections.abc.Sequence, collections.abc.Set, collections.abc.MappingView, collections.abc.Iterator)
    return isinstance(value, lists) and not isinstance(value, str | bytes | bytearray | memoryview | UserString)


# ---------------------------------------------------------------- what resources return

_CHUNK = 64 * 1024

_CONTENTS = (
    bytes,
    bytearray,
    memoryview,
    Media,
    ResourceContents,
    Result,
    collections.abc.AsyncIterable,
    collections.abc.Iterator,
    io.IOBase,
    typing.IO,
)


def returns_contents(annotation: object) -> bool:
    """Whether values of this type become the contents of a resource as they are, not as JSON."""
    kind = typing.get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, _CONTENTS)


def contents_from_bytes(data: bytes, uri: str, mime_type: str | None) -> ResourceContents:
    """Bytes as text or blob: text if they are UTF-8 without NUL, and their MIME type is one of text or unknown."""
    if (mime_type is None or is_text_type(mime_type)) and b"\0" not in data:
        try:
            return ResourceContents(uri=uri, text=data.decode(), mime_type=mime_type or TEXT)
        except UnicodeDecodeError:
            pass
    return ResourceContents(uri=uri, blob=base64.b64encode(data).decode(), mime_type=mime_type or BINARY)


class ResourceOutput:
    """Turns the values that one resource's function returns into contents.

    `mime_type` is the author's, if any. `limit`, in bytes, is for what comes in chunks.
    """

    __slots__ = ("_limit", "_mime_type", "_signature", "_threads")

    def __init__(self, signature: Signature, mime_type: str | None, threads: Threads, limit: int) -> None:
        self._signature = signature
        self._mime_type = mime_type
        self._threads = threads
        self._limit = limit

    async def result(self, ctx: Context[Any], value: Any, uri: str) -> ReadResourceResult:
        """A result with at least one item, also for an empty value.

        Raises ResourceNotFound for None and DefinitionError for what can't be sent.
        """
        if isinstance(value, ReadResourceResult):
            if not value.contents:
                raise DefinitionError(
                    f"{self._signature.name}: contents must not be empty; raise ResourceNotFound instead"
                )
            return copy.copy(checked(value))
        if value is None:
            raise ResourceNotFound(uri)
        if isinstance(value, AsyncIterable):
            value = await _collect(value, self._limit)
        elif hasattr(value, "read") or isinstance(value, Iterator):
            value = await served_call(ctx).run_in_thread(self._threads, _drain, {"source": value, "limit": self._limit})
        several = isinstance(value, list | tuple) and any(
            isinstance(item, ResourceContents | Media | bytes) for item in value
        )
        return ReadResourceResult(contents=[self._one(item, uri) for item in (value if several else [value])])

    def _one(self, value: object, uri: str) -> ResourceContents:
        if isinstance(value, ResourceContents):
            if (value.text is None) == (value.blob is None):
                raise DefinitionError(f"{self._signature.name}: a ResourceContents has either text or blob")
            return checked(value)
        if isinstance(value, str):
            kind = self._mime_type or guess_mime_type(uri) or TEXT
            return ResourceContents(uri=uri, text=str.__str__(value), mime_type=kind)
        if isinstance(value, bytes | bytearray | memoryview):
            kind = self._mime_type or guess_mime_type(uri) or BINARY
            return ResourceContents(uri=uri, blob=base64.b64encode(value).decode(), mime_type=kind)
        if isinstance(value, Media):
            contents = contents_from_bytes(value.data, uri, self._mime_type or value.mime_type)
            contents.meta = value.meta
            return contents
        kind = self._mime_type or JSON
        return ResourceContents(uri=uri, text=self._signature.encode(value)[1], mime_type=kind)


def too_large(limit: int) -> InternalError:
    """The error for a resource that exceeds the server's `resource_bytes`."""
    return InternalError(f"The resource is larger than {limit} bytes, the limit of this server")


class _Chunks:
    """Collects text or bytes up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._chunks: list[Any] = []

    def add(self, chunk: object) -> None:
        if not isinstance(chunk, str | bytes | bytearray | memoryview):
            raise DefinitionError(f"A resource in chunks gave {type(chunk).__name__}: chunks are str or bytes")
        if self._chunks and isinstance(chunk, str) != isinstance(self._chunks[0], str):
            raise DefinitionError("A resource in chunks gave both str and bytes: all chunks must be of one kind")
        self._size += len(chunk)
        if self._size > self._limit:
            raise too_large(self._limit)
        self._chunks.append(chunk)

    def joined(self) -> str | bytes:
        text = not self._chunks or isinstance(self._chunks[0], str)
        return "".join(self._chunks) if text else b"".join(self._chunks)


async def _collect(source: AsyncIterable[Any], limit: int) -> str | bytes:
    chunks = _Chunks(limit)
    try:
        async for chunk in source:
            chunks.add(chunk)
    finally:
        close: Any = getattr(source, "aclose", None)
        if close is not None:
            await close()
    return chunks.joined()


def _drain(source: Any, limit: int) -> str | bytes:
    """Read a file object or an iterator to its end, in a worker thread, and close it."""
    chunks = _Chunks(limit)
    try:
        for chunk in _chunks_of_file(source) if hasattr(source, "read") else source:
            chunks.add(chunk)
    finally:
        if hasattr(source, "close"):
            source.close()
    return chunks.joined()


def _chunks_of_file(file: Any) -> Iterator[str | bytes]:
    """At least one chunk, which tells text from bytes."""
    yield (chunk := file.read(_CHUNK))
    while chunk:
        yield (chunk := file.read(_CHUNK))
