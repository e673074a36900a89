"""The keywords of JSON Schema: which of them hold schemas, and which restrict values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Keywords that hold one schema, a list of them, or an object of them.
ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")

#: Keywords that restrict values, and those that say how a schema is written. All others are annotations.
KEYWORDS = frozenset(
    {
        *ONE,
        *LISTED,
        *NAMED,
        *("$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveRef", "$ref", "$schema", "$vocabulary"),
        *("const", "dependencies", "dependentRequired", "enum", "format", "multipleOf", "pattern", "required", "type"),
        *("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "maxLength", "minLength", "uniqueItems"),
        *("maxContains", "minContains", "maxItems", "minItems", "maxProperties", "minProperties"),
    }
)


def with_inner(schema: dict[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Replace each schema directly inside a schema by `change(keyword, schema)`."""
    words: dict[str, Any] = {}
    for word, value in schema.items():
        if (word in LISTED or word == "items") and isinstance(value, list):
            words[word] = [change(word, one) for one in value]
        elif word in ONE:
            words[word] = change(word, value)
        elif word in NAMED and isinstance(value, dict):
            words[word] = {name: change(word, one) for name, one in value.items()}
        elif word == "dependencies" and isinstance(value, dict):
            words[word] = {name: one if isinstance(one, list) else change(word, one) for name, one in value.items()}
        else:
            words[word] = value
    return words
