"""Schemas that somebody else wrote: by the dialect that they name, within bounds, and with nothing fetched."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from hinge.protocol.validation import MAX_BYTES, MAX_DEPTH, compile_schema, first_problem

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
NEWEST = "https://json-schema.org/draft/2020-12/schema"


def nested(depth: int) -> Any:
    schema: Any = {"type": "integer"}
    for _ in range(depth - 1):  # the word "integer" is a level of its own
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "object"}, {}, None),
        ({"type": "object"}, [], 'the value is not of type "object"'),
        ({"properties": {"a": {"items": {"type": "string"}}}}, {"a": ["x", 1]}, "a.1: "),
        ({"properties": {"a": False}}, {"a": 1}, "a: "),
        (True, None, None),
        (False, None, "False"),
    ],
)
def test_a_value_that_does_not_fit_is_told_where(schema: Any, value: Any, problem: str | None) -> None:
    found = first_problem(compile_schema(schema), value)
    assert (found is None) == (problem is None)
    assert problem is None or problem in str(found)


def test_the_newest_dialect_is_meant_unless_another_is_named() -> None:
    """JSON-01: `prefixItems` is a word of the newest dialect, `items` with a list one of older ones."""
    pair = {"prefixItems": [{"type": "integer"}]}
    older = {"items": [{"type": "integer"}]}
    assert first_problem(compile_schema(pair), ["x"]) is not None
    assert first_problem(compile_schema({"$schema": NEWEST, **pair}), ["x"]) is not None
    assert first_problem(compile_schema({"$schema": DRAFT_07, **pair}), ["x"]) is None
    assert first_problem(compile_schema({"$schema": DRAFT_07, **older}), ["x"]) is not None


@pytest.mark.parametrize(
    "schema", [{"type": "no type"}, {"minimum": "1"}, {"properties": []}, 7, "x", {"pattern": "("}]
)
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    """JSON-01."""
    with pytest.raises(ValueError, match="no usable JSON Schema"):
        compile_schema(schema)


@pytest.mark.parametrize(
    "reference",
    ["http://127.0.0.1:1/schema.json", "https://example.com/x", "file:///etc/passwd", "other.json", "urn:x:y"],
)
@pytest.mark.parametrize("word", ["$ref", "$dynamicRef"])
def test_nothing_outside_the_schema_is_ever_fetched(word: str, reference: str) -> None:
    """JSON-02, JSON-03, SEC-11."""
    with pytest.raises(ValueError, match="no usable JSON Schema"):
        compile_schema({"properties": {"a": {word: reference}}})


def test_references_within_the_schema_are_followed() -> None:
    """JSON-02: by pointer, by anchor, by its own name, and in a circle."""
    tree = {
        "$id": "https://example.com/tree",
        "$defs": {"leaf": {"$anchor": "leaf", "type": "integer"}},
        "properties": {
            "a": {"$ref": "#/$defs/leaf"},
            "b": {"$ref": "#leaf"},
            "c": {"$ref": "https://example.com/tree"},
            "d": {"$ref": "#"},
        },
    }
    validator = compile_schema(tree)
    assert first_problem(validator, {"a": 1, "b": 2, "c": {"a": 3}, "d": {"d": {"b": 4}}}) is None
    for wrong in ({"a": "x"}, {"b": "x"}, {"c": {"a": "x"}}, {"d": {"d": {"b": "x"}}}):
        assert first_problem(validator, wrong) is not None


def test_a_schema_may_be_so_deep_and_so_large_and_no_more() -> None:
    """JSON-04."""
    compile_schema(nested(MAX_DEPTH - 1))
    with pytest.raises(ValueError, match=f"deeper than {MAX_DEPTH}"):
        compile_schema(nested(MAX_DEPTH))
    compile_schema({"description": "x" * (MAX_BYTES - 100)})
    with pytest.raises(ValueError, match=f"larger than {MAX_BYTES} bytes"):
        compile_schema({"description": "x" * MAX_BYTES})


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, {"allOf": [{"$ref": "#"}]}]
)
def test_a_circle_of_references_forbids_nothing_and_ends(schema: Any) -> None:
    """JSON-04."""
    assert first_problem(compile_schema(schema), {"x": [{"x": 1}]}) is None


@pytest.mark.parametrize("dialect", ["https://example.com/dialect", 7])
def test_an_unknown_dialect_is_refused(dialect: Any) -> None:
    """JSON-01: not read by some other dialect."""
    with pytest.raises(ValueError, match="no usable JSON Schema"):
        compile_schema({"$schema": dialect, "type": "object"})


def test_a_pattern_takes_linear_time() -> None:
    """JSON-04: where an engine that goes back would not end within the age of the world."""
    validator = compile_schema({"pattern": "^(a+)+$"})
    before = time.process_time()
    assert first_problem(validator, "a" * 50_000 + "!") is not None
    assert time.process_time() - before < 5


def test_the_library_is_loaded_with_the_first_schema() -> None:
    code = "import hinge.protocol.validation, sys; assert 'jsonschema_rs' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "schema",
    [{"type": "integer"}, {"enum": [1]}, {"pattern": "^x"}, {"maxLength": 3}, {"not": {}}, {"format": "x", "const": 1}],
)
def test_the_value_itself_is_not_told(schema: Any) -> None:
    """It may be a secret, and it is the other side's."""
    found = first_problem(compile_schema({"properties": {"a": schema}}), {"a": "canary" * 1000})
    assert found is not None
    assert found.startswith("a: ")
    assert "canary" not in found
