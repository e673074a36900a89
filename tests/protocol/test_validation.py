"""Schemas that somebody else wrote: by the dialect that they name, within bounds, and with nothing fetched."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from gemel.protocol.validation import MAX_BYTES, MAX_DEPTH, compile_schema, first_problem

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
    "schema",
    [
        {"type": "no type"},
        {"minimum": "1"},
        {"properties": []},
        7,
        "x",
        {"pattern": "("},
        {"enum": 5},
        {"enum": {"a": 1}},
    ],
)
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    """JSON-01. The hint about patterns is given for patterns only."""
    with pytest.raises(ValueError, match="not a usable JSON Schema") as caught:
        compile_schema(schema)
    assert ("lookaround" in str(caught.value)) == (schema == {"pattern": "("})


@pytest.mark.parametrize(
    "reference",
    ["http://127.0.0.1:1/schema.json", "https://example.com/x", "file:///etc/passwd", "other.json", "urn:x:y"],
)
@pytest.mark.parametrize("word", ["$ref", "$dynamicRef"])
def test_nothing_outside_the_schema_is_ever_fetched(word: str, reference: str) -> None:
    """JSON-02, JSON-03."""
    with pytest.raises(ValueError, match="not a usable JSON Schema"):
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
    compile_schema({"description": "x" * (MAX_BYTES - len('{"description":""}'))})
    with pytest.raises(ValueError, match=f"larger than {MAX_BYTES} bytes"):
        compile_schema({"description": "x" * (MAX_BYTES - len('{"description":""}') + 1)})


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, {"allOf": [{"$ref": "#"}]}]
)
def test_a_circle_of_references_forbids_nothing_and_ends(schema: Any) -> None:
    """JSON-04."""
    assert first_problem(compile_schema(schema), {"x": [{"x": 1}]}) is None


@pytest.mark.parametrize("dialect", ["https://example.com/dialect", 7])
def test_an_unknown_dialect_is_refused(dialect: Any) -> None:
    """JSON-01: not read by some other dialect."""
    with pytest.raises(ValueError, match="not a usable JSON Schema"):
        compile_schema({"$schema": dialect, "type": "object"})


def test_a_pattern_takes_linear_time() -> None:
    """JSON-04: where an engine that goes back would not end within the age of the world."""
    validator = compile_schema({"pattern": "^(a+)+$"})
    before = time.process_time()
    assert first_problem(validator, "a" * 50_000 + "!") is not None
    assert time.process_time() - before < 5


def doubling(steps: int, refer: Any, **names: Any) -> dict[str, Any]:
    """Each definition looks twice at what the next one looks at: 2^steps ways."""
    made = {
        f"s{n}": {**names, "allOf": [refer(n + 1), {"properties": {"a": False}}, refer(n + 1)]} for n in range(steps)
    }
    return {"$defs": {**made, f"s{steps}": {"type": "integer"}}, **refer(0)}


def by_pointer(n: int) -> dict[str, Any]:
    return {"$ref": f"#/$defs/s{n}"}


def by_anchor(schema: dict[str, Any], word: str) -> dict[str, Any]:
    for name, part in schema["$defs"].items():
        part[word] = name
    return schema


def by_address(schema: dict[str, Any]) -> dict[str, Any]:
    schema["$id"] = "https://example.com/root"
    for name, part in schema["$defs"].items():
        part["$id"] = f"https://example.com/defs/{name}"
    return schema


def in_list(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "$defs": {"all": list(schema["$defs"].values())}}


def by_number(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "$defs": {name[1:]: part for name, part in schema["$defs"].items()}}


HOSTILE: dict[str, Any] = {
    "by pointer into a list": in_list(doubling(40, lambda n: {"$ref": f"#/$defs/all/{n}"})),
    "by pointer to a number": by_number(doubling(40, lambda n: {"$ref": f"#/$defs/{n}"})),
    "by pointer": doubling(40, by_pointer),
    "by anchor": by_anchor(doubling(40, lambda n: {"$ref": f"#s{n}"}), "$anchor"),
    "by dynamic anchor": by_anchor(doubling(40, lambda n: {"$dynamicRef": f"#s{n}"}), "$dynamicAnchor"),
    "by address": by_address(doubling(40, lambda n: {"$ref": f"https://example.com/defs/s{n}"})),
    "by address, relative": by_address(doubling(40, lambda n: {"$ref": f"/defs/s{n}#"})),
    "by another word": doubling(40, lambda n: {"if": by_pointer(n), "else": by_pointer(n)}),
    "one place deeper each": doubling(40, lambda n: {"properties": {"x": by_pointer(n)}}),
    "one item deeper each": doubling(40, lambda n: {"items": by_pointer(n)}),
    "the first item each": doubling(40, lambda n: {"prefixItems": [by_pointer(n)]}),
    "by names of properties": doubling(40, lambda n: {"patternProperties": {"^a": by_pointer(n)}}),
    "if there is a property": doubling(40, lambda n: {"dependentSchemas": {"a": by_pointer(n)}}),
    "by pointer, within a part with a URN": {
        "$defs": {"part": {"$id": "urn:example:part", **doubling(40, by_pointer)}},
        "$ref": "urn:example:part",
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_references_that_double_at_each_step_are_refused(name: str) -> None:
    """JSON-04: 2^40 ways lead to the same place, and a validator would take them all."""
    before = time.process_time()
    with pytest.raises(ValueError, match="in more than 1,000,000 ways"):
        compile_schema(HOSTILE[name])
    assert time.process_time() - before < 5


def test_a_part_may_be_referred_to_from_many_places() -> None:
    """Types that share others are what references are for."""
    levels = {f"t{n}": {"properties": {f"p{m}": {"$ref": f"#/$defs/t{n + 1}"} for m in range(20)}} for n in range(40)}
    schema = {"$defs": {**levels, "t40": {"type": "integer"}}, "$ref": "#/$defs/t0"}
    value: Any = "x"
    for _ in range(40):
        value = {"p7": value}
    assert first_problem(compile_schema(schema), value) is not None
    recursive = {"anyOf": [{"type": "integer"}, {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}]}
    assert first_problem(compile_schema(recursive), {"left": {"right": 1}, "right": 2}) is None


def test_references_follow_each_other_so_far() -> None:
    """JSON-04: an error, not the end of the stack."""
    assert first_problem(compile_schema(chain(300)), "x") is not None
    for length in (301, 5000):
        with pytest.raises(ValueError, match="more than 300 steps"):
            compile_schema(chain(length))


def chain(references: int) -> dict[str, Any]:
    """So many references that follow each other to a type."""
    parts = {f"s{n}": by_pointer(n + 1) for n in range(1, references)}
    return {"$defs": {**parts, f"s{references}": {"type": "integer"}}, **by_pointer(1)}


@pytest.mark.parametrize(
    "pointer", ["/allOf/1", "/allOf/9", "/allOf/x", "/allOf/-1", "/title/x", "/$defs/none", "/allOf/0/x"]
)
def test_a_pointer_that_leads_nowhere_makes_the_schema_unusable(pointer: str) -> None:
    schema = {"title": "x", "allOf": [{"type": "integer"}], "not": {"$ref": f"#{pointer}"}}
    with pytest.raises(ValueError, match="not a usable JSON Schema"):
        compile_schema(schema)


def test_the_library_is_loaded_with_the_first_schema() -> None:
    code = "import gemel.protocol.validation, sys; assert 'jsonschema_rs' not in sys.modules"
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


# ---------------------------------------------------------------- work


class Spy:
    """Counts what the library is asked for."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._validator, name)


