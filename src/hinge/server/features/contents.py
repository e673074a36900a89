"""What the function of a resource may return, as the contents that a client reads. Knows no URIs beyond naming them."""

from __future__ import annotations

import base64
import collections.abc
import copy
import io
import typing
from collections.abc import AsyncIterable, Callable, Iterator
from typing import Any

from hinge.errors import DefinitionError, InternalError, ResourceNotFound
from hinge.schema.base import Result
from hinge.schema.content import ResourceContents
from hinge.schema.resources import ReadResourceResult
from hinge.server.context import Context
from hinge.server.features import mime
from hinge.server.functions.signature import Signature
from hinge.server.threads import Threads

_CHUNK = 64 * 1024

_FREE = (
    bytes,
    bytearray,
    memoryview,
    ResourceContents,
    Result,
    collections.abc.AsyncIterable,
    collections.abc.Iterator,
    io.IOBase,
    typing.IO,
)


def is_content(annotation: Any) -> bool:
    """Whether values of this type become contents by themselves: no JSON is promised for them."""
    kind = typing.get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, _FREE)


class Contents:
    """From a returned value to contents, for one resource. `limit`, in bytes, is for what comes in chunks."""

    __slots__ = ("_limit", "_mime_type", "_signature", "_threads")

    def __init__(self, signature: Signature, mime_type: str | None, threads: Threads, limit: int) -> None:
        self._signature = signature
        #: What the author said, or what the URI says of all reads.
        self._mime_type = mime_type
        self._threads = threads
        self._limit = limit

    async def result(self, ctx: Context[Any], value: Any, uri: str) -> ReadResourceResult:
        """A result with at least one item, also for an empty value (T-37).

        None says that there is no such resource: ResourceNotFound. Raises DefinitionError for what can't be sent.
        """
        if isinstance(value, ReadResourceResult):
            if not value.contents:
                raise DefinitionError(
                    f"{self._signature.name}: contents must not be empty; raise ResourceNotFound instead"
                )
            return copy.copy(value)
        if value is None:
            raise ResourceNotFound(uri)
        if isinstance(value, AsyncIterable):
            value = await _collect(value, self._limit)
        elif hasattr(value, "read") or isinstance(value, Iterator):
            value = await ctx.in_thread(self._threads, _drain, {"source": value, "limit": self._limit})
        several = isinstance(value, list | tuple) and any(isinstance(item, ResourceContents | bytes) for item in value)
        return ReadResourceResult(contents=[self._one(item, uri) for item in (value if several else [value])])

    def _one(self, value: Any, uri: str) -> ResourceContents:
        if isinstance(value, ResourceContents):
            if (value.text is None) == (value.blob is None):
                raise DefinitionError(f"{self._signature.name}: a ResourceContents has either text or blob")
            return value
        if isinstance(value, str):
            kind = self._mime_type or mime.guess(uri) or mime.TEXT
            return ResourceContents(uri=uri, text=value, mime_type=kind)
        if isinstance(value, bytes | bytearray | memoryview):
            kind = self._mime_type or mime.guess(uri) or mime.BINARY
            return ResourceContents(uri=uri, blob=base64.b64encode(value).decode(), mime_type=kind)
        kind = self._mime_type or mime.JSON
        return ResourceContents(uri=uri, text=self._signature.encode(value).text, mime_type=kind)


def too_large(limit: int) -> InternalError:
    """The error for a resource that is larger than this server reads."""
    return InternalError(f"The resource is larger than {limit} bytes, the limit of this server")


class _Chunks:
    """Texts or bytes, put together up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._found: list[Any] = []

    def add(self, chunk: Any) -> None:
        if not isinstance(chunk, str | bytes | bytearray | memoryview):
            raise DefinitionError(f"A resource in chunks gave {type(chunk).__name__}: chunks are str or bytes")
        if self._found and isinstance(chunk, str) != isinstance(self._found[0], str):
            raise DefinitionError("A resource in chunks gave both str and bytes: all chunks must be of one kind")
        self._size += len(chunk)
        if self._size > self._limit:
            raise too_large(self._limit)
        self._found.append(chunk)

    def value(self) -> str | bytes:
        return b"".join(self._found) if self._found and not isinstance(self._found[0], str) else "".join(self._found)


async def _collect(source: AsyncIterable[Any], limit: int) -> str | bytes:
    chunks = _Chunks(limit)
    try:
        async for chunk in source:
            chunks.add(chunk)
    finally:
        close: Callable[[], Any] | None = getattr(source, "aclose", None)
        if close is not None:
            await close()
    return chunks.value()


def _drain(source: Any, limit: int) -> str | bytes:
    """Read a file object or an iterator to its end, in a worker thread, and close it."""
    chunks = _Chunks(limit)
    read: Callable[[int], Any] | None = getattr(source, "read", None)
    try:
        if read is None:
            for chunk in source:
                chunks.add(chunk)
        else:
            chunks.add(chunk := read(_CHUNK))
            while chunk:
                chunks.add(chunk := read(_CHUNK))
    finally:
        close: Callable[[], Any] | None = getattr(source, "close", None)
        if close is not None:
            close()
    return chunks.value()
