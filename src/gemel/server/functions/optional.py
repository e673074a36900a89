"""Optional members of arguments as hosts and models understand them best: with the type of their values, without null."""

from __future__ import annotations

from typing import Any

from gemel.protocol.schema_keywords import KEYWORDS, with_inner
from gemel.server.functions.json_schema import Schema

#: Keywords that say which values there are.
_RESTRICTING = KEYWORDS | {"contentEncoding", "contentMediaType"}
#: Annotations of a member that come before those of the type behind it.
_TEXTS = frozenset({"description", "title", "examples", "deprecated"})


def without_null(schema: object) -> Any:
    """Return a schema of arguments in which no member lists null whose default is null.

    Leaving such a member out says the same: `{"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null}` becomes
    `{"type": "integer"}`. Required members, and those with another default, keep null: it says something there.

    Args:
        schema: A JSON Schema; any other value is returned unchanged.
    """
    if not isinstance(schema, dict):
        return schema
    required = schema.get("required") or ()

    def change(word: str, inner: object) -> Any:
        return without_null(inner)

    changed = with_inner(schema, change)
    if isinstance(members := changed.get("properties"), dict):
        changed["properties"] = {
            name: member if name in required else _without_null(member) for name, member in members.items()
        }
    return changed


def _without_null(member: object) -> Any:
    if not isinstance(member, dict) or member.get("default", 0) is not None:
        return member
    rest: Schema = {word: value for word, value in member.items() if word != "default"}
    if not _RESTRICTING & rest.keys():
        return rest  # any value, null among them
    stripped = strip_null(rest)
    return member if stripped is None else stripped


def strip_null(schema: Schema) -> Schema | None:
    """Return a schema without null among its types, values or alternatives; None if null is not there, or nothing else.

    Args:
        schema: A JSON Schema.
    """
    if isinstance(kinds := schema.get("type"), list) and "null" in kinds:
        left = [kind for kind in kinds if kind != "null"]
        return {**_without_none(schema), "type": left[0] if len(left) == 1 else left} if left else None
    if isinstance(values := schema.get("enum"), list) and None in values and "type" not in schema:
        return _without_none(schema) if len(values) > 1 else None
    for word in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(word), list) and any(map(_is_null, options)):
            left = [option for option in options if not _is_null(option)]
            others = {key: value for key, value in schema.items() if key != word}
            if len(left) == 1 and isinstance(left[0], dict) and (left[0].keys() & others.keys()) <= _TEXTS:
                return {**left[0], **others}
            return {**schema, word: left} if left else None
    return None


def _is_null(schema: object) -> bool:
    return isinstance(schema, dict) and (schema.get("type") == "null" or schema.get("const", 0) is None)


def _without_none(schema: Schema) -> Schema:
    values = schema.get("enum")
    return {**schema, "enum": [one for one in values if one is not None]} if isinstance(values, list) else schema
