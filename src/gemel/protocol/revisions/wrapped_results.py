"""Structured content that is not an object, for revisions in which it has to be one: as the member `result` of an object.

Revisions 2025-06-18 and 2025-11-25: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#structured-content
"""

from __future__ import annotations

from typing import Any

from gemel.schema.tools import WRAP_MARKERS, CallToolResult


class ToolValueResult(CallToolResult[Any], kw_only=True):
    """The result of a tool whose output schema is wrapped: so is its structured content, even if it is an object."""


#: Keywords whose values are data, and those whose values map names to schemas.
_DATA = frozenset({"const", "default", "enum", "examples"})
_MAPPINGS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_PLACE = "#/properties/result"


def wrap_schema(schema: dict[str, Any] | bool) -> dict[str, Any]:
    """Return the schema of an object whose only member, `result`, fits the given schema."""
    inner = schema
    outer: dict[str, Any] = {"type": "object"}
    if isinstance(schema, dict):
        inner = _rebased({word: value for word, value in schema.items() if word != "$schema"})
        if "$schema" in schema:
            outer["$schema"] = schema["$schema"]
    return {**outer, "properties": {"result": inner}, "required": ["result"], **dict.fromkeys(WRAP_MARKERS, True)}


def _rebased(schema: object) -> Any:
    """A schema whose references lead to places below the member."""
    if isinstance(schema, list):
        return [_rebased(item) for item in schema]
    if not isinstance(schema, dict) or _is_base(schema.get("$id")):
        return schema
    rebased: dict[str, Any] = {}
    for word, value in schema.items():
        if word in ("$ref", "$dynamicRef") and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            rebased[word] = _PLACE + value[1:]
        elif word in _MAPPINGS and isinstance(value, dict):
            rebased[word] = {name: _rebased(inner) for name, inner in value.items()}
        else:
            rebased[word] = value if word in _DATA else _rebased(value)
    return rebased


def _is_base(schema_id: object) -> bool:
    """Whether references below an `$id` are relative to it. One that is a fragment is an anchor (drafts 06 and 07)."""
    return isinstance(schema_id, str) and not schema_id.startswith("#")
