"""The keys of what is stored in a backend: lists of parts, each behind its length, so that no two lists make the same key."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

#: Bytes of a part, or of a list of parts that is a part itself. Of a longer one the key has a digest.
LONGEST_PART: Final = 240


def make_key(*parts: str) -> str:
    """Return the key of a list of parts, such as `4:task/32:0f…`.

    Args:
        parts: Texts of any characters. The key has a SHA-256 digest behind a `#` instead of one with more than 240 bytes.

    Returns:
        The key. Two lists have the same one only if they are equal.
    """
    return "/".join([_framed(part) for part in parts])


def _framed(part: str) -> str:
    if len(part) > LONGEST_PART // 4 and len(encoded := part.encode()) > LONGEST_PART:
        return f"#{sha256(encoded).hexdigest()}"
    return f"{len(part)}:{part}"
