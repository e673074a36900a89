"""What changed between two contracts, in lines, and how grave it is."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import Contract
from gemel.contracts.compare import differences, gravest
from gemel.contracts.json_schema import normal

STRING: Any = {"type": "string"}
INTEGER: Any = {"type": "integer"}


def of(*required: str, **properties: Any) -> dict[str, Any]:
    found: dict[str, Any] = normal({"type": "object", "properties": properties, "required": list(required)})
    return found


def tool(schema: Any = None, **members: Any) -> dict[str, Any]:
    return {"inputSchema": of(city=STRING) if schema is None else schema, **members}


def lines(old: dict[str, Any], new: dict[str, Any], section: str = "tools") -> list[str]:
    """`severity: line` for each difference of one entry called `x`."""
    sections: list[dict[str, Any]] = [{section: {"x": one} if one else {}} for one in (old, new)]
    before, after = (Contract(revision="2026-07-28", **given) for given in sections)
    return [f"{one.severity}: {one}" for one in differences(before, after)]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (tool(), tool(), []),
        (tool(), {}, ["breaking: tool x: is gone"]),
        ({}, tool(), ["harmless: tool x: is new"]),
        (
            {},
            tool(of(city={**STRING, "description": "where"}), description="Sun"),
            [
                'text: tool x: description: none → "Sun"',
                'text: tool x: input.city.description: none → "where"',
                "harmless: tool x: is new",
            ],
        ),
        (tool(), tool(of(city=STRING, days=INTEGER)), ["harmless: tool x: input.days: is new"]),
        (tool(), tool(of("days", city=STRING, days=INTEGER)), ["breaking: tool x: input.days: is new and required"]),
        (tool(), tool(of("city", city=STRING)), ["breaking: tool x: input.city: is required now"]),
        (tool(of("city", city=STRING)), tool(), ["harmless: tool x: input.city: is optional now"]),
        (
            tool(of(city=STRING, days=INTEGER)),
            tool(),
            ["may break: tool x: input.days: is gone: whoever sends it may be ignored or refused"],
        ),
        (
            tool(of(city=STRING, days=INTEGER)),
            tool({**of(city=STRING), "additionalProperties": False}),
            ["breaking: tool x: input.days: is gone, and undeclared properties are refused"],
        ),
        (
            tool(of(city={"enum": ["a", "b"]})),
            tool(of(city={"enum": ["b", "c"]})),
            ['breaking: tool x: input.city: no longer takes "a"', 'harmless: tool x: input.city: also takes "c" now'],
        ),
        (
            tool(of(days={**INTEGER, "maximum": 10})),
            tool(of(days={**INTEGER, "maximum": 5})),
            ["breaking: tool x: input.days: maximum: 10 → 5"],
        ),
        (
            tool(of(days={**INTEGER, "maximum": 10})),
            tool(of(days=INTEGER)),
            ["harmless: tool x: input.days: maximum: 10 → none"],
        ),
        (
            tool(of(days={**INTEGER, "default": 3})),
            tool(of(days={**INTEGER, "default": 4})),
            ["may break: tool x: input.days.default: 3 → 4"],
        ),
        (
            tool(of(days={"type": ["integer", "null"], "default": None})),
            tool(of(days={"type": ["integer", "null"]})),
            ["may break: tool x: input.days.default: null → none"],
        ),
        (
            tool(of(day={**STRING, "format": "date"})),
            tool(of(day={**STRING, "format": "date-time"})),
            [
                'may break: tool x: input.day: format: "date" → "date-time"',
                'harmless: tool x: input.day: format: "date" → "date-time"',
            ],
        ),
        (
            tool(of(a={"$ref": "#/$defs/A"}) | {"$defs": {"A": STRING}}),
            tool(of(a=STRING)),
            [],
        ),
        (
            tool(of(a={"minLength": 1, "type": "string"})),
            tool(of(a={"minLength": 1, "allOf": [STRING]})),
            ["harmless: tool x: input: the schema is written differently, and means the same"],
        ),
        (
            tool(description="Sunny days"),
            tool(description="Sunny days\U000e0049"),
            ['text: tool x: description: "Sunny days" → "Sunny days\\udb40\\udc49" (hidden characters: U+E0049)'],
        ),
        (tool(annotations={"title": "A"}), tool(), ['text: tool x: annotations.title: "A" → none']),
        (tool(), tool(_meta={"ui": 1}), ['may break: tool x: _meta: none → {"ui": 1}']),
    ],
)
def test_changes_of_a_tool_are_told(old: dict[str, Any], new: dict[str, Any], said: list[str]) -> None:
    assert lines(old, new) == said


@pytest.mark.parametrize(
    ("hint", "value"),
    [("readOnlyHint", True), ("destructiveHint", False), ("idempotentHint", True), ("openWorldHint", False)],
)
def test_a_hint_that_clients_rely_on_breaks_when_it_is_taken_back(hint: str, value: bool) -> None:
    """TOOL-10. The other way round it is a claim, by which a server may want to be asked less."""
    reassuring = tool(annotations={hint: value})
    assert [line.partition(":")[0] for line in lines(reassuring, tool())] == ["breaking"]
    assert [line.partition(":")[0] for line in lines(tool(), reassuring)] == ["text"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (None, of(a=STRING), ["harmless: tool x: output: results are structured now: there is a schema"]),
        (of(a=STRING), None, ["breaking: tool x: output: results are no longer structured: the schema is gone"]),
        (of("a", a=STRING), of(a=STRING), ["breaking: tool x: output.a: may be missing now"]),
        (of(a=STRING), of("a", a=STRING), ["harmless: tool x: output.a: is always there now"]),
        (of(a=STRING), of(a=STRING, b=STRING), ["harmless: tool x: output.b: is new"]),
        (of(a=STRING, b=STRING), of(a=STRING), ["harmless: tool x: output.b: is gone"]),
        (of("b", a=STRING, b=STRING), of(a=STRING), ["breaking: tool x: output.b: is gone, and was always there"]),
        (of(a=INTEGER), of(a={"type": ["integer", "null"]}), ["breaking: tool x: output.a: can also be null now"]),
        (of(a={"type": ["integer", "null"]}), of(a=INTEGER), ["harmless: tool x: output.a: can no longer be null"]),
        (
            {**of(a=STRING), "additionalProperties": False},
            {**of(a=STRING, b=STRING), "additionalProperties": False},
            ["breaking: tool x: output.b: is new, and the old schema refuses undeclared properties"],
        ),
    ],
)
def test_results_are_judged_the_other_way_round(old: Any, new: Any, said: list[str]) -> None:
    before, after = (tool() if one is None else tool(outputSchema=one) for one in (old, new))
    assert lines(before, after) == said


def test_changes_of_a_prompt_are_told() -> None:
    old = {"arguments": [{"name": "city", "required": True}, {"name": "tone"}]}
    new = {"arguments": [{"name": "City", "required": True}, {"name": "city", "description": "d"}], "description": "D"}
    assert lines(old, new, "prompts") == [
        "breaking: prompt x: arguments.City: is new and required",
        "may break: prompt x: arguments.tone: is gone: whoever sends it may be ignored or refused",
        'text: prompt x: description: none → "D"',
        'text: prompt x: arguments.city.description: none → "d"',
        "harmless: prompt x: arguments.city: is optional now",
    ]


def test_changes_of_a_resource_are_told() -> None:
    old, new = {"name": "n", "mimeType": "text/plain"}, {"name": "n", "mimeType": "text/html", "icons": [{"src": "x:"}]}
    assert lines(old, new, "resources") == [
        'may break: resource x: mimeType: "text/plain" → "text/html"',
        'harmless: resource x: icons: none → [{"src": "x:"}]',
    ]


def test_who_the_server_says_it_is_and_how_it_wants_to_be_used_are_compared() -> None:
    old = Contract(revision="2026-07-28", server={"name": "s", "version": "1"}, instructions="Be kind.")
    new = Contract(revision="2026-07-28", server={"name": "S", "version": "2"}, instructions=None)
    assert [f"{one.severity}: {one}" for one in differences(old, new)] == [
        'text: server: name: "s" → "S"',
        'harmless: server: version: "1" → "2"',
        'text: server: instructions: "Be kind." → none',
    ]


def test_names_are_told_apart_by_case_and_shown_without_being_obeyed() -> None:
    old = Contract(revision="2026-07-28", tools={"get": tool()})
    new = Contract(revision="2026-07-28", tools={"Get": tool(), "\x1b[2J": tool()})
    found = differences(old, new)
    assert [str(one) for one in found] == [
        'tool "\\u001b[2J": is new (hidden characters: U+001B)',
        "tool Get: is new",
        "tool get: is gone",
    ]
    assert gravest(found) == "breaking"
    assert gravest([]) is None


def test_a_section_that_was_not_looked_at_is_not_compared() -> None:
    old = Contract(revision="2026-07-28", tools={})
    assert differences(old, Contract(revision="2026-07-28", tools={}, prompts={"p": {}})) == []


def test_what_the_older_revision_has_no_words_for_is_no_difference() -> None:
    old = Contract(revision="2026-07-28", tools={"x": tool(title="T", outputSchema={"type": "array"})})
    assert differences(old, Contract(revision="2025-03-26", tools={"x": tool()})) == []
