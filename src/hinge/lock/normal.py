"""JSON Schemas in one form: which of their words hold schemas, and what of their writing carries no meaning.

Knows the words of the dialects; what they demand of a value is `proving`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hinge.lock.canonical import canonical

#: The dialect that holds where a schema names none (JSON-01).
DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Dialects whose schemas can be written in the default one.
_OLDER = ("http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema")

#: Words that hold one schema, a list of them, or a mapping of names to them.
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

#: Words of the newer dialect that say nothing in the older ones.
_NEWER = (
    "$dynamicRef",
    "dependentRequired",
    "dependentSchemas",
    "maxContains",
    "minContains",
    "prefixItems",
    "unevaluatedItems",
    "unevaluatedProperties",
)


def normal(schema: Any) -> Any:
    """The schema without what carries no meaning, as new objects.

    `{}` and `{"not": {}}` are written as `true` and `false`; `required`, `type`, `enum`, `dependentRequired`, `allOf`,
    `anyOf` and `oneOf` are sorted by their canonical text, the first four without repeats; a list of one type is that
    type, an empty `required` is left out, and so is a `$schema` that names the default dialect.
    """
    return _normal(schema, _Texts())


class _Texts:
    """The canonical texts of the parts of one schema: what is deep inside is written once, not for each level above it."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        #: An id is known only as long as its object is there.
        self._kept: list[Any] = []

    def of(self, schema: Any) -> str:
        """The text of a part that changes no more."""
        text = canonical(schema, self._known)
        if isinstance(schema, dict):
            self._known[id(schema)] = text
            self._kept.append(schema)
        return text


def _normal(schema: Any, texts: _Texts) -> Any:
    if not isinstance(schema, dict):
        return schema
    inner = _with_inner(schema, lambda one: _normal(one, texts))
    found = {word: _sorted(word, value, texts) for word, value in inner.items()}
    if found.get("required") == []:
        del found["required"]
    if dialect(found) == DEFAULT_DIALECT:
        found.pop("$schema", None)
    if not found:
        return True
    return False if found == {"not": True} and found["not"] is True else found


def dialect(schema: Any) -> str:
    """The dialect that a schema's root names, without a fragment."""
    said = schema.get("$schema") if isinstance(schema, dict) else None
    return said.rstrip("#") if isinstance(said, str) else DEFAULT_DIALECT


def newest(schema: Any) -> Any | None:
    """A normal schema in the default dialect; None if its own one can't be written in that."""
    named = dialect(schema)
    if named == DEFAULT_DIALECT:
        return schema
    return _translated(schema) if named in _OLDER else None


def _translated(schema: Any) -> Any:
    """Draft 6 or 7: a reference stands alone, items and dependencies go by other names."""
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        kept = {word: value for word, value in schema.items() if word in ("$ref", "$defs", "definitions")}
        return _with_inner(kept, _translated)
    found = {word: value for word, value in schema.items() if word not in (*_NEWER, "$schema")}
    if isinstance(found.get("items"), list):
        found["prefixItems"] = found.pop("items")
        if "additionalItems" in found:
            found["items"] = found["additionalItems"]
    found.pop("additionalItems", None)
    for name, demand in _mapping(found.pop("dependencies", None)).items():
        word = "dependentRequired" if isinstance(demand, list) else "dependentSchemas"
        found.setdefault(word, {})[name] = demand
    return _with_inner(found, _translated)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _with_inner(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The schema with each schema directly inside it changed."""
    found: dict[str, Any] = {}
    for word, value in schema.items():
        if (word in LISTED or word == "items") and isinstance(value, list):
            found[word] = [change(one) for one in value]
        elif word in ONE:
            found[word] = change(value)
        elif word in NAMED and isinstance(value, dict):
            found[word] = {name: change(one) for name, one in value.items()}
        elif word == "dependencies" and isinstance(value, dict):
            found[word] = {name: one if isinstance(one, list) else change(one) for name, one in value.items()}
        else:
            found[word] = value
    return found


def _sorted(word: str, value: Any, texts: _Texts) -> Any:
    if word in ("required", "enum") and isinstance(value, list):
        return _unique(value)
    if word == "type" and isinstance(value, list):
        kinds = _unique(value)
        return kinds[0] if len(kinds) == 1 else kinds
    if word in ("allOf", "anyOf", "oneOf") and isinstance(value, list):
        return sorted(value, key=texts.of)
    if word == "dependentRequired" and isinstance(value, dict):
        return {name: _unique(names) if isinstance(names, list) else names for name, names in value.items()}
    return value


def _unique(values: list[Any]) -> list[Any]:
    return [value for _, value in sorted({canonical(value): value for value in values}.items())]
