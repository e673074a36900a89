"""The lines of a file of receipts: their hashes, how they are written and read.

A line is a JSON object in ASCII. Its last member, `hash`, is the hash of all bytes of the line before `,"hash":`; `before` is the
`hash` of the line before, `n` counts the lines of a chain. With a key, hashes are HMAC-SHA-256; without one, SHA-256.
"""

from __future__ import annotations

import hmac
import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeAlias

from gemel.errors import DefinitionError
from gemel.receipts.canonical import canonical_json

#: What a line says: a call ended; a round ended that asks the client for input; a call went on as a task; a run of
#: a task ended that another one goes on with; a process began or ended to write the file; a torn line was cut off; receipts were
#: lost.
Kind: TypeAlias = Literal["call", "asked", "task", "moved", "open", "close", "repaired", "lost"]
OUTCOMES = ("ok", "tool error", "error", "declined", "cancelled", "unknown")

#: The name of the event of telemetry that says the same as a line.
EVENT = "gemel.receipt"

_HASH = b',"hash":"'
_DIGITS = 64
#: What follows the bytes that are hashed.
_TAIL = len(_HASH) + _DIGITS + len(b'"}')
_SHORTEST_KEY = 16
_encoder = json.JSONEncoder(separators=(",", ":"))


class HashKey:
    """What hashes are made with.

    Args:
        key: The secret, at least 16 bytes; None for plain hashes.

    Raises:
        DefinitionError: The key is too short.
    """

    def __init__(self, key: str | bytes | None) -> None:
        secret = key.encode() if isinstance(key, str) else key
        if secret is not None and len(secret) < _SHORTEST_KEY:
            raise DefinitionError(f"key has {len(secret)} bytes, and {_SHORTEST_KEY} are the least: use a random one")
        self._secret = secret
        # Callers choose the arguments: their hashes are never those of lines, which are made with a key of their own.
        self._of_lines = None if secret is None else _hmac(secret, b"gemel receipts: lines")
        #: Tells keys apart, and nothing about the key; None without one.
        self.id = None if secret is None else _hmac(secret, b"gemel receipts: id").hex()[:16]

    def arguments(self, text: bytes) -> str:
        """The hash of arguments, given as JSON text, with the way it was made.

        `-raw` says that they have no canonical form, because they are not JSON or nested too deeply: then it is that of the text.
        """
        raw = ""
        try:
            text = canonical_json(text)
        except (ValueError, RecursionError):
            raw = "-raw"
        if self._secret is None:
            return f"sha256{raw}:{sha256(text).hexdigest()}"
        return f"hmac-sha256{raw}:{_hmac(self._secret, text).hex()}"

    def line(self, text: bytes) -> str:
        """The hash of a line."""
        return (sha256(text).digest() if self._of_lines is None else _hmac(self._of_lines, text)).hex()


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


class Position(NamedTuple):
    """The end of a chain: the number and the hash of its last line; 0 and None at its beginning."""

    n: int = 0
    hash: str | None = None


class Line(NamedTuple):
    """A line that was read."""

    members: dict[str, Any]
    #: The bytes that its hash is made of.
    hashed: bytes

    @property
    def position(self) -> Position:
        """The end of the chain behind it."""
        return Position(self.members["n"], self.members["hash"])


def write_line(members: dict[str, Any], before: Position, key: HashKey) -> tuple[bytes, Position]:
    """The next line of a chain, with the end of line, and the position behind it."""
    text = _encoder.encode({"n": before.n + 1, **members, "before": before.hash})
    hashed = text[:-1].encode("ascii")
    digest = key.line(hashed)
    return hashed + _HASH + digest.encode() + b'"}\n', Position(before.n + 1, digest)


def read_line(text: bytes) -> Line | None:
    """A line, without its end; None if it has not the form of one. Its hash is not checked."""
    if text[-_TAIL : -_TAIL + len(_HASH)] != _HASH:
        return None
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict):
        return None
    n, before, digest = members.get("n"), members.get("before", 0), members.get("hash")
    if type(n) is not int or not isinstance(before, str | None) or not isinstance(digest, str):
        return None
    return Line(members, text[:-_TAIL]) if text.endswith(f'"hash":"{digest}"}}'.encode()) else None


def timestamp(seconds: float) -> str:
    """A time as lines have it: UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
