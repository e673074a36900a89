"""Problems: each difference between a value and a schema, in words a model can act on, with a bounded echo."""

from typing import Any

import pytest

from gemel.errors import ECHO_LIMIT
from gemel.server.functions.validation_errors import (
    Rejection,
    describe,
    error_lines,
    explain,
    schema_at,
    unknown_member,
)


def told(schema: dict[str, Any], value: Any, *rejections: Rejection, exact: bool = True) -> list[str]:
    return error_lines(explain(schema, value, rejections, exact=exact))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "any value"),
        ({"type": "integer"}, "integer"),
        ({"type": "integer", "minimum": 1}, "integer >= 1"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "integer from 1 to 9"),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "number > 0 and < 1"),
        ({"type": "integer", "multipleOf": 5}, "integer a multiple of 5"),
        ({"type": "string", "minLength": 2}, "string of at least 2 characters"),
        ({"type": "string", "minLength": 1, "maxLength": 3}, "string of 1 to 3 characters"),
        ({"type": "string", "maxLength": 1}, "string of at most 1 character"),
        ({"type": "string", "pattern": "^a+$"}, "string matching ^a+$"),
        ({"type": "string", "format": "date"}, 'date string like "2026-01-31"'),
        ({"type": "string", "format": "hostname"}, "hostname string"),
        ({"type": "string", "contentEncoding": "base64"}, "base64 string"),
        ({"type": "array", "minItems": 2, "maxItems": 2}, "array of 2 items"),
        ({"type": "object", "minProperties": 1}, "object of at least 1 member"),
        ({"enum": ["c", "f"]}, 'one of "c", "f"'),
        ({"enum": list(range(20))}, "one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … (20 in all)"),
        ({"const": "c"}, '"c"'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({"anyOf": [{"type": "object"}, {"type": "object"}]}, "object"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}}, "object"),
    ],
)
def test_what_a_schema_expects_is_told_in_a_few_words(schema: dict[str, Any], words: str) -> None:
    assert describe(schema, schema) == words


@pytest.mark.parametrize(
    ("schema", "value", "line"),
    [
        ({"type": "integer"}, "three", 'expected integer, got string "three"'),
        ({"type": "integer"}, True, "expected integer, got boolean true"),
        ({"type": "integer"}, 1.5, "expected integer, got number 1.5"),
        ({"type": "string"}, None, "expected string, got null"),
        ({"type": "string"}, {"a": 1}, 'expected string, got object {"a":1}'),
        ({"type": "integer", "minimum": 1}, 0, "expected integer >= 1, got integer 0"),
        ({"type": "integer", "multipleOf": 2}, 3, "expected integer a multiple of 2, got integer 3"),
        ({"type": "string", "format": "date"}, "x", 'expected date string like "2026-01-31", got string "x"'),
        ({"type": "string", "contentEncoding": "base64"}, "*", 'expected base64 string, got string "*"'),
        ({"type": "string", "pattern": "^a"}, "b", 'expected string matching ^a, got string "b"'),
        ({"enum": ["c", "f"]}, "k", 'expected one of "c", "f", got string "k"'),
        ({"enum": [1, 2]}, True, "expected one of 1, 2, got boolean true"),
        ({"type": "array", "maxItems": 1}, [1, 2], "expected array of at most 1 item, got array [1,2]"),
        (
            {"type": "array"},
            "[1]",
            'expected array, got string "[1]" (pass the JSON itself, not a string that holds JSON)',
        ),
    ],
)
def test_a_difference_tells_what_was_expected_and_what_came(schema: dict[str, Any], value: Any, line: str) -> None:
    assert told(schema, value) == [line]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "number"}, 3),
        ({"type": "integer", "minimum": 1}, 1),
        ({"type": "string", "format": "no-such-format"}, "x"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, ["x", 1]),
    ],
)
def test_a_value_that_fits_has_no_problems(schema: dict[str, Any], value: Any) -> None:
    assert told(schema, value) == []


TREE: dict[str, Any] = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}


def test_all_problems_are_told_each_with_its_path() -> None:
    value = {"name": "a", "tags": ["x", 2], "kids": [{"tags": 3}, {"name": 4, "nmae": "y"}]}
    assert told(TREE, value) == [
        "tags[1]: expected string, got integer 2",
        "kids[0].name: missing (required string)",
        "kids[0].tags: expected array, got integer 3",
        "kids[1].name: expected string, got integer 4",
        'kids[1].nmae: unknown field; did you mean "name"?',
    ]


def test_keys_that_are_no_names_stand_in_brackets() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert told(schema, {"a b": "x", "plain-key": "x"}) == [
        '["a b"]: expected integer, got string "x"',
        'plain-key: expected integer, got string "x"',
    ]


def test_names_that_a_map_refuses_are_told() -> None:
    schema = {"type": "object", "propertyNames": {"minLength": 2}}
    assert told(schema, {"a": 1, "bb": 2}) == ["a: the key must be string of at least 2 characters"]


CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "loud": {"type": "boolean"}}, "required": ["kind"]}
PETS = {"anyOf": [CAT, DOG, {"type": "null"}]}


def test_a_tag_tells_which_branch_of_a_union_was_meant() -> None:
    assert told(PETS, {"kind": "dog", "loud": 1}) == ["loud: expected boolean, got integer 1"]
    assert told(PETS, {"kind": "cow"}) == ['kind: expected one of "cat", "dog", got string "cow"']
    assert told(PETS, {}) == ['kind: missing (required one of "cat", "dog")']


