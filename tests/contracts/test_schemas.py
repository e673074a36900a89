"""Whether all values of one schema fit another: keyword by keyword, and against a validator."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gemel.contracts.json_schema import normal
from gemel.contracts.schemas import compare
from tests.contracts.schemas import NAMES, VALUES, kept_to, pairs

ARGUMENTS = st.lists(st.dictionaries(st.sampled_from((*NAMES, "d")), VALUES, max_size=4), min_size=1, max_size=12)
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]
#: Making a failing pair of schemas smaller takes minutes.
AS_FOUND = (Phase.explicit, Phase.reuse, Phase.generate)
STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NULL = {"type": "null"}


def problems(old: Any, new: Any) -> list[str]:
    """What stands in the way, as `place code` or, where it isn't certain, `place code?`."""
    found = compare(normal(old), normal(new), "x")
    return sorted(f"{one.place} {one.keyword or one.code}{'' if one.certain else '?'}" for one in found)


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.mark.timeout(120)  # drawing schemas takes long
@settings(max_examples=40, deadline=None, suppress_health_check=SLOW, phases=AS_FOUND)
@given(pairs(), ARGUMENTS)
def test_what_was_valid_before_is_valid_now_where_nothing_stands_in_the_way(
    pair: tuple[dict[str, Any], dict[str, Any]], values: list[dict[str, Any]]
) -> None:
    """For callers who send what the old schema declares."""
    old, new = pair
    if compare(normal(old), normal(new), "x"):
        return
    before, kept, after = map(jsonschema_rs.validator_for, (old, kept_to(old), new))
    for value in values:
        assert after.is_valid(value) or not (before.is_valid(value) and kept.is_valid(value)), value


