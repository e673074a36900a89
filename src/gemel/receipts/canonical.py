"""Canonical JSON: one text for each JSON value, so that equal arguments have equal hashes.

The form is that of RFC 8785, with one difference: integers are written with all their digits, where RFC 8785 rounds those
beyond 2**53 to the nearest double.
"""

from __future__ import annotations

import json
import math
import re
from json.encoder import encode_basestring as _quote
from typing import Any, NoReturn

#: The last character that is one UTF-16 code unit: without others, code points sort as code units do.
_LAST_OF_BMP = chr(0xFFFF)
#: Doubles below this are written without exponent (ECMA-262, Number::toString).
_MOST_DIGITS = 21


def canonical_json(text: str | bytes) -> bytes:
    """Return a JSON text in canonical form.

    Members are sorted by the UTF-16 code units of their names, there is no white space, and of two members of one name the last
    one counts. Numbers are written as ECMAScript does, integers with all their digits; 1.0 is 1. A surrogate that is not part of
    a pair is written as its three bytes.

    Args:
        text: The JSON text, UTF-8 if it is bytes.

    Returns:
        The canonical text, UTF-8.

    Raises:
        ValueError: It is not JSON, or has a number that no double is near to.
        RecursionError: It is nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    value = _decoder.decode(text)
    if _may_be_float(text) is None:
        written = _encoder.encode(value)
        if written.isascii() or max(written) <= _LAST_OF_BMP:
            return written.encode("utf-8", "surrogatepass")
    return _write(value).encode("utf-8", "surrogatepass")


def _read_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is beyond the range of a double")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decoder = json.JSONDecoder(parse_float=_read_float, parse_constant=_refuse)
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
#: Without a digit before a point or an exponent there is no number that is not an integer.
_may_be_float = re.compile(r"[0-9][.eE]").search


def _write(value: Any) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join([f"{_quote(name)}:{_write(each)}" for name, each in members]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    return _write_float(value) if isinstance(value, float) else json.dumps(value)


def _write_float(value: float) -> str:
    """A double as ECMA-262 writes it: the shortest digits that give it back, without exponent from 1e-6 to below 1e21."""
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    # The value is 0.DIGITS times ten to the power of `point`.
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).rstrip("0")
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.lstrip("0")
    count = len(digits)
    if count <= point <= _MOST_DIGITS:
        return sign + digits + "0" * (point - count)
    if 0 < point <= _MOST_DIGITS:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    power = f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return sign + digits[0] + (f".{digits[1:]}" if count > 1 else "") + power
