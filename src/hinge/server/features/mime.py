"""MIME types by the ending of a name: the same on every machine, whatever it has configured."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mimetypes import MimeTypes

TEXT = "text/plain"
BINARY = "application/octet-stream"
JSON = "application/json"

#: What Python's own table lacks, or lacks in some versions.
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
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_PACKED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
_TEXTUAL = (
    "+json",
    "+xml",
    "+yaml",
    "/json",
    "/jsonl",
    "/xml",
    "/yaml",
    "/toml",
    "/sql",
    "javascript",
    "/x-ndjson",
    "/x-sh",
)


@cache
def _table() -> MimeTypes:
    from mimetypes import MimeTypes

    table = MimeTypes()
    for ending, kind in _MORE.items():
        table.add_type(kind, ending)
    return table


def guess(name: str) -> str | None:
    """The MIME type that the ending of a file name or URI tells; None when it tells nothing."""
    name = name.partition("#")[0].partition("?")[0].rpartition("/")[2]
    if "." not in name:
        return None
    kind, packing = _table().guess_type(f"./{name}")
    return kind if packing is None else _PACKED.get(packing, BINARY)


def is_text(mime_type: str) -> bool:
    """Whether content of this type is text."""
    kind = mime_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.endswith(_TEXTUAL)