@pytest.mark.timeout(120)  # drawing schemas takes long
@settings(max_examples=40, deadline=None, suppress_health_check=SLOW, phases=AS_FOUND)
@given(pairs(), ARGUMENTS)
def test_the_normal_form_takes_the_same_values(
    pair: tuple[dict[str, Any], dict[str, Any]], values: list[dict[str, Any]]
) -> None:
    for schema in pair:
        given_one, written = jsonschema_rs.validator_for(schema), jsonschema_rs.validator_for(normal(schema))
        assert normal(normal(schema)) == normal(schema)
        assert [given_one.is_valid(value) for value in values] == [written.is_valid(value) for value in values]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (of(a=STRING), of(a=STRING, b=INTEGER)),
        (of("a", a=STRING), of(a=STRING)),
        (of(a=INTEGER), of(a={"type": "number"})),
        (of(a=INTEGER), of(a={"type": ["integer", "null"]})),
        (of(a=INTEGER), of(a={"anyOf": [INTEGER, NULL]})),
        (of(a={"anyOf": [INTEGER, NULL]}), of(a={"type": ["null", "integer"]})),
        (of(a={"type": ["null", "integer"]}), of(a={"anyOf": [NULL, STRING, {"type": "number"}]})),
        (of(a={"enum": ["x", "y"]}), of(a={"enum": ["y", "x", "z"]})),
        (of(a={"enum": ["x", "y"]}), of(a=STRING)),
        (of(a={"const": 3}), of(a={"type": "integer", "minimum": 3})),
        (of(a={"type": "boolean"}), of(a={"enum": [True, False, None]})),
        (of(a={"type": "integer", "minimum": 3}), of(a={"type": "integer", "minimum": 1, "multipleOf": 0.5})),
        (of(a={"type": "integer", "exclusiveMinimum": 2}), of(a={"type": "integer", "minimum": 3})),
        (of(a={"type": "string", "maxLength": 3}), of(a={"type": "string", "maxLength": 5})),
        (of(a={"type": "integer", "multipleOf": 6}), of(a={"type": "integer", "multipleOf": 3})),
        (of(a={"type": "array", "items": INTEGER}), of(a={"type": "array", "items": {"type": "number"}})),
        (of(a={"type": "array", "prefixItems": [INTEGER], "items": False}), of(a={"type": "array", "items": INTEGER})),
        (of(a={"type": "array", "maxItems": 1}), of(a={"type": "array", "uniqueItems": True})),
        (of(a={"type": "string", "pattern": "^x", "format": "date"}), of(a={"type": "string", "pattern": "^x"})),
        ({**of(a=INTEGER), "additionalProperties": False}, of(a=INTEGER)),
        (of(a=INTEGER), {**of(a=INTEGER), "additionalProperties": False}),
        (of(a=INTEGER), {**of(a=INTEGER, b=STRING), "additionalProperties": False}),
        (
            {**of(a=INTEGER), "additionalProperties": INTEGER},
            {**of(a=INTEGER), "additionalProperties": {"type": "number"}},
        ),
        (of(a={"type": "object"}), of(a={"type": "object", "additionalProperties": True})),
        (of(a={"allOf": [INTEGER, {"minimum": 2}]}), of(a={"type": "integer", "minimum": 1})),
        (of(a={"type": "integer", "minimum": 1}), of(a={"allOf": [INTEGER, {"minimum": 0}]})),
        (
            of(a={"oneOf": [of("k", k={"const": "x"}), of("k", k={"const": "y"})]}),
            of(a={"oneOf": [of("k", k={"const": "y"}), of("k", k={"const": "x"}), of("k", k={"const": "z"})]}),
        ),
        (of(a={"not": {"type": ["string", "null"]}}), of(a={"not": STRING})),
        (of(a=INTEGER), of(a={"not": STRING})),
        (of(a={"$ref": "#/$defs/n"}) | {"$defs": {"n": INTEGER}}, of(a=INTEGER)),
        (of(a=INTEGER), of(a={"$ref": "#/$defs/other"}) | {"$defs": {"other": {"type": "number"}}}),
        ({**of(a=INTEGER), "$schema": "http://json-schema.org/draft-07/schema#"}, of(a=INTEGER)),
        (
            {
                **of(a={"items": [INTEGER, STRING], "additionalItems": False}),
                "$schema": "http://json-schema.org/draft-07/schema#",
            },
            of(a={"prefixItems": [INTEGER, STRING]}),
        ),
        (of(a=INTEGER), of(a=INTEGER) | {"if": {"required": ["a"]}, "then": {"properties": {"a": {"type": "number"}}}}),
        (of("a", "b", a=INTEGER, b=INTEGER), {**of(a=INTEGER, b=INTEGER), "dependentRequired": {"a": ["b"]}}),
        (of("a", "b", a=INTEGER, b=INTEGER), {**of(a=INTEGER, b=INTEGER), "minProperties": 2}),
        ({"type": "object", "patternProperties": {"^x": INTEGER}}, {"type": "object", "patternProperties": {"^x": {}}}),
    ],
)
def test_what_is_no_narrower_is_recognised(old: Any, new: Any) -> None:
    assert problems(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (of(a=STRING), of("a", a=STRING), ["x.a required"]),
        (of(a=STRING), of("b", a=STRING, b=STRING), ["x.b required"]),
        (of(a=STRING, b=STRING), of(a=STRING), ["x.b undeclared?"]),
        (of(a=STRING, b=STRING), {**of(a=STRING), "additionalProperties": False}, ["x.b refused", "x.b undeclared?"]),
        (of(a={"type": "number"}), of(a=INTEGER), ["x.a types"]),
        (of(a={"type": ["string", "null"]}), of(a=STRING), ["x.a types"]),
        (of(a={"anyOf": [STRING, NULL]}), of(a=STRING), ["x.a values"]),
        (of(a=STRING), of(a={"enum": ["x"]}), ["x.a enum"]),
        (of(a={"enum": ["x", "y"]}), of(a={"enum": ["x"]}), ["x.a values"]),
        (of(a=INTEGER), of(a={"type": "integer", "maximum": 5}), ["x.a maximum"]),
        (
            of(a={"maximum": 5, "type": "number"}),
            of(a={"exclusiveMaximum": 5, "type": "number"}),
            ["x.a exclusiveMaximum"],
        ),
        (of(a=STRING), of(a={"type": "string", "pattern": "^x"}), ["x.a pattern"]),
        (of(a={"type": "string", "pattern": "^y"}), of(a={"type": "string", "pattern": "^x"}), ["x.a pattern"]),
        (of(a=STRING), of(a={"type": "string", "format": "date"}), ["x.a format"]),
        (of(a={"items": INTEGER, "type": "array"}), of(a={"items": STRING, "type": "array"}), ["x.a[] types"]),
        (of(a=of(b=INTEGER)), of(a=of(b=STRING)), ["x.a.b types"]),
        ({**of(), "additionalProperties": True}, {**of(), "additionalProperties": False}, ["x additionalProperties"]),
        (of(a={"anyOf": [INTEGER, STRING]}), of(a={"anyOf": [INTEGER, NULL]}), ["x.a types"]),
        (of(a={"type": "object"}), of(a={"oneOf": [of(b=INTEGER), of(c=INTEGER)]}), ["x.a oneOf"]),
        (of(a=INTEGER), of(a={"$ref": "https://elsewhere.example/n"}), ["x.a undecided?"]),
        (of(a=INTEGER), {**of(a=INTEGER), "$schema": "https://own.example/dialect"}, ["x undecided?"]),
        (of(a=INTEGER), of(a={"type": "integer", "not": {"const": 3}}), ["x.a not"]),
    ],
)
def test_what_stands_in_the_way_is_named(old: Any, new: Any, said: list[str]) -> None:
    assert problems(old, new) == said