def asked(schema: Any, value: Any) -> tuple[list[str], list[str]]:
    """The problems of a value, and what the library was asked for."""
    validator = compile_schema(schema)
    spy = Spy(validator._compiled)
    validator._compiled = spy  # type: ignore[assignment]  # it behaves like one
    return validator.problems(value), spy.asked


OPTIONS = [f"word {number}" for number in range(8000)]
ALTERNATIVES = {
    "$defs": {
        "n": {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#/$defs/n"}},
                {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1},
            ]
        }
    },
    "$ref": "#/$defs/n",
}
OBJECTS = {
    "$defs": {
        "n": {
            "anyOf": [
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}},
                {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}},
            ]
        }
    },
    "$ref": "#/$defs/n",
}


def nested_objects(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def nested_lists(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"enum": OPTIONS}}, ["other"] * 8000),
        ({"items": {"allOf": [{"type": "integer"}] * 200}}, ["x"] * 1000),
        ({"items": {"type": "integer"}}, ["x"] * 900_000),
        ({"items": {"type": "integer"}}, [*[1] * 900_000, "x"]),
        ({"additionalProperties": False}, {f"name {number}": 1 for number in range(300_000)}),
        (ALTERNATIVES, nested_lists(20)),
        (ALTERNATIVES, nested_lists(200)),
        (OBJECTS, nested_objects(20)),
    ],
)
def test_a_large_wrong_value_is_decided_and_not_explained(schema: Any, value: Any) -> None:
    """An explanation takes the library seconds and gigabytes, during which nothing else runs."""
    problems, calls = asked(schema, value)
    assert problems == ["it does not fit the schema, and is too large to say where"]
    assert calls == ["is_valid"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"enum": [{"a": number} for number in range(5000)]}}, [{"a": -1}] * 2000),
        ({"items": {"enum": [{"a": number} for number in range(5000)]}}, [{"a": -1}] * 100),
        ({"allOf": [{"pattern": f"{number}$"} for number in range(1000)]}, "x" * 4_000_000),
        ({"items": {"allOf": [{"minimum": number} for number in range(2000)]}}, list(range(100_000))),
        ({"items": {"dependentRequired": {f"p{number}": [] for number in range(5000)}}}, [{"q": 1}] * 20_000),
        ({"items": {"enum": list(range(8000))}}, [7999.5] * 8000),
        ({"items": {"enum": list(range(1000))}}, [999.5] * 1000),
        ({"items": {"enum": list(range(8000))}}, [2**70] * 8000),
        ({"items": {"enum": [number + 0.5 for number in range(8000)]}}, [7999] * 8000),
        ({"items": {"enum": [number + 0.5 for number in range(1000)]}}, [999] * 1000),
        ({"items": {"enum": [2**70 + number for number in range(1000)]}}, [7] * 1000),
        ({"items": {"enum": [*range(4000), *map(str, range(4000))]}}, ["3999"] * 40_000),
        ({"items": {"enum": [0], "const": {"a": OPTIONS}}}, [{"a": OPTIONS}] * 10),
        ({"items": {"allOf": [{"maximum": number + 0.5} for number in range(100)]}}, list(range(20_000))),
        ({"items": {"multipleOf": 1e-300}}, [1e308] * 20_000),
        ({"items": {"maximum": 10}}, [10**4000] * 2),
        ({"items": {"minimum": 0}}, [10**400, *[1] * 3000]),
        ({"items": {"allOf": [{"minimum": 0}, *[{"maxLength": 9}] * 1100]}}, [1e300] * 4200),
        ({"allOf": [{"pattern": "[ab].{500}[cd]"}, *[{"minLength": 9}] * 2100]}, "x" * 40_000),
        ({"uniqueItems": True}, [2**70 + number for number in range(1000)]),
        ({"pattern": "[ab].{50}[cd]"}, "abcd" * 500_000),
        ({"pattern": "^(a|b)[ab]{500}[cd]"}, "abcd" * 100_000),
        ({"patternProperties": {"[ab].{500}[cd]": True}}, {"abcd" * 100_000: 1}),
        ({"propertyNames": {"pattern": "[ab].{500}[cd]"}}, {"abcd" * 100_000: 1}),
    ],
)
def test_a_validation_that_takes_too_many_steps_does_not_begin(schema: Any, value: Any) -> None:
    problems, calls = asked(schema, value)
    assert problems == ["validating it takes more than 10,000,000 steps: it is too large for its schema"]
    assert calls == []
    assert not compile_schema(schema).is_valid(value)


