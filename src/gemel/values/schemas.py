"""JSON Schemas of types that msgspec and pydantic list in another way than they read or write them."""

from __future__ import annotations

from enum import STRICT, Flag
from typing import Any

#: The items of a set of any values.
HASHABLE = {"type": ["string", "number", "boolean", "null"]}
#: A keyword for the values of an enum or a Literal that are read if they are the keys of an object. It is not listed.
READ_KEYS = "x-gemel-read-keys"
#: A flag without gaps is a range of integers; of others up to so many combinations are listed.
_MOST_COMBINATIONS = 64
#: A date and time without a time zone, for which there is no format.
_NAIVE_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?$"
_NAIVE = {"date-time": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]" + _NAIVE_TIME, "time": "^" + _NAIVE_TIME}
#: Numbers as the keys of an object.
INTEGER_KEY = "^-?(0|[1-9][0-9]*)$"
NATURAL_KEY = "^(0|[1-9][0-9]*)$"
POSITIVE_KEY = "^[1-9][0-9]*$"
NEGATIVE_KEY = "^-[1-9][0-9]*$"
UNSIGNED_KEY = r"^(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
NUMBER_KEY = "^-?" + UNSIGNED_KEY.removeprefix("^")
#: What the patterns above stand for, for messages.
PATTERNS = {
    _NAIVE["date-time"]: 'date-time string without a time zone like "2026-01-31T12:00:00"',
    _NAIVE["time"]: 'time string without a time zone like "12:00:00"',
    INTEGER_KEY: "integer",
    NATURAL_KEY: "integer >= 0",
    POSITIVE_KEY: "integer >= 1",
    NEGATIVE_KEY: "integer <= -1",
    UNSIGNED_KEY: "number without a sign",
    NUMBER_KEY: "number",
}


def naive_form(pattern: str | None) -> str | None:
    """The format of which the pattern is the one without a time zone; None for other patterns."""
    return next((form for form, naive in _NAIVE.items() if naive == pattern), None)


def flag_schema(kind: type[Flag]) -> dict[str, Any]:
    """The schema of an `enum.Flag`: the combinations of its members, none included; any integer if it takes other bits."""
    if kind._boundary_ is not STRICT:  # type: ignore[attr-defined]  # of every flag
        return {"type": "integer"}
    bits = [member.value for member in kind]
    most = sum(bits)
    if most + 1 == 2 ** len(bits) or 2 ** len(bits) > _MOST_COMBINATIONS:
        return {"type": "integer", "minimum": 0, "maximum": most}
    combinations = [0]
    for bit in bits:
        combinations += [bit + other for other in combinations]
    return {"type": "integer", "enum": sorted(combinations)}


def moment_schema(form: str, *, zone: bool | None, reading: bool) -> dict[str, Any]:
    """The schema of a date-time or a time.

    Args:
        form: "date-time" or "time". These formats require a time zone.
        zone: Whether the type requires a time zone or forbids one; None for neither.
        reading: Whether it is the schema of what is read.
    """
    if zone is False:
        return {"type": "string", "pattern": _NAIVE[form]}
    return {"type": "string", "format": form} if zone or reading else {"type": "string"}


def duration_schema(*, reading: bool) -> dict[str, Any]:
    """The schema of a duration. The format has no sign and no fractions, which are written."""
    return {"type": "string", "format": "duration"} if reading else {"type": "string"}


def with_encoded_lengths(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of bytes whose lengths count characters of base64: four for each three bytes begun."""
    lengths: dict[str, Any] = {
        word: (schema[word] + 2) // 3 * 4 for word in schema if word in ("minLength", "maxLength")
    }
    return {**schema, **lengths}
