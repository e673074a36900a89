"""What the options of the public doors may be: a table beside each door, and one line about a value that can't be.

Knows values. Must not know doors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from hinge.errors import DefinitionError, shorten


class Allowed(NamedTuple):
    """Whether a value can be, and the words for what can. A `secret` is not shown, whatever it is."""

    test: Callable[[Any], bool]
    words: str
    secret: bool = False


def check_values(given: Mapping[str, Any], table: Mapping[str, Allowed]) -> None:
    """Raises DefinitionError, in one line, for the first value that can't be; what isn't in the table isn't looked at."""
    for name, allowed in table.items():
        if name in given and not allowed.test(given[name]):
            value = given[name]
            shown = f"={shorten(' '.join(repr(value).split()), 80)}"
            if allowed.secret:
                shown = f" of type {type(value).__name__}"
            raise DefinitionError(f"{name}{shown} is not possible: {allowed.words}")


# ---------------------------------------------------------------- what is often allowed


def is_whole(value: Any, least: int, most: float = float("inf")) -> bool:
    """Whether it is a whole number, and no bool, within bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: Any, least: float = 0.0) -> bool:
    """Whether it is a number, and neither a bool nor NaN, of at least so much."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= least


def are_texts(value: Any) -> bool:
    """Whether it is a collection of texts, and not one text."""
    return _is_collection(value) and all(isinstance(one, str) for one in value)


def _is_collection(value: Any) -> bool:
    """What can be looked at and is still whole, unlike an iterator."""
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


def whole(least: int) -> Allowed:
    """A whole number."""
    return Allowed(lambda value: is_whole(value, least), f"use a whole number, {least} or more")


def one_of(*values: str) -> Allowed:
    """One of some texts."""
    return Allowed(lambda value: isinstance(value, str) and value in values, f"use {_listed(values)}")


def function(form: str) -> Allowed:
    """Something to be called; `form` is how to write it."""
    return Allowed(callable, f"write {form}")


def instance(kind: type | tuple[type, ...], form: str) -> Allowed:
    """A value of a type; `form` is how to write it."""
    return Allowed(lambda value: isinstance(value, kind), f"write {form}")


def several(test: Callable[[Any], bool], form: str) -> Allowed:
    """A list of what passes the test; `form` is how to write it."""

    def fits(value: Any) -> bool:
        return _is_collection(value) and not isinstance(value, Mapping) and all(map(test, value))

    return Allowed(fits, f"write {form}")


def texts_by_name(form: str) -> Allowed:
    """A mapping of texts to texts, which may be secrets."""

    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and are_texts(value) and are_texts(value.values())

    return Allowed(fits, f"write {form}", secret=True)


def or_none(allowed: Allowed) -> Allowed:
    """The same, or None."""
    return allowed._replace(test=lambda value: value is None or allowed.test(value), words=f"{allowed.words}, or None")


FLAG = Allowed(lambda value: isinstance(value, bool), "use True or False")
TEXT = Allowed(lambda value: isinstance(value, str), "write a text")
SECONDS = Allowed(is_number, "use seconds, 0 or more")
TEXTS = Allowed(are_texts, "write a list of texts")
METHOD_NAMES = Allowed(are_texts, 'write methods={"tools/call"}')
PATH = Allowed(lambda value: isinstance(value, str | os.PathLike), "write the path of a file")
FOLDER = PATH._replace(words="write the path of a folder")


def _listed(values: tuple[str, ...]) -> str:
    quoted = [f'"{value}"' for value in values]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
