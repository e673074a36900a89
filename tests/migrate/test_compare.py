"""What counts as a difference between the lists of a server and of its original."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("libcst")
from gemel.migrate import compare  # needs libcst


def lists(tool: dict[str, Any] | None = None, template: str | None = None) -> dict[str, Any]:
    """The lists of a server with one tool, or one template."""
    tools = [] if tool is None else [{"name": "a", "inputSchema": {"type": "object"}, **tool}]
    templates = [] if template is None else [{"name": "b", "uriTemplate": template}]
    return {
        "instructions": None,
        "capabilities": {},
        "tools": tools,
        "prompts": [],
        "resources": [],
        "templates": templates,
    }


OBJECT = {"type": "object"}
TEXT_BLOCK = {
    "type": "object",
    "properties": {"type": {"const": "text", "type": "string"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}


def in_result(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of an object with the one field `result`."""
    return {"type": "object", "properties": {"result": schema}, "required": ["result"]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Add.\n\nArgs:\n    a: One.\n\nReturns:\n    The sum.\n", "Add."),
        ("Add.\n\n    Raises:\n        ValueError: Never.\n    ", "Add."),
    ],
)
def test_sections_that_schemas_express_are_no_difference(old: str, new: str) -> None:
    assert list(compare.differences(lists({"description": old}), lists({"description": new}))) == []


def test_other_words_are_a_difference() -> None:
    found = compare.differences(lists({"description": "Add."}), lists({"description": "Add two."}))
    assert list(found) == ["tool a: the description differs"]


def test_words_that_stand_in_another_description_are_counted() -> None:
    old, new = (
        lists({"description": text, "inputSchema": {**OBJECT, "properties": {"a": {"description": more}}}})
        for text, more in (("Adds.", "A number.\n\nExamples: 1"), ("Adds.\n\nExamples: 1", "A number."))
    )
    assert list(compare.differences(old, new)) == []
    assert compare.words_moved(old, new) == 1
    assert compare.words_moved(old, old) == 0
    new["tools"][0]["description"] = "Adds."
    assert list(compare.differences(old, new)) == ["tool a: inputSchema.properties.a.description differs"]


def test_an_output_schema_that_allows_any_object_says_nothing_new() -> None:
    assert list(compare.differences(lists({}), lists({"outputSchema": OBJECT}))) == []
    other = {"outputSchema": in_result({"type": "integer"})}
    assert list(compare.differences(lists({}), lists(other))) == ["tool a: it had no outputSchema before"]


def test_output_schemas_of_content_blocks_are_counted_like_those_of_texts() -> None:
    for schema in (TEXT_BLOCK, in_result({"type": "array", "items": TEXT_BLOCK}), in_result({"type": "string"})):
        old, new = lists({"outputSchema": schema}), lists({})
        assert list(compare.differences(old, new)) == []
        assert compare.text_schemas_left_out(old, new) == 1


@pytest.mark.parametrize("value", [OBJECT, {"type": "string"}, {"type": "array", "items": {"type": "integer"}}])
def test_a_result_without_the_field_around_it_is_counted(value: dict[str, Any]) -> None:
    old, new = lists({"outputSchema": in_result(value)}), lists({"outputSchema": value})
    assert list(compare.differences(old, new)) == []
    assert compare.results_unwrapped(old, new) == 1
    assert compare.results_unwrapped(old, old) == 0


def test_a_uri_without_a_scheme_is_the_one_that_gemel_completes() -> None:
    assert list(compare.differences(lists(template="/a/{b}"), lists(template="resource:///a/{b}"))) == []


@pytest.mark.parametrize("form", ["date-time", "time", "duration"])
def test_a_format_that_not_each_result_has_is_counted(form: str) -> None:
    optional = [{"type": "null"}, {"type": "string"}]
    for given, listed in (
        ({"type": "string", "format": form}, {"type": "string"}),
        ({"anyOf": [{"type": "string", "format": form}, {"type": "null"}]}, {"anyOf": optional}),
    ):
        old, new = lists({"outputSchema": in_result(given)}), lists({"outputSchema": in_result(listed)})
        assert list(compare.differences(old, new)) == []
        assert compare.formats_left_out(old, new) == 1
        assert compare.formats_left_out(old, old) == 0


def test_the_format_of_a_decimal_is_no_difference() -> None:
    old, new = in_result({"type": "string"}), in_result({"type": "string", "format": "decimal"})
    assert list(compare.differences(lists({"outputSchema": old}), lists({"outputSchema": new}))) == []


def test_other_formats_are_a_difference() -> None:
    old, new = in_result({"type": "string", "format": "uuid"}), in_result({"type": "string"})
    found = compare.differences(lists({"outputSchema": old}), lists({"outputSchema": new}))
    assert list(found) == ["tool a: outputSchema.properties.result.format is missing"]


def test_the_format_of_an_argument_is_a_difference() -> None:
    old, new = in_result({"type": "string", "format": "date-time"}), in_result({"type": "string"})
    assert list(compare.differences(lists({"inputSchema": old}), lists({"inputSchema": new}))) != []


UI = "ui://a/page.html"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"resourceUri": UI}, {"resourceUri": UI, "visibility": ["model", "app"]}),
        ({"resourceUri": "ui://prefab/renderer/0f3a/renderer.html"}, {"resourceUri": "ui://prefab/renderer.html"}),
    ],
)
def test_the_same_page_of_a_tool_written_otherwise_is_no_difference(old: Any, new: Any) -> None:
    found = compare.differences(lists({"_meta": {"ui": old}}), lists({"_meta": {"ui": new}}))
    assert list(found) == []


@pytest.mark.parametrize("new", [None, {"resourceUri": "ui://b"}, {"resourceUri": UI, "visibility": ["app"]}])
def test_another_page_or_audience_of_a_tool_is_a_difference(new: Any) -> None:
    (found,) = compare.differences(lists({"_meta": {"ui": {"resourceUri": UI}}}), lists({"_meta": {"ui": new}}))
    assert found.startswith("tool a: _meta.ui was ")


def page(**ui: Any) -> dict[str, Any]:
    """The lists of a server with one page."""
    resource = {"uri": UI, "name": "page", "mimeType": "text/html;profile=mcp-app", "_meta": {"ui": ui}}
    return {**lists(), "resources": [resource]}


def test_what_a_page_may_use_is_compared_without_the_order_of_its_origins() -> None:
    old = page(csp={"resourceDomains": ["https://a.org", "https://b.org"], "connectDomains": []})
    assert list(compare.differences(old, page(csp={"resourceDomains": ["https://b.org", "https://a.org"]}))) == []
    (found,) = compare.differences(old, page(csp={"resourceDomains": ["https://a.org"]}))
    assert found.startswith(f"resource {UI}: _meta.ui was ")


def extended(**extensions: Any) -> dict[str, Any]:
    """The lists of a server with these extensions."""
    return {**lists(), "capabilities": {"extensions": extensions}}


def test_extensions_of_a_program_are_compared_with_their_settings() -> None:
    old = extended(**{"com.example/a": {"most": 1}, "io.modelcontextprotocol/ui": {}})
    assert list(compare.differences(old, extended(**{"com.example/a": {"most": 1}}))) == []
    assert compare.count(old) == "1 extension"
    assert compare.lists_something(old)
    found = compare.differences(old, extended(**{"com.example/a": {}, "com.example/b": {}}))
    assert list(found) == [
        "the extension com.example/b was not there before",
        "the settings of the extension com.example/a differ",
    ]
    assert list(compare.differences(old, extended())) == ["the extension com.example/a is missing"]
