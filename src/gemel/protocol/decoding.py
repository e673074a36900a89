"""Reading large JSON texts: how many values they hold, known before, since libraries can't be interrupted; and quickly."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Raw

from gemel.errors import InvalidParams

#: Shorter text is not counted, and read with the collector.
SMALL = 4096
#: A number with an exponent of three digits counts as so many values: beyond 1e288 msgspec needs 18 µs for one.
_LONG_EXPONENT = 200
#: So do so many digits in a row: msgspec converts long integers and fractions digit by digit.
_DIGITS, _DIGITS_COUNT = b"0" * 16, 2

#: Digits and points become 0, signs a minus, and what comes with one more value or name a comma.
_ALIKE = bytes.maketrans(b"123456789.E+[{:", b"0000000000e-,,,")


def check_values(text: bytes | Raw, limit: int) -> None:
    """Raise InvalidParams for JSON text with more values than `limit`. The work is linear in the length of the text.

    Each number, string, array and object counts, and so does each name of a member. Numbers that are slow to decode count
    several times.
    """
    alike = bytes(text).translate(_ALIKE)
    count = _count(alike)
    if count > limit and count - _count(_strings(alike, limit)) > limit:
        raise InvalidParams(f"Too many values: at most {limit:,} values and names of members are accepted")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Many new objects would start the garbage collector again and again: most of the time of a large text."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _count(alike: bytes) -> int:
    long_exponents = alike.count(b"0e000") + alike.count(b"0e-000")
    return alike.count(b",") + _LONG_EXPONENT * long_exponents + _DIGITS_COUNT * alike.count(_DIGITS)


def _strings(text: bytes, limit: int) -> bytes:
    """What is inside of strings, with a quote between them; nothing if there are more strings than `limit`."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    if text.count(b'"') > 2 * limit:
        return b""
    return b'"'.join(text.split(b'"')[1::2])