def test_without_a_tag_the_type_of_the_value_tells_the_branch() -> None:
    schema = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}
    assert told(schema, [1, "x"]) == ['[1]: expected integer, got string "x"']
    assert told(schema, "x") == ['expected integer or array, got string "x"']


def test_of_several_objects_each_is_explained_by_its_name() -> None:
    near = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    far = {"type": "object", "required": ["x", "y", "z"]}
    schema = {"anyOf": [{"$ref": "#/$defs/Far"}, {"$ref": "#/$defs/Near"}], "$defs": {"Far": far, "Near": near}}
    assert told(schema, {"a": "1"}) == [
        "fits none of 2 alternatives: Far (x: missing (required any value); y: missing (required any value); 1 more), "
        'Near (a: expected integer, got string "1")'
    ]
    assert told({"properties": {"b": {"anyOf": [far, near]}}}, {"b": {"a": "1"}})[0].startswith(
        "b: fits none of 2 alternatives: alternative 1 (x: missing (required any value)"
    )


def test_alternatives_keep_within_the_bounds_of_all_errors() -> None:
    inner = {"anyOf": [{"type": "object", "required": [name]} for name in "ab"]}
    many = [{"type": "object", "properties": {"a": inner, f"b{number}": {"type": "null"}}} for number in range(30)]
    value = {"a": {"é": 1}, **{f"b{number}": "é" * 1000 for number in range(30)}}
    (line,) = told({"anyOf": many}, value)
    assert line.count("alternative 1 (") == 1
    assert line.count("(a: fits none of 2 alternatives: alternative 1, alternative 2;") == 12
    assert line.endswith(" and 18 more")
    assert len(line) < 2500
    assert line.count("é") * 2 <= ECHO_LIMIT


def test_lists_of_different_types_are_told_apart() -> None:
    schema = {"anyOf": [{"type": "array", "items": {"type": kind}} for kind in ("integer", "string")]}
    assert told(schema, [1, "x"]) == [
        'fits none of 2 alternatives: array of integer ([1]: expected integer, got string "x"), '
        "array of string ([0]: expected string, got integer 1)"
    ]


def test_unknown_names_are_answered_with_the_closest_known() -> None:
    known = ["city", "days", "class_"]
    assert error_lines([unknown_member("dayz", known)]) == ['dayz: unknown field; did you mean "days"?']
    assert error_lines([unknown_member("Class", known)]) == ['Class: unknown field; did you mean "class_"?']
    assert error_lines([unknown_member("zzz", known)]) == ["zzz: unknown field; known: city, days, class_"]
    assert error_lines([unknown_member("zzz", [], what="argument")]) == [
        "zzz: unknown argument; there are no arguments here"
    ]


def test_an_authors_own_check_is_told_in_his_words() -> None:
    assert told({"type": "integer"}, 13, Rejection((), "13 is\n unlucky")) == ["13 is unlucky"]


def test_a_refusal_that_the_schema_cannot_explain_uses_the_spare_words() -> None:
    refusal = Rejection((), fallback="expected a valid thing", form=True)
    assert told({"type": "string"}, "x", refusal) == ['expected a valid thing, got string "x"']
    assert told({"type": "string", "format": "ipv4"}, "x", refusal) == ['expected ipv4 string, got string "x"']
    meant = Rejection((), fallback="must be a private address")
    assert told({"type": "string", "format": "ipv4"}, "x", meant) == ['must be a private address, got string "x"']


def test_unless_sure_only_differences_at_refused_places_count() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    assert told(schema, {"a": "1", "b": "2"}, Rejection(("b",)), exact=False) == ['b: expected integer, got string "2"']


def test_unless_sure_patterns_are_left_to_the_library() -> None:
    """A pattern that is safe in the library's regex engine may take for ever in Python's."""
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert told(schema, "a" * 60 + "b", Rejection(()), exact=False) == [
        f'expected string matching ^(a+)+$, got string "{"a" * 40}…"'
    ]


def test_a_type_that_was_only_tried_is_not_told_beside_the_one_that_was_meant() -> None:
    found = told(
        PETS, {"kind": "dog", "loud": 1}, Rejection(("loud",)), Rejection(("lives",), member=True), exact=False
    )
    assert found == ["loud: expected boolean, got integer 1"]


def test_the_echo_of_all_lines_together_is_bounded() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    value = {f"k{'é' * 100}{number}": "ß" * 1000 for number in range(30)}
    text = "\n".join(told(schema, value))
    assert sum(len(char.encode()) for char in text if char in "éßk") <= ECHO_LIMIT
    assert text.count("\n") == 20
    assert text.endswith("and more")


def test_control_characters_are_echoed_escaped() -> None:
    assert told({"type": "integer"}, "a\n\x1b[0m") == ['expected integer, got string "a\\n\\u001b[0m"']


def test_a_huge_value_is_looked_at_only_in_part() -> None:
    """The cold path must not be the way to keep a server busy."""
    schema: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
    assert told(schema, [1] * 50_000 + ["x"]) == []
    assert len(told(schema, ["x"] * 50_000)) == 21


def test_a_path_is_followed_through_references_and_unions() -> None:
    schema: dict[str, Any] = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Node"}], "$defs": TREE["$defs"]}
    assert schema_at(schema, ("kids", 0, "name")) == {"type": "string"}
    assert schema_at(schema, ("nothing",)) == {}
