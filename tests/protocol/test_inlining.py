"""Schemas without references: the same meaning, no larger than twice the size, recursive parts left alone."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.protocol.inlining import inline_references
from hinge.protocol.validation import MAX_DEPTH, compile_schema, depth
from tests.contracts.schemas import VALUES, schemas

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
INTEGER = {"type": "integer"}


def ref(name: str, **more: Any) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}", **more}


def arguments(definitions: dict[str, Any], /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "$defs": definitions}


def inlined(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


COLOUR: dict[str, Any] = {"type": "string", "enum": ["red", "blue"]}
NODE: dict[str, Any] = {
    "type": "object",
    "properties": {"value": ref("C"), "kids": {"type": "array", "items": ref("Node")}},
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (arguments({"C": COLOUR}, c=ref("C")), inlined(c=COLOUR)),
        # Values are no schemas, whatever they look like.
        (
            arguments({"C": COLOUR}, c=ref("C"), d={"enum": [ref("C")]}),
            inlined(c=COLOUR, d={"enum": [ref("C")]}),
        ),
        # An object keeps the name of its definition.
        (
            arguments({"Day": {"properties": {"a": INTEGER}}}, a=ref("Day"), b=ref("Day", title="t")),
            inlined(a={"title": "Day", "properties": {"a": INTEGER}}, b={"title": "t", "properties": {"a": INTEGER}}),
        ),
        # Annotations beside a reference replace those of the definition.
        (
            arguments({"C": {**COLOUR, "description": "a"}}, c=ref("C", description="b", default="red")),
            inlined(c={**COLOUR, "description": "b", "default": "red"}),
        ),
        # What restricts values counts together with the definition, and before 2019-09 not at all.
        (arguments({"C": COLOUR}, c=ref("C", minLength=4)), inlined(c={"minLength": 4, "allOf": [COLOUR]})),
        (
            {"$schema": DRAFT_7, **arguments({"C": COLOUR}, c=ref("C", minLength=4, title="t"))},
            {"$schema": DRAFT_7, **inlined(c={**COLOUR, "title": "t"})},
        ),
        # Definitions in definitions, anchors, escapes, places outside of definitions, the address of the schema.
        (arguments({"L": {"items": ref("C")}, "C": COLOUR}, c=ref("L")), inlined(c={"items": COLOUR})),
        (arguments({"C": {**COLOUR, "$anchor": "hue"}}, c={"$ref": "#hue"}), inlined(c=COLOUR)),
        (arguments({"a/b~c %": COLOUR}, c={"$ref": "#/$defs/a~1b~0c%20%25"}), inlined(c=COLOUR)),
        (inlined(a=INTEGER, b={"$ref": "#/properties/a"}), inlined(a=INTEGER, b=INTEGER)),
        (
            {"$id": "https://a.example/s", **arguments({"C": COLOUR}, c={"$ref": "https://a.example/s#/$defs/C"})},
            {"$id": "https://a.example/s", **inlined(c=COLOUR)},
        ),
        (ref("C") | {"$defs": {"C": {"type": "object"}}}, {"type": "object"}),
        ({"$defs": {"A": True, "B": False}, "allOf": [ref("A", title="t"), ref("B")]}, {"allOf": [{"title": "t"}, {"not": {}}]}),
        # A property may be called $ref, and data isn't a schema.
        (
            arguments({"C": COLOUR}, **{"$ref": ref("C"), "d": {"const": ref("C")}}),
            inlined(**{"$ref": COLOUR, "d": {"const": ref("C")}}),
        ),
        # Recursive definitions stay, with nothing else in them.
        (
            arguments({"Node": NODE, "C": COLOUR}, tree=ref("Node"), c=ref("C")),
            arguments({"Node": {**NODE, "properties": {**NODE["properties"], "value": COLOUR}}}, tree=ref("Node"), c=COLOUR),
        ),
        (
            {**inlined(kids={"items": {"$ref": "#"}}, c=ref("C")), "$defs": {"C": COLOUR}},
            inlined(kids={"items": {"$ref": "#"}}, c=COLOUR),
        ),
        (
            inlined(result={"items": {"$ref": "#/properties/result/$defs/C"}, "$defs": {"C": COLOUR}}),
            inlined(result={"items": COLOUR}),
        ),
    ],
)  # fmt: skip
def test_references_are_replaced_by_what_they_refer_to(schema: Any, expected: Any) -> None:
    before = msgspec.json.encode(schema)
    assert inline_references(schema) == expected
    assert msgspec.json.encode(schema) == before, "the given schema is not changed"


@pytest.mark.parametrize(
    "schema",
    [
        INTEGER,
        True,
        None,
        {"$ref": "https://elsewhere.example/s"},
        arguments({}, a=ref("nowhere")),
        arguments({"A": {"$id": "https://a.example/a", "$ref": "#/x", "x": INTEGER}}, a=ref("A")),
        arguments({"A": {"$dynamicAnchor": "a", "items": {"$dynamicRef": "#a"}}}, a=ref("A")),
        {"$schema": "https://example.com/own", **arguments({"C": COLOUR}, c=ref("C"))},
        # A header may be named once, and not in a definition.
        arguments({"C": {**COLOUR, "x-mcp-header": "C"}}, c=ref("C")),
        arguments({"A": {"$ref": "#/$defs/A"}}, a=ref("A")),
        {"$ref": {"$ref": 1}},
        {"$ref": "#/$defs/A", "$defs": {"A": [1]}},
        {"allOf": 1, "maximum": 1, "$ref": "#/$defs/A", "$defs": {"A": {}}},
        {"properties": {"a": {"$ref": "#/$defs/A"}, "b": object()}},
    ],
)  # fmt: skip
def test_what_cannot_be_inlined_is_returned_as_it_is(schema: Any) -> None:
    assert inline_references(schema) is schema


def doubling(levels: int) -> dict[str, Any]:
    """Each definition refers twice to the next one."""
    chain = {f"s{n}": {"properties": {"a": ref(f"s{n + 1}"), "b": ref(f"s{n + 1}")}} for n in range(levels)}
    return arguments({**chain, f"s{levels}": COLOUR}, a=ref("s0"))


def test_a_schema_never_becomes_more_than_twice_as_large() -> None:
    assert "$defs" not in inline_references(doubling(2))
    for levels in range(1, 60):
        schema = doubling(levels)
        assert len(msgspec.json.encode(inline_references(schema))) <= 2 * len(msgspec.json.encode(schema))
    deepest = doubling(59)
    assert inline_references(deepest) is deepest


@pytest.mark.parametrize(
    "schema",
    [
        doubling(60),
        arguments({f"s{n}": {"allOf": [ref(f"s{n + 1}")] * 10} for n in range(60)} | {"s60": True}, a=ref("s0")),
        arguments({"big": {"enum": ["x" * 1000] * 100}}, **{f"p{n}": ref("big") for n in range(5000)}),
        arguments({"big": {"properties": {"x" * 100_000: {}}}}, **{f"p{n}": ref("big") for n in range(5000)}),
        arguments({f"s{n}": ref(f"s{n + 1}") for n in range(3000)} | {"s3000": {}}, **{f"p{n}": ref("s0") for n in range(3000)}),
    ],
)  # fmt: skip
def test_building_stops_at_twice_the_size(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts that are built are bounded by the size, whatever they would have become."""
    import hinge.protocol.inlining as inlining

    built = 0
    build = inlining._Inliner._build

    def counting(self: Any, *args: Any, **more: Any) -> Any:
        nonlocal built
        built += 1
        return build(self, *args, **more)

    monkeypatch.setattr(inlining._Inliner, "_build", counting)
    assert inline_references(schema) is schema
    assert built <= len(msgspec.json.encode(schema))


def test_a_result_is_no_deeper_than_schemas_may_be() -> None:
    chain = {f"s{n}": {"items": ref(f"s{n + 1}")} for n in range(100)}
    schema = arguments({**chain, "s100": COLOUR}, a=ref("s0"))
    assert depth(inline_references(schema), MAX_DEPTH) <= MAX_DEPTH
    compile_schema(inline_references(schema))


@given(schemas(), st.lists(VALUES, max_size=5))
def test_the_meaning_stays(schema: Any, values: list[Any]) -> None:
    result = inline_references(schema, growth=10)
    try:
        before = jsonschema_rs.validator_for(schema)
    except (ValueError, jsonschema_rs.ValidationError):
        return
    after = jsonschema_rs.validator_for(result)
    for value in values:
        assert before.is_valid(value) == after.is_valid(value)
