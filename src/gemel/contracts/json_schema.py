"""JSON Schemas as data: the normal form, older dialects in the newest one, references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gemel.contracts.canonical import canonical
from gemel.protocol.schema_keywords import with_inner
from gemel.protocol.validation import follow_pointer

#: The dialect of a schema that names none.
DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Dialects that can be translated to the default one.
_OLDER = ("http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema")

#: Keywords of the newest dialect that mean nothing in the older ones.
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


def normal(schema: object) -> Any:
    """Return the schema without what carries no meaning.

    `{}` and `{"not": {}}` become `true` and `false`; `required`, `type`, `enum`, `dependentRequired`, `allOf`,
    `anyOf` and `oneOf` are sorted by their canonical text, the first four without repeats; a list of one type becomes
    that type; an empty `required` and a `$schema` that names the default dialect are left out.
    """
    return _normal(schema, Texts())


class Texts:
    """The canonical texts of the parts of one schema, each computed once."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        #: Keeps the objects alive whose ids are known.
        self._schemas: list[Any] = []

    def of(self, schema: Any) -> str:
        """The text of a part that does not change any more."""
        text = canonical(schema, self._texts)
        if isinstance(schema, dict):
            self._texts[id(schema)] = text
            self._schemas.append(schema)
        return text


def _normal(schema: object, texts: Texts) -> Any:
    if not isinstance(schema, dict):
        return schema
    inner = with_inner(schema, lambda _, one: _normal(one, texts))
    words = {word: _sorted(word, value, texts) for word, value in inner.items()}
    if words.get("required") == []:
        del words["required"]
    if dialect(words) == DEFAULT_DIALECT:
        words.pop("$schema", None)
    if not words:
        return True
    return False if words == {"not": True} and words["not"] is True else words


def dialect(schema: object) -> str:
    """Return the dialect that the root of a schema names, without a fragment."""
    declared = schema.get("$schema") if isinstance(schema, dict) else None
    return declared.rstrip("#") if isinstance(declared, str) else DEFAULT_DIALECT


def newest(schema: object) -> Any | None:
    """Translate a normal schema to the default dialect; None if its own dialect is not known."""
    named = dialect(schema)
    if named == DEFAULT_DIALECT:
        return schema
    return _translated(schema) if named in _OLDER else None


def _translated(schema: object) -> Any:
    """Draft 6 or 7: `$ref` overrides its siblings, `items` and `dependencies` have other names."""
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        references = {word: value for word, value in schema.items() if word in ("$ref", "$defs", "definitions")}
        return with_inner(references, lambda _, one: _translated(one))
    translated = {word: value for word, value in schema.items() if word not in (*_NEWER, "$schema")}
    if isinstance(translated.get("items"), list):
        translated["prefixItems"] = translated.pop("items")
        if "additionalItems" in translated:
            translated["items"] = translated["additionalItems"]
    translated.pop("additionalItems", None)
    for name, demand in _mapping(translated.pop("dependencies", None)).items():
        word = "dependentRequired" if isinstance(demand, list) else "dependentSchemas"
        translated.setdefault(word, {})[name] = demand
    return with_inner(translated, lambda _, one: _translated(one))


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _sorted(word: str, value: object, texts: Texts) -> Any:
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


# ---------------------------------------------------------------- references


class Root:
    """A whole schema, in which references are looked up."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def find(self, reference: object) -> Node | None:
        """Return the schema that a JSON Pointer reference names; None if it is not in this document."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return None
        target = follow_pointer(self.schema, reference[1:])
        return None if target is None else Node(self, target)


class Node(NamedTuple):
    """A schema inside a root."""

    root: Root
    schema: Any

    def inner(self, schema: object) -> Node:
        """Return a schema of the same root."""
        return Node(self.root, schema)

    def get(self, keyword: str) -> Any:
        """Return the value of a keyword, None without it."""
        return self.schema.get(keyword) if isinstance(self.schema, dict) else None


def inner_schemas(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each schema directly inside a schema, with its keyword."""
    inner: list[tuple[str, Any]] = []
    with_inner(schema, lambda word, one: inner.append((word, one)))
    yield from inner


def pairs_of(value: object) -> list[tuple[str, Any]]:
    """Return the members of an object, none for any other value."""
    return list(value.items()) if isinstance(value, dict) else []


def list_of(value: object) -> list[Any]:
    """Return a list as it is, an empty one for any other value."""
    return value if isinstance(value, list) else []
