"""Whether a text, used as a path, could lead out of a folder, in whatever encoding. Knows neither URIs nor files."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote_to_bytes

#: A text that is encoded more often than this hides something.
_ROUNDS = 4

_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}")
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")


def leads_out(text: str) -> bool:
    """Whether a text holds `..` as a part of a path, starts like an absolute path, or holds a NUL (RES-09).

    `/` and `\\` both separate parts, and lookalikes count like the characters that they look like. What is still
    percent-encoded is decoded and looked at again, so that whoever decodes once more finds nothing new.
    """
    for _ in range(_ROUNDS):
        if _leads_out(text):
            return True
        if _TRIPLET.search(text) is None:
            return False
        try:
            text = unquote_to_bytes(text).decode()
        except UnicodeError:
            return True
    return True


def _leads_out(text: str) -> bool:
    if "\0" in text:
        return True
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    text = text.replace("\\", "/")
    if text.startswith("/") or _DRIVE.match(text) is not None:
        return True
    # Some systems leave blanks and dots at the end of a name away, some what stands behind a semicolon.
    return ".." in text and any(part.partition(";")[0].strip(" \t\r\n") == ".." for part in text.split("/"))
