"""One text for one JSON value, and its fingerprint: RFC 8785, except for numbers, which keep all their digits.

Knows JSON only; what the parts of a schema mean is `normal`'s.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import msgspec

#: How a fingerprint begins: the name of its digest.
ALGORITHM = "sha256:"

_text = msgspec.json.Encoder()


def canonical(value: object, texts: dict[int, str] | None = None) -> str:
    """The value as JSON without blanks, members in the order of their UTF-16 code units (RFC 8785 section 3.2).

    Numbers that are equal are written alike: whole ones as digits (`1.0` and `1` are `1`), all others in the shortest
    form that reads back as the same number, as ECMAScript writes it. `known` are texts of objects, by their `id`: where
    parts of one value are written again and again. Raises ValueError for what isn't JSON.
    """
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        if texts is not None and id(value) in texts:
            return texts[id(value)]
        members = [f"{_quoted(key)}:{canonical(value[key], texts)}" for key in _in_order(value)]
        return f"{{{','.join(members)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join([canonical(one, texts) for one in value])}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if value is None:
        return "null"
    raise ValueError(f"{type(value).__name__} is not JSON")


def _in_order(names: Iterable[str]) -> list[str]:
    """By UTF-16 code units: the order of the characters, where all are of ASCII."""
    return sorted(names, key=None if all(map(str.isascii, names)) else _utf16)


def fingerprint(value: Any) -> str:
    """`sha256:` and the digest of the canonical text in UTF-8, in hexadecimal."""
    return ALGORITHM + hashlib.sha256(canonical(value).encode()).hexdigest()


def _number(value: float) -> str:
    """A number as ECMAScript writes it, but whole ones always as digits."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not JSON")
    if value.is_integer():
        return str(int(value))
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "")
    power = int(exponent)  # negative: whatever is so large as to have a positive one is whole
    if power < -6:
        point = "." if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{point}{digits[1:]}e{power}"
    return f"{sign}0.{'0' * (-power - 1)}{digits}"


def _quoted(text: str) -> str:
    try:
        return _text.encode(text).decode()
    except UnicodeEncodeError as exc:
        raise ValueError(f"{text!r} is not Unicode text") from exc


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
