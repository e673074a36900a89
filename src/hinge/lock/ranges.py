"""Lowest and highest values, lengths and counts that schemas allow. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

#: Words that set a limit from below, with the ones that set it from above.
LOWEST = ("minimum", "minLength", "minItems", "minProperties")
HIGHEST = ("maximum", "maxLength", "maxItems", "maxProperties")
_EXCLUSIVE = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}


class Bound(NamedTuple):
    """A limit; `exclusive` says that the value itself lies outside."""

    value: int | float
    exclusive: bool = False


def bounds(word: str, schemas: Iterable[Any], *, whole: bool) -> Bound | None:
    """The strictest limit of this kind among schemas that hold together; `whole` says that there are only whole numbers."""
    found: Bound | None = None
    for schema in schemas:
        for key, exclusive in ((word, False), (_EXCLUSIVE.get(word, ""), True)):
            value = schema.get(key) if isinstance(schema, dict) else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                bound = _whole(word, Bound(value, exclusive)) if whole else Bound(value, exclusive)
                found = bound if found is None or _stricter(word, bound, found) else found
    return found


def within(word: str, inner: Bound | None, outer: Bound | None) -> bool:
    """Whether whatever keeps the inner limit keeps the outer one."""
    if outer is None:
        return True
    return inner is not None and not _stricter(word, outer, inner)


def empty(low: Bound | None, high: Bound | None) -> bool:
    """Whether nothing lies between the limits."""
    if low is None or high is None:
        return False
    return low.value > high.value or (low.value == high.value and (low.exclusive or high.exclusive))


def _stricter(word: str, one: Bound, other: Bound) -> bool:
    if one.value == other.value:
        return one.exclusive and not other.exclusive
    return one.value > other.value if word in LOWEST else one.value < other.value


def _whole(word: str, bound: Bound) -> Bound:
    """The same limit for whole numbers: the first one inside."""
    if word in LOWEST:
        return Bound(math.floor(bound.value) + 1 if bound.exclusive else math.ceil(bound.value))
    return Bound(math.ceil(bound.value) - 1 if bound.exclusive else math.floor(bound.value))
