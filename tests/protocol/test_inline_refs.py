"""Schemas without references: the same meaning, no larger than twice the size, recursive parts left alone."""

from __future__ import annotations

import tracemalloc
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.protocol.inline_refs import inline_references
from gemel.protocol.validation import MAX_BYTES, MAX_DEPTH, compile_schema, depth
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
OBJECT: dict[str, Any] = {"properties": {"a": INTEGER}}
TREE: dict[str, Any] = {"items": ref("Tree")}
WOOD: dict[str, Any] = {
    "$defs": {"Tree": {"items": {"$ref": "#/$defs/Wood/$defs/Tree"}}},
    "items": {"$ref": "#/$defs/Wood/$defs/Tree"},
}
BRANCH: dict[str, Any] = {"items": {"$ref": "#/properties/a/items"}}
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
        (arguments({"Day": {"title": "t", **OBJECT}}, a=ref("Day")), inlined(a={"title": "t", **OBJECT})),
        (arguments({"a/b": OBJECT}, a={"$ref": "#/%24defs/a~1b"}), inlined(a={"title": "a/b", **OBJECT})),
        (inlined(a=OBJECT, b={"$ref": "#/properties/a"}), inlined(a=OBJECT, b=OBJECT)),
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
        (
            {"$id": "https://a.example/s", **arguments({"C": COLOUR}, c={"$ref": "s#/$defs/C"}, d=ref("C"))},
            {"$id": "https://a.example/s", **inlined(c=COLOUR, d=COLOUR)},
        ),
        (
            {"$id": "urn:example:s", **arguments({"C": COLOUR}, c={"$ref": "urn:example:s#/$defs/C"}, d=ref("C"))},
            {"$id": "urn:example:s", **inlined(c=COLOUR, d=COLOUR)},
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
            {"$schema": DRAFT_7, **arguments({"Tree": TREE, "C": COLOUR}, tree=ref("Tree"), c=ref("C"))},
            {"$schema": DRAFT_7, **arguments({"Tree": TREE}, tree=ref("Tree"), c=COLOUR)},
        ),
        (
            inlined(result={"items": {"$ref": "#/properties/result/$defs/C"}, "$defs": {"C": COLOUR}}),
            inlined(result={"items": COLOUR}),
        ),
        # What holds a recursive definition stays with it, and its copies have no definitions.
        (arguments({"Wood": WOOD}, a=ref("Wood")), arguments({"Wood": WOOD}, a={"items": WOOD["items"]})),
        # A recursion beside a reference: see below for draft 7.
        (
            arguments({"C": COLOUR}, a=ref("C", items=BRANCH), b={"$ref": "#/properties/a/items"}),
            inlined(a={"items": BRANCH, "allOf": [COLOUR]}, b={"$ref": "#/properties/a/items"}),
        ),
        # Definitions that nothing refers to have no effect.
        (
            arguments({"C": {**COLOUR, "$defs": {"Unused": ref("C")}}, "Unused": ref("nowhere")}, c=ref("C")),
            inlined(c=COLOUR),
        ),
        ({"$defs": 1, **inlined(a=INTEGER, b={"$ref": "#/properties/a"})}, {"$defs": 1, **inlined(a=INTEGER, b=INTEGER)}),
        # The header that repeats an argument.
        (
            arguments({"C": COLOUR}, a={**INTEGER, "x-mcp-header": "A"}, c=ref("C", **{"x-mcp-header": "C"})),
            inlined(a={**INTEGER, "x-mcp-header": "A"}, c={**COLOUR, "x-mcp-header": "C"}),
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
        "$ref",
        [ref("C")],
        arguments({"C": COLOUR}, a=INTEGER),
        arguments({"C": COLOUR}, c={"$ref": "https://elsewhere.example/s#/$defs/C"}),
        arguments({}, a=ref("nowhere")),
        inlined(a={"$ref": "#/nowhere", "minLength": 4}),
        inlined(a={"$ref": "#/type", "minLength": 4}),
        inlined(a={"$ref": "#" + "/a" * 100_000}),
        # References inside mean something else, or could.
        arguments({"A": {"$id": "https://a.example/a", "$ref": "#/x", "x": INTEGER}}, a=ref("A")) | {"x": COLOUR},
        arguments({"A": {"$schema": DRAFT_7, "$ref": "#/x", "maximum": 1}}, a=ref("A")) | {"x": INTEGER},
        arguments({"A": {"$dynamicAnchor": "a", "items": {"$dynamicRef": "#a"}}}, a=ref("A")),
        {"$schema": "https://example.com/own", **arguments({"C": COLOUR}, c=ref("C"))},
        # A header may be named once, and not in a definition.
        arguments({"C": {**COLOUR, "x-mcp-header": "C"}}, c=ref("C")),
        inlined(a={**COLOUR, "x-mcp-header": "A"}, b={"$ref": "#/properties/a"}),
        # A recursion by an anchor, and one whose place has no meaning in draft 7.
        arguments({"Tree": {"$anchor": "tree", "items": {"$ref": "#tree"}}, "C": COLOUR}, a={"$ref": "#tree"}, c=ref("C")),
        {"$anchor": "top", **arguments({"C": COLOUR}, a={"$ref": "#top"}, c=ref("C"))},
        {"$schema": DRAFT_7}
        | arguments({"C": COLOUR}, a=ref("C", items=BRANCH), b={"$ref": "#/properties/a/items"}),
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


@pytest.mark.parametrize("definition", [{"enum": ["x" * 1000]}, {"anyOf": [False] * 1000}])
def test_two_copies_are_used_and_three_are_too_large(definition: dict[str, Any]) -> None:
    two = arguments({"D": definition}, a=ref("D"), b=ref("D"))
    assert inline_references(two) == inlined(a=definition, b=definition)
    three = arguments({"D": definition}, a=ref("D"), b=ref("D"), c=ref("D"))
    assert inline_references(three) is three


def test_the_names_of_definitions_count_only_where_they_remain() -> None:
    name = "x" * 1000
    names = [f"p{n}" for n in range(10)]
    schema = arguments({name: INTEGER, "L": {"items": ref(name)}}, **{each: ref("L") for each in names})
    assert inline_references(schema) == inlined(**{each: {"items": INTEGER} for each in names})


def test_a_schema_that_is_too_large_is_returned_as_it_is() -> None:
    schema = arguments({"C": COLOUR}, c=ref("C", description="x" * MAX_BYTES))
    assert inline_references(schema) is schema


LONG = "x" * 100_000
COPIES: dict[str, Any] = {f"p{n}": ref("D") for n in range(300)}


@pytest.mark.parametrize(
    "schema",
    [
        arguments({"D": {"enum": [LONG]}}, **COPIES),
        arguments({LONG: OBJECT, "D": {"items": ref(LONG)}}, **COPIES),
        arguments({LONG: {"items": ref(LONG)}, "D": {"items": ref(LONG)}}, **COPIES),
    ],
    ids=["values", "names", "references that remain"],
)
def test_a_result_that_would_be_too_large_takes_little_memory(schema: Any) -> None:
    tracemalloc.start()
    try:
        assert inline_references(schema) is schema
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(msgspec.json.encode(schema))


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
    import gemel.protocol.inline_refs as inlining

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


def chained(levels: int, /, *keywords: str) -> dict[str, Any]:
    """Each definition refers to the next one, inside of these keywords."""
    chain: dict[str, Any] = {}
    for n in range(levels):
        chain[f"s{n}"] = nested(ref(f"s{n + 1}"), *keywords)
    return arguments({**chain, f"s{levels}": INTEGER}, a=ref("s0"))


def nested(schema: dict[str, Any], *keywords: str) -> dict[str, Any]:
    for keyword in reversed(keywords):
        schema = {keyword: {"a": schema} if keyword == "properties" else schema}
    return schema


def test_each_reference_and_each_schema_counts_as_a_level() -> None:
    assert inline_references(chained(50)) == inlined(a=INTEGER)
    for schema in (chained(100), chained(40, "items"), chained(20, "properties", "properties")):
        assert inline_references(schema) is schema
    schema = arguments({"C": COLOUR}, c=nested(ref("C"), *["items"] * 50))
    assert inline_references(schema) == inlined(c=nested(COLOUR, *["items"] * 50))
    too_deep = nested(INTEGER, *["items"] * 100)
    schema = arguments({"C": COLOUR, "Unused": too_deep}, c=ref("C"))
    assert inline_references(schema) is schema


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
