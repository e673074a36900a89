"""Which keywords of JSON Schema hold schemas, by all drafts, and which hold values."""

from __future__ import annotations

from typing import Any

import pytest

from gemel.protocol.schema_keywords import with_inner

INNER: dict[str, Any] = {"type": "string"}
CHANGED = "changed"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"not": INNER, "items": True}, {"not": CHANGED, "items": CHANGED}),
        ({"anyOf": [INNER, False], "prefixItems": [INNER]}, {"anyOf": [CHANGED, CHANGED], "prefixItems": [CHANGED]}),
        # Draft 7: a list of schemas by place, and dependencies of both kinds.
        ({"items": [INNER, True]}, {"items": [CHANGED, CHANGED]}),
        ({"dependencies": {"a": INNER, "b": ["a"]}}, {"dependencies": {"a": CHANGED, "b": ["a"]}}),
        ({"properties": {"a": INNER}, "$defs": {"b": True}}, {"properties": {"a": CHANGED}, "$defs": {"b": CHANGED}}),
    ],
)
def test_each_schema_directly_inside_a_schema_is_replaced(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert with_inner(schema, lambda word, one: CHANGED) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [INNER, "a"], "required": ["a"], "type": ["string", "null"]},
        {"const": {"properties": INNER}, "default": INNER, "examples": [INNER]},
        {"dependentRequired": {"a": ["b"]}},
        # Not valid, and left to the check of the schema.
        {"properties": 5, "anyOf": 5, "dependencies": 5},
        {"properties": [INNER], "$defs": [INNER], "dependencies": [INNER]},
    ],
)
def test_values_in_a_schema_are_left_alone(schema: dict[str, Any]) -> None:
    assert with_inner(schema, lambda word, one: CHANGED) == schema
