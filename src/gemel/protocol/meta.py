"""How `_meta` keys and the ids of extensions may be written, and which keys are the protocol's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gemel.errors import DefinitionError, shorten

_LABEL = r"[A-Za-z](?:[A-Za-z0-9\-]*[A-Za-z0-9])?"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9\-_.]*[A-Za-z0-9])?"
_PREFIX = rf"{_LABEL}(?:\.{_LABEL})*/"
_KEY = re.compile(rf"(?:{_PREFIX})?(?:{_NAME})?")
_ID = re.compile(rf"{_PREFIX}{_NAME}")
#: W3C Trace Context: version, trace id, span id and flags.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

#: A prefix is the protocol's where one of these is its second label, or, as the first revision of that rule had it, any
#: but its last.
_OWNERS = frozenset({"modelcontextprotocol", "mcp"})

#: The keys without a prefix that carry a trace, each with a text.
TRACE_KEYS = ("traceparent", "tracestate", "baggage")


def check_extension_id(text: str, owner: str) -> None:
    """Raise DefinitionError unless it is a `_meta` key with a prefix; `owner` is the class that has this id."""
    if _ID.fullmatch(text) is None:
        example = "it needs a prefix and a name, as in com.example/search"
        raise DefinitionError(f"The extension {owner} has the id {shorten(text)!r}: {example}")


def is_reserved(key: str) -> bool:
    """Whether only the specification may give the key a meaning, in any revision."""
    prefix, slash, _ = key.partition("/")
    labels = prefix.split(".")
    return key == "progressToken" or (bool(slash) and not _OWNERS.isdisjoint({*labels[:-1], *labels[1:2]}))


def check_meta(meta: Mapping[Any, Any]) -> None:
    """Raises DefinitionError, in one line, for what a user can't put into the `_meta` of a message."""
    for key, value in meta.items():
        if not isinstance(key, str) or not key or _KEY.fullmatch(key) is None:
            raise DefinitionError(f"meta: {shorten(repr(key))} is not a key for _meta: write one like com.example/team")
        if is_reserved(key):
            raise DefinitionError(
                f"meta: {shorten(key)!r} belongs to the protocol: take a prefix of your own, com.example/…"
            )
        if key in TRACE_KEYS and not _is_trace(key, value):
            raise DefinitionError(f"meta: {key!r} must be a text as W3C Trace Context and Baggage write it")


def _is_trace(key: str, value: object) -> bool:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        return False
    return key != "traceparent" or _TRACEPARENT.fullmatch(value) is not None
