"""The one line about a value that an option can't have."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import DefinitionError
from gemel.options import (
    FLAG,
    SECONDS,
    TEXT,
    Check,
    are_texts,
    check_values,
    is_number,
    is_whole,
    one_of,
    or_none,
    several,
    texts_by_name,
    whole,
)


def told(value: Any, allowed: Check) -> str:
    with pytest.raises(DefinitionError) as caught:
        check_values({"x": value}, {"x": allowed})
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "allowed", "words"),
    [
        ("5", whole(1), "x='5' is not possible: use a whole number, 1 or more"),
        (True, whole(0), "x=True is not possible: use a whole number, 0 or more"),
        (1.0, whole(0), "x=1.0 is not possible: use a whole number, 0 or more"),
        (-0.1, SECONDS, "x=-0.1 is not possible: use seconds, 0 or more"),
        (float("nan"), SECONDS, "x=nan is not possible: use seconds, 0 or more"),
        (1, FLAG, "x=1 is not possible: use True or False"),
        (5, or_none(TEXT), "x=5 is not possible: write a text, or None"),
        ("c", one_of("a", "b"), 'x=\'c\' is not possible: use "a" or "b"'),
        ([], one_of("a"), 'x=[] is not possible: use "a"'),
        ("ab", several(callable, "x=[…]"), "x='ab' is not possible: write x=[…]"),
        ({}, several(callable, "x=[…]"), "x={} is not possible: write x=[…]"),
        (iter([len]), several(lambda one: True, "x=[…]"), "is not possible: write x=[…]"),  # looking would use it up
        ("two\nlines", FLAG, "x='two\\nlines' is not possible: use True or False"),
    ],
)
def test_what_is_wrong_and_what_is_allowed(value: Any, allowed: Check, words: str) -> None:
    assert told(value, allowed).endswith(words)


def test_a_value_is_one_line_and_not_long() -> None:
    class Long:
        def __repr__(self) -> str:
            return "a\nb" * 1000

    text = told(Long(), FLAG)
    assert "\n" not in text
    assert len(text) < 200


@pytest.mark.parametrize("value", ["hunter2", {"KEY": b"hunter2"}, ["hunter2"]])
def test_what_may_be_a_secret_is_not_shown(value: Any) -> None:
    text = told(value, texts_by_name("x={…}"))
    assert "hunter2" not in text
    assert text == f"x of type {type(value).__name__} is not possible: write x={{…}}"


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (1, whole(1)),
        (0, SECONDS),
        (float("inf"), SECONDS),
        (None, or_none(TEXT)),
        ("", TEXT),
        ((len,), several(callable, "")),
        ({len}, several(callable, "")),
        ([], several(callable, "")),
        ({"A": "b"}, texts_by_name("")),
        ({}, texts_by_name("")),
    ],
)
def test_what_is_allowed_passes(value: Any, allowed: Check) -> None:
    check_values({"x": value, "other": object()}, {"x": allowed, "absent": FLAG})


def test_numbers_and_collections_are_what_they_seem() -> None:
    assert is_whole(65535, 0, 65535)
    assert not is_whole(65536, 0, 65535)
    assert is_number(0)
    assert not is_number(0, 1)
    assert are_texts(("a", "b"))
    assert not are_texts("ab")
    assert not are_texts(b"ab")
    assert not are_texts(["a", 1])
