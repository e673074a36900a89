"""Strings that are not Unicode, as the names of files may be: Python keeps their bytes as lone surrogates, which JSON can't.

They are replaced in values that could not be encoded, so that all others cost nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

#: Members that are URIs or templates of them.
_URIS = frozenset({"uri", "uriTemplate", "uri_template", "url", "resourceSubscriptions", "resource_subscriptions"})
#: Members by which the peer finds something again: with other characters it would find something else, or nothing.
_KEYS = frozenset({"cursor", "nextCursor", "next_cursor", "requestState", "request_state", "taskId", "task_id"})
#: A byte that is not UTF-8, as Python keeps it ("surrogateescape").
_BYTE = re.compile("[\udc80-\udcff]")


def is_unicode(text: str) -> bool:
    """Whether a string has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_uri(text: str) -> str:
    """A URI with its bytes that are not UTF-8 percent-encoded, so that it still names the same. Raises ValueError for others."""
    if text.isascii():
        return text
    uri = _BYTE.sub(lambda byte: f"%{ord(byte[0]) - 0xDC00:02X}", text)
    if not is_unicode(uri):
        raise ValueError(f"The URI {text!a} is not Unicode: percent-encode it")
    return uri


def replace_surrogates(value: object, convert: Callable[[Any], Any] | None = None, *, member: str = "") -> Any:
    """The value with U+FFFD in place of each lone surrogate in its strings; in URIs percent-encoded bytes.

    Args:
        value: Any value that can be encoded as JSON but for its strings.
        convert: Makes a simpler value of one that msgspec does not know, like `enc_hook`.
        member: The name of the member that the value has.

    Returns:
        A value to be encoded in its place.

    Raises:
        ValueError: The string identifies something, such as a cursor, or two names of members would become equal.
        TypeError: A part can't be converted.
    """
    if isinstance(value, str):
        return value if is_unicode(value) else _replaced(value, member)
    if isinstance(value, dict):
        parts = {replace_surrogates(key, convert): _part(part, convert, key) for key, part in value.items()}
        if len(parts) < len(value):
            raise ValueError("two names of members differ only in what is not Unicode")
        return parts
    if isinstance(value, (list, tuple, set, frozenset)):
        return [replace_surrogates(item, convert, member=member) for item in value]
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        parts = {name: _part(part, convert, name) for name, part in fields.items()}
        return msgspec.structs.replace(
            value, **{name: part for name, part in parts.items() if part is not fields[name]}
        )
    if value is None or value is UNSET or isinstance(value, (bool, int, float, bytes, bytearray, Raw, UnsetType)):
        return value
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=convert)
    return plain if plain is value else replace_surrogates(plain, convert, member=member)


def _part(value: object, convert: Callable[[Any], Any] | None, member: object) -> Any:
    return replace_surrogates(value, convert, member=member if isinstance(member, str) else "")


def _replaced(text: str, member: str) -> str:
    if member in _URIS:
        return as_uri(text)
    if member in _KEYS:
        raise ValueError(f"{member} can't be {text!a}, which is not Unicode")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