def test_what_was_evaluated_is_asked_once_more_at_each_level() -> None:
    """JSON-04: which takes the library twelve seconds for twenty levels."""
    for word, same in (("unevaluatedProperties", "allOf"), ("unevaluatedItems", "anyOf")):
        schema: Any = {"type": "object"}
        for _ in range(20):
            schema = {same: [schema], word: False}
        with pytest.raises(ValueError, match="in more than 1,000,000 ways"):
            compile_schema(schema)
    few = {
        "allOf": [{"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}],
        "properties": {"a": True},
    }
    assert asked(few, {"a": 1}) == ([], ["is_valid"])


def test_patterns_share_a_bounded_memory() -> None:
    """JSON-04: each of these takes eight megabytes when it is compiled, and 50 milliseconds."""
    large = [{"pattern": r"(?:\p{L}.{0,900}){5}" + str(number)} for number in range(100)]
    assert compile_schema(large[0]).is_valid("x") is False
    for schema in ({"allOf": large}, {"patternProperties": {one["pattern"]: True for one in large}}):
        with pytest.raises(ValueError, match="small when compiled"):
            compile_schema(schema)
    assert compile_schema({"allOf": [large[0]] * 100}).is_valid("x") is False


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ({"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}, "0123abcd-0123-0123-0123456789ab"),
        ({"pattern": r"^[^\s@]+@[^\s@]+\.[^\s@]+$"}, "ada@example.com"),
        ({"pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"}, "2026-01-01T10:00:00Z"),
        ({"type": "integer", "enum": list(range(100))}, 99),
        ({"type": "number", "minimum": 0.0}, 12.5),
        ({"type": "number", "multipleOf": 0.01}, 0.25),
        ({"uniqueItems": True}, [1.5, 2.5, 3.5]),
    ],
)
def test_tables_with_patterns_and_bounds_are_accepted(member: Any, value: Any) -> None:
    """Ten thousand rows."""
    row = {"type": "object", "properties": {"a": member, "b": {"type": "string"}, "c": {"type": "integer"}}}
    assert asked({"items": row}, [{"a": value, "b": "some words", "c": 1}] * 10_000) == ([], ["is_valid"])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "[ab].{10}[cd]"}, "x" * 4_000_000 + "a 23456789 c"),
        ({"items": {"pattern": "[ab].{500}[cd]"}}, list(range(100_000))),
        ({"allOf": [{"maxLength": 10**9}] * 100}, "x" * 1_000_000),
        ({"items": {"minimum": 0}}, [2**70 + number for number in range(1000)]),
        ({"items": {"minimum": 0}}, [10**399, *[1] * 3000]),
    ],
)
def test_long_texts_and_numbers_that_take_few_steps_are_accepted(schema: Any, value: Any) -> None:
    assert asked(schema, value) == ([], ["is_valid"])
    assert compile_schema(schema).is_valid(value)