def test_recursive_schemas_are_compared() -> None:
    tree = {
        "type": "object",
        "properties": {"value": INTEGER, "children": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
    }
    old = {**of(a={"$ref": "#/$defs/t"}), "$defs": {"t": tree}}
    new = copy.deepcopy(old)
    new["$defs"]["t"]["properties"]["value"] = {"type": "number"}
    assert problems(old, new) == []
    assert problems(new, old) == ["x.a.value types"]


def test_a_reference_to_itself_proves_nothing() -> None:
    """Taking itself for granted is allowed only after a step into the value, since values end."""
    old = {**of(a={"$ref": "#/$defs/t"}), "$defs": {"t": {"$ref": "#/$defs/t"}}}
    new = {**of(a={"$ref": "#/$defs/u"}), "$defs": {"u": {"allOf": [{"$ref": "#/$defs/u"}, STRING]}}}
    assert problems(old, new) != []


def test_a_comparison_ends_however_much_there_is_to_compare() -> None:
    deep: Any = STRING
    for level in range(6):
        deep = {"anyOf": [of(**{f"a{level}": deep}), of(**{f"b{level}": deep}), of(**{f"c{level}": deep})]}
    assert problems(of(a=deep), of(a={**deep, "oneOf": deep["anyOf"]})) != []


def test_a_comparison_ends_after_so_many_steps() -> None:
    """References make a schema of 10 definitions one with 512 places; what is left then is undecided, and not unchanged."""
    levels = 9

    def chain(end: Any) -> Any:
        definitions: dict[str, Any] = {f"d{levels}": end}
        for level in range(levels):
            inner = {"$ref": f"#/$defs/d{level + 1}"}
            definitions[f"d{level}"] = of(a=inner, b=inner)
        return normal({"$ref": "#/$defs/d0", "$defs": definitions})

    found = compare(chain(STRING), chain(INTEGER), "x", steps=200)
    assert len(found) < 20
    assert (found[-1].code, found[-1].target) == ("undecided", "it is too complex")


def test_a_member_that_only_an_alternative_declares_is_declared() -> None:
    old = {"type": "object", "anyOf": [of("a", a=INTEGER), of("b", b=INTEGER)]}
    assert problems(old, {**old, "properties": {"c": STRING}}) == []
    assert problems(old, {**old, "properties": {"b": STRING}}) != []


def test_a_hostile_schema_is_not_given_to_the_library_and_counts_as_narrower() -> None:
    """Each of these takes jsonschema_rs seconds to minutes, during which nothing can interrupt it."""
    cases = [{"anyOf": [of(f"x{n}", **{f"x{n}": STRING}), of(f"y{n}", **{f"y{n}": INTEGER})]} for n in range(22)]
    wide = [of(**{f"p{n}": kind for n in range(200)}) for kind in (STRING, INTEGER)]
    repeated = {"type": "string", "pattern": r"(\p{L}{1,300}){1,300}"}
    pairs_of_schemas = [({"allOf": cases}, {"allOf": cases, "minProperties": 2}), wide, (repeated, {"pattern": "^x"})]
    for old, new in pairs_of_schemas:
        assert problems(old, new) != []


def test_a_wide_object_is_compared_property_by_property() -> None:
    old = of("p1", **{f"p{n}": STRING for n in range(300)})
    assert problems(old, {**old, "properties": {**old["properties"], "new": INTEGER}}) == []
    assert problems(old, {**old, "properties": {**old["properties"], "p7": INTEGER}}) == ["x.p7 types"]


def test_an_invalid_schema_proves_nothing() -> None:
    assert problems(of(a={"type": "any"}), of(a=STRING)) == ["x undecided?"]
