"""Content of results for people: as text, and saved to files.

A server does not decide where a file is written: only the last part of a URI is used, with harmless characters.
"""

from __future__ import annotations

import mimetypes
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec import UNSET

from gemel.schema.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextContent,
    contents_of,
    shown,
)
from gemel.schema.prompts import GetPromptResult
from gemel.schema.resources import ReadResourceResult
from gemel.schema.sampling import ToolResultContent, ToolUseContent
from gemel.schema.tools import CallToolResult
from gemel.user_files import replace_file, write_new_file

#: Content that has data.
Saveable: TypeAlias = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceContents
Block: TypeAlias = ContentBlock | ResourceContents | ToolUseContent | ToolResultContent
Result: TypeAlias = CallToolResult | ReadResourceResult | GetPromptResult

#: MIME types for which systems differ.
_SUFFIXES = {
    "application/json": ".json",
    "application/octet-stream": ".bin",
    "application/pdf": ".pdf",
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/webp": ".webp",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/plain": ".txt",
}
_UNFIT = re.compile(r"[^\w.-]+", re.ASCII)
#: Names of devices on Windows, with any suffix.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
#: The highest number that is tried for a name.
_MOST_NAMES = 10_000


def save_content(content: Saveable, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write an image, audio, text or resource to a file.

    Args:
        content: A content block or resource contents.
        path: The file. Without a suffix it gets that of the MIME type. In a directory (an existing one, or a path that ends
            with a slash, which is made) the file is named after the resource or the kind of content, with a number if the
            name is taken.
        overwrite: Whether an existing file is replaced.

    Returns:
        The path of the file.

    Raises:
        FileExistsError: The file exists, and `overwrite` is not set.
        OSError: The file can't be written.
        InvalidResponse: The data is not base64.
        TypeError: The content has no data, like a resource link.
    """
    contents = contents_of(content)
    if contents is None:
        raise TypeError(f"{type(content).__name__} has no data to save; a link is read with client.read_resource(link)")
    data, uri = contents.decoded, contents.uri
    kind = contents.mime_type or ("text/plain" if contents.blob is None else None)
    suffix = suffix_of(kind)
    target = Path(path)
    if target.is_dir() or os.fspath(path).endswith(("/", os.sep)):
        target.mkdir(parents=True, exist_ok=True)
        return _write_new(target, _name(uri, kind, suffix), data)
    if not target.suffix:
        target = target.with_name(target.name + suffix)
    if overwrite:
        replace_file(target, data)
    else:
        write_new_file(target, data)
    return target


def save_contents(result: Result | Iterable[Any], directory: str | os.PathLike[str]) -> list[Path]:
    """Write the images, audio and resources of a result into a directory.

    Text blocks and resource links are left out. Nothing is overwritten.

    Args:
        result: A result, or content blocks.
        directory: The directory, which is made if it does not exist.

    Returns:
        The paths of the files.

    Raises:
        OSError: A file can't be written.
        InvalidResponse: The data of a block is not base64.
    """
    folder = os.path.join(os.fspath(directory), "")
    return [
        save_content(block, folder)
        for block in blocks_of(result)
        if contents_of(block) is not None and not isinstance(block, TextContent)
    ]


def blocks_of(result: Result | Iterable[Any]) -> list[Any]:
    """The content blocks of any result."""
    if isinstance(result, CallToolResult):
        return list(result.content)
    if isinstance(result, ReadResourceResult):
        return list(result.contents)
    if isinstance(result, GetPromptResult):
        return [message.content for message in result.messages]
    return list(result)


def suffix_of(mime_type: str | None) -> str:
    """The suffix of files of a MIME type, with its dot."""
    kind = (mime_type or "").partition(";")[0].strip().lower()
    suffix = _SUFFIXES.get(kind) or mimetypes.guess_extension(kind)
    return suffix or (".txt" if kind.startswith("text/") else ".bin")


def content_to_text(content: Result | Block) -> str:
    """Render a result, or one block of it, as text for people.

    Text is kept; other content is rendered in brackets with its type, size and name. Structured content is rendered as JSON
    if there is nothing else.

    Args:
        content: A result or a content block.

    Returns:
        The text.
    """
    if isinstance(content, GetPromptResult):
        return "\n".join(f"{message.role}: {shown(message.content)}" for message in content.messages)
    if not isinstance(content, CallToolResult | ReadResourceResult):
        return shown(content)
    lines = [shown(block) for block in blocks_of(content)]
    if not lines and isinstance(content, CallToolResult) and content.structured_content is not UNSET:
        lines = [msgspec.json.encode(content.structured_content).decode()]
    return "\n".join(lines)


def _name(uri: str, kind: str | None, suffix: str) -> str:
    """A harmless name for a file."""
    last = unquote(re.split(r"[?#]", uri)[0].rstrip("/").rpartition("/")[2])
    stem, _, end = _UNFIT.sub("_", last).strip("._").rpartition(".")
    named, stem = bool(stem), stem or end
    if not stem or _DEVICES.fullmatch(stem):
        stem = (
            (kind or "").partition("/")[0].strip() if re.match(r"(image|audio|video|text)/", kind or "") else "content"
        )
    if named and suffix == ".bin" and len(end) <= 10:
        suffix = f".{end}"
    return stem[:100] + suffix


def _write_new(folder: Path, name: str, data: bytes) -> Path:
    """Write a new file in a folder, without following links."""
    stem, _, suffix = name.rpartition(".")
    for number in range(1, _MOST_NAMES):
        path = folder / (name if number == 1 else f"{stem}-{number}.{suffix}")
        try:
            write_new_file(path, data)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"{folder} has {_MOST_NAMES} files called {name} already")