@pytest.mark.parametrize("value", [object(), nested_lists(1_000_000)], ids=["no JSON", "too deep"])
def test_what_cannot_be_written_as_json_is_not_validated(value: Any) -> None:
    problems, calls = asked({}, value)
    assert "more than 10,000,000 steps" in problems[0]
    assert calls == []
    assert not compile_schema({}).is_valid(value)


def test_a_value_is_valid_if_it_has_no_problems() -> None:
    validator = compile_schema({"type": "integer"})
    assert validator.is_valid(5) is True
    assert validator.is_valid("5") is False
    assert validator.problems(5) == []
    assert validator.problems("5") == ['the value is not of type "integer"']


def test_alternatives_are_named_with_the_reason_of_each() -> None:
    """Also behind a reference; the value itself is never repeated."""
    card = {"title": "Card", "type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]}
    one_of = {"oneOf": [{"$ref": "#/$defs/card"}, {"$ref": "#/$defs/Iban"}, {"type": "integer", "minimum": 3}]}
    schema = {
        "properties": {"pay": {"$ref": "#/$defs/pay"}},
        "$defs": {"pay": one_of, "card": card, "Iban": {"type": "string", "maxLength": 3}},
    }
    assert compile_schema(schema).problems({"pay": {"number": 1}}) == [
        'pay: fits none of 3 alternatives: card (number: the value is not of type "string"), '
        'Iban (the value is not of type "string"), integer (the value is not of type "integer")'
    ]
    unnamed = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert compile_schema(unnamed).problems({}) == [
        'fits none of 2 alternatives: alternative 1 ("a" is a required property), alternative 2 ("b" is a required property)'
    ]


def test_of_many_alternatives_the_first_are_explained() -> None:
    schema = {"anyOf": [{"title": "x" * 1000, "required": ["y" * 1000]} for _ in range(30)]}
    (problem,) = compile_schema(schema).problems({})
    assert problem.endswith(" and 18 more")
    assert len(problem) < 3000


def test_at_most_twenty_problems_are_listed() -> None:
    problems, _ = asked({"items": {"type": "integer"}}, ["x"] * 100)
    assert len(problems) == 20
    assert problems[0].startswith("0: ")


def test_the_first_problem_of_a_larger_value_is_named() -> None:
    problems, calls = asked({"items": {"type": "integer"}}, [*[1] * 50_000, "x"])
    assert len(problems) == 1
    assert problems[0].startswith("50000: ")
    assert calls == ["is_valid", "validate"]


def test_large_values_that_fit_are_accepted() -> None:
    """Several megabytes of records, each with alternatives."""
    number = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    record = {"type": "object", "properties": {f"f{n}": number for n in range(20)}, "additionalProperties": False}
    rows = [{f"f{n}": n for n in range(20)}] * 20_000
    assert asked({"type": "array", "items": record}, rows) == ([], ["is_valid"])
    tree: Any = {"kids": []}
    for _ in range(30):
        tree = {"kids": [tree, {"kids": []}]}
    of_trees = {"type": "object", "properties": {"kids": {"items": {"$ref": "#"}}}, "required": ["kids"]}
    assert asked(of_trees, tree) == ([], ["is_valid"])
    (problem,), _ = asked(of_trees, {"kids": [tree, {"kids": [{}]}]})
    assert problem.startswith("kids.1.kids.0: ")
