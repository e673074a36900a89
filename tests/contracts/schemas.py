"""JSON Schemas, changes of them and values for them, drawn by chance from a small world, in which they often meet."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "ab", "c")
PATTERNS = ("^a", "b$", "c")
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 0.5, 1.5, 2.0])
TEXTS = st.sampled_from(["", "a", "ab", "abc", "c"])
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
COUNTS = st.integers(0, 3)

VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from((*NAMES, "d")), inner, max_size=4)
    ),
    max_leaves=8,
)


def _words(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some words of a schema, whose inner schemas are `inner`."""
    several = st.lists(inner, min_size=1, max_size=3)
    names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
    words: dict[str, st.SearchStrategy[Any]] = {
        "type": st.one_of(
            st.sampled_from(KINDS), st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True)
        ),
        "enum": st.lists(SCALARS, min_size=1, max_size=4),
        "const": SCALARS,
        "minimum": NUMBERS,
        "exclusiveMinimum": NUMBERS,
        "maximum": NUMBERS,
        "exclusiveMaximum": NUMBERS,
        "multipleOf": st.sampled_from([1, 2, 3, 0.5]),
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "pattern": st.sampled_from(PATTERNS),
        "items": inner,
        "prefixItems": several,
        "minItems": COUNTS,
        "maxItems": COUNTS,
        "uniqueItems": st.booleans(),
        "contains": inner,
        "minContains": COUNTS,
        "maxContains": COUNTS,
        "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(PATTERNS), inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": inner,
        "required": names,
        "minProperties": COUNTS,
        "maxProperties": COUNTS,
        "dependentRequired": st.dictionaries(st.sampled_from(NAMES), names, max_size=2),
        "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), inner, max_size=1),
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
    }
    usual = st.fixed_dictionaries(
        {}, optional={word: words[word] for word in ("type", "properties", "required", "items")}
    )
    some = st.sets(st.sampled_from(sorted(words)), max_size=3).flatmap(
        lambda chosen: st.fixed_dictionaries({word: words[word] for word in sorted(chosen)})
    )
    return st.builds(lambda one, other: {**one, **other}, usual, some)


PARTS = st.recursive(st.one_of(st.booleans(), _words(st.booleans())), lambda inner: _words(inner), max_leaves=6)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """A whole schema, of an object, with definitions."""
    root: dict[str, Any] = {**draw(_words(PARTS)), "type": "object"}
    if draw(st.booleans()):
        root.pop("$ref", None)
    root["$defs"] = {"one": draw(PARTS), "two": draw(_words(st.booleans()))}
    if _goes_round(root, root, set()):
        root = _without_references(root)
    return root


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema and another one, most often the first with a change or two."""
    old = draw(schemas())
    new = copy.deepcopy(old)
    for _ in range(draw(st.integers(0, 3))):
        places = list(_places(new))
        place = places[draw(st.integers(0, len(places) - 1))]
        given: dict[str, Any] = draw(_words(st.booleans()))
        kept = sorted(place.keys() - {"$defs"})
        taken: bool = draw(st.booleans())
        if kept and taken:
            del place[kept[draw(st.integers(0, len(kept) - 1))]]
        place.update({word: value for word, value in given.items() if word != "$ref"})
    new["type"] = "object"
    if draw(st.integers(0, 9)) == 0:
        new = draw(schemas())
    return old, (_without_references(new) if _goes_round(new, new, set()) else new)


def _places(schema: Any) -> Any:
    """The schemas inside a schema that are objects, itself first."""
    if isinstance(schema, dict):
        yield schema
        for word, value in schema.items():
            if word in ("properties", "patternProperties", "dependentSchemas", "$defs"):
                for inner in value.values():
                    yield from _places(inner)
            elif word in ("allOf", "anyOf", "oneOf", "prefixItems"):
                for inner in value:
                    yield from _places(inner)
            elif word in ("items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"):
                yield from _places(value)


def _goes_round(root: dict[str, Any], schema: Any, on_the_way: set[str]) -> bool:
    """Whether a reference leads back to itself without a step into the value: nonsense that validators differ on."""
    if not isinstance(schema, dict):
        return False
    target = schema.get("$ref")
    if isinstance(target, str):
        definition = root.get("$defs", {}).get(target.rpartition("/")[2])
        if target in on_the_way or _goes_round(root, definition, {*on_the_way, target}):
            return True
    if schema is root and any(
        _goes_round(root, one, {f"#/$defs/{name}"}) for name, one in root.get("$defs", {}).items()
    ):
        return True
    inner = [schema.get(word) for word in ("not", "if", "then", "else")]
    inner += [one for word in ("allOf", "anyOf", "oneOf") for one in schema.get(word, [])]
    inner += list(schema.get("dependentSchemas", {}).values())
    return any(_goes_round(root, one, on_the_way) for one in inner)


def _without_references(schema: dict[str, Any]) -> dict[str, Any]:
    for place in list(_places(schema)):
        place.pop("$ref", None)
    return schema


# ---------------------------------------------------------------- who keeps to a contract


def kept_to(root: dict[str, Any]) -> dict[str, Any]:
    """The schema of the values that hold only declared members: what a caller sends who keeps to the contract.

    Where a schema names members and doesn't say that there are others, there are none; at the root in any case.
    """
    return {**_closed(root, root, whole=True), "$defs": {k: _inside(v, root) for k, v in root.get("$defs", {}).items()}}


def _closed(schema: Any, root: dict[str, Any], *, whole: bool = False) -> Any:
    """A schema of a value of its own."""
    here = list(_in_place(schema, root, set()))
    opens = any(one.get("additionalProperties", False) is not False for one in here)
    closes = not opens and (whole or any("properties" in one for one in here))
    found = _inside(schema, root)
    return {**found, "unevaluatedProperties": False} if closes else found


def _inside(schema: Any, root: dict[str, Any]) -> Any:
    """A schema of a value of which others speak too."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for word, value in schema.items():
        if word in ("properties", "patternProperties"):
            found[word] = {name: _closed(one, root) for name, one in value.items()}
        elif word == "dependentSchemas":
            found[word] = {name: _inside(one, root) for name, one in value.items()}
        elif word == "prefixItems":
            found[word] = [_closed(one, root) for one in value]
        elif word in ("allOf", "anyOf", "oneOf"):
            found[word] = [_inside(one, root) for one in value]
        elif word in ("items", "additionalProperties"):
            found[word] = _closed(value, root)
        elif word in ("if", "then", "else"):
            found[word] = _inside(value, root) if word != "if" else value
    return found


def _in_place(schema: Any, root: dict[str, Any], seen: set[int]) -> Any:
    if not isinstance(schema, dict) or id(schema) in seen:
        return
    seen.add(id(schema))
    yield schema
    target = schema.get("$ref")
    inner = [root["$defs"][target.rpartition("/")[2]]] if isinstance(target, str) else []
    inner += [schema.get(word) for word in ("if", "then", "else")]
    inner += [one for word in ("allOf", "anyOf", "oneOf") for one in schema.get(word, [])]
    inner += list(schema.get("dependentSchemas", {}).values())
    for one in inner:
        yield from _in_place(one, root, seen)
