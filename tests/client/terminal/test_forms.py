"""Fields of forms: what is asked for, and what typed text becomes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from gemel.client.terminal.forms import FormField, form_fields


def field(schema: Any, required: bool = False) -> FormField:
    return FormField("it", schema, required, {})


TITLED = {"type": "string", "oneOf": [{"const": "a", "title": "Aisle"}, {"const": "w", "title": "Window"}]}
NAMED = {"type": "string", "enum": ["a", "w"], "enumNames": ["Aisle", "Window"]}
MANY = {"type": "array", "items": {"type": "string", "enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 2}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, " as it is ", " as it is "),
        ({"type": "string", "format": "email"}, "ada@example.org", "ada@example.org"),
        ({"type": "string", "format": "uri"}, "urn:isbn:1", "urn:isbn:1"),
        ({"type": "string", "format": "date"}, "2031-05-17", "2031-05-17"),
        ({"type": "string", "format": "date-time"}, "2031-05-17T20:15:00Z", "2031-05-17T20:15:00Z"),
        ({"type": "string", "format": "made-up"}, "x", "x"),
        ({"type": "integer"}, " -42 ", -42),
        ({"type": "number"}, "3", 3),
        ({"type": "number"}, "-.5e1", -5.0),
        ({"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}, "0.30", "0.30"),
        (
            {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}, {"type": "null"}]},
            "12345678901234567.89",
            "12345678901234567.89",
        ),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "off", False),
        (TITLED, "2", "w"),
        (TITLED, "Window", "w"),
        (TITLED, "a", "a"),
        (NAMED, "win", "w"),
        ({"type": "string", "enum": ["3", "1"]}, "1", "1"),
        (MANY, "red, 3", ["red", "blue"]),
        ({"type": "array", "items": {"anyOf": [{"const": "x", "title": "Ex"}]}}, "none", []),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"anyOf": [{"type": "integer", "maximum": 9}, {"type": "null"}]}, "7", 7),
    ],
)
def test_text_becomes_a_value_of_the_field(schema: Any, text: str, value: Any) -> None:
    """ELIC-06, ELIC-07, ELIC-08."""
    found = field(schema).parse(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "text", "word"),
    [
        ({"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}, "much", "is not a number"),
        ({"type": "string", "minLength": 3}, "ab", "shorter than 3"),
        ({"type": "string", "maxLength": 3}, "abcd", "longer than 3"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "A1", "does not match"),
        ({"type": "string", "format": "email"}, "ada@", "such as ada@example.org"),
        ({"type": "string", "format": "uri"}, "example.org", "such as https://"),
        ({"type": "string", "format": "date"}, "17.5.2031", "year-month-day"),
        ({"type": "string", "format": "date"}, "2031-02-30", "year-month-day"),
        ({"type": "string", "format": "date-time"}, "2031-05-17T20:15:00", "zone"),
        ({"type": "integer"}, "1.5", "not a whole number"),
        ({"type": "integer"}, "1_0", "not a whole number"),
        ({"type": "integer", "minimum": 3}, "2", "less than the minimum of 3"),
        ({"type": "number"}, "3,5", "such as 3.5"),
        ({"type": "number"}, "1e999", "not a number"),
        ({"type": "number"}, "nan", "not a number"),
        ({"type": "boolean"}, "perhaps", "type y"),
        (TITLED, "3", "a number from 1 to 2"),
        ({"type": "string", "enum": ["1", "12"]}, "2", "one of the names"),
        (MANY, "red, green, blue", "more than 2"),
        (MANY, "", "less than 1"),
        (MANY, "red,pink", "'pink' is not one of"),
        ({"type": "object"}, "{", "not JSON"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_a_hint(schema: Any, text: str, word: str) -> None:
    """ELIC-24."""
    with pytest.raises(ValueError, match=word):
        field(schema).parse(text)


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"type": "string", "minLength": 1, "maxLength": 5}, "1 to 5 characters"),
        ({"type": "string", "minLength": 1}, "at least 1 character"),
        ({"type": "string", "format": "date"}, "a date (year-month-day)"),
        ({"type": "integer", "minimum": 1}, "a whole number, at least 1"),
        ({"type": "number", "maximum": 2.5}, "a number, at most 2.5"),
        (MANY, "one or more of these, separated by commas, 1 to 2"),
        (TITLED, "one of these"),
    ],
)
def test_a_field_says_what_may_be_typed(schema: Any, hint: str) -> None:
    assert field(schema, required=True).hint == hint
    assert field(schema).hint == f"{hint}, optional"


def test_a_default_that_does_not_fit_is_none() -> None:
    assert field({"type": "integer", "default": 5}).default == 5
    assert field({"type": "integer", "maximum": 3, "default": 5}).default is UNSET
    assert field({"type": "integer", "default": None}).default is UNSET


def test_references_to_definitions_are_followed() -> None:
    schema = {"properties": {"seat": {"$ref": "#/$defs/Seat"}}, "$defs": {"Seat": TITLED}}
    (seat,) = form_fields(schema)
    assert seat.parse("Window") == "w"


@pytest.mark.parametrize("name", ["password", "api_key", "accessToken", "PIN", "credit card"])
def test_a_field_for_a_secret_is_recognised(name: str) -> None:
    assert FormField(name, {"type": "string"}, True, {}).secret
    assert not field({"type": "string", "title": "Shopping list"}).secret


def test_what_is_no_form_is_refused() -> None:
    with pytest.raises(ValueError, match="101 fields"):
        form_fields({"properties": {str(number): {} for number in range(101)}})
    with pytest.raises(ValueError, match="can't be read"):
        form_fields({"properties": [1]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
KEYS = [
    "type",
    "title",
    "enum",
    "enumNames",
    "oneOf",
    "anyOf",
    "items",
    "default",
    "format",
    "$ref",
    "minimum",
    "const",
]


@given(st.dictionaries(st.sampled_from(KEYS), JSON | st.sampled_from(["string", "array", "integer"])), st.text())
def test_no_schema_that_a_server_makes_up_does_harm(schema: Any, text: str) -> None:
    it = field(schema)
    assert isinstance(it.hint + it.title + it.description, str)
    if it.default is not UNSET:
        it.format(it.default)
    with contextlib.suppress(ValueError):  # the only way to fail
        it.format(it.parse(text))
