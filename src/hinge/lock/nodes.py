"""Schemas inside their roots, and what a single one says by its own words. What several of them say together is `facts`'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from hinge.lock.canonical import canonical

if TYPE_CHECKING:
    import jsonschema_rs

#: The kinds of JSON values; numbers are those that are whole and those that aren't.
KINDS = frozenset({"null", "boolean", "integer", "fraction", "string", "array", "object"})
#: Words that hold schemas of the same value.
_IN_PLACE = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE = ("if", "then", "else")


class Root:
    """A whole schema, in which references are looked up. `schema` is in the default dialect."""

    def __init__(self, schema: Any, *, lent: bool = False) -> None:
        self.schema = schema
        #: Whether it is the right side's, used on the left for once: it doesn't say what the left declares.
        self.lent = lent
        self._texts: dict[int, str] = {}

    def text_of(self, schema: Any) -> str:
        """The canonical text of a schema of this root, which lives as long as this."""
        found = self._texts.get(id(schema))
        if found is None:
            found = self._texts[id(schema)] = canonical(schema)
        return found

    @cached_property
    def refers_within(self) -> bool:
        """Whether references mean this document: below an `$id` they would mean another one."""
        return not _renamed(self.schema)

    def find(self, reference: Any) -> Node | None:
        """The schema that a reference names; None if it isn't here."""
        if not isinstance(reference, str) or not reference.startswith("#") or not self.refers_within:
            return None
        found: Any = self.schema
        steps = reference[1:].split("/")
        if steps.pop(0):
            return None  # an anchor
        for step in steps:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return Node(self, found)


class Node(NamedTuple):
    """A schema inside a root."""

    root: Root
    schema: Any

    def inner(self, schema: Any) -> Node:
        """A schema of the same root."""
        return Node(self.root, schema)

    def get(self, word: str) -> Any:
        """The value of a word, None without it."""
        return self.schema.get(word) if isinstance(self.schema, dict) else None

    def same(self, other: Node) -> bool:
        """Whether both surely say the same: the same text, and references that lead to the same."""
        if self.schema is other.schema and self.root is other.root:
            return True
        text, (root, there) = self.root.text_of(self.schema), (self.root, other.root)
        if text != there.text_of(other.schema):
            return False
        alone = '"$ref"' not in text and '"$dynamicRef"' not in text
        return alone or root.text_of(root.schema) == there.text_of(there.schema)


NOTHING = Node(Root(False), False)


def in_place(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """All schemas that speak of the same value, whichever alternative holds."""
    left, seen = list(nodes), set[int]()
    while left:
        node = left.pop()
        if not isinstance(node.schema, dict) or id(node.schema) in seen:
            continue
        seen.add(id(node.schema))
        yield node
        referred = node.root.find(node.get("$ref"))
        left += [referred] if referred is not None else []
        left += [node.inner(one) for word in _IN_PLACE for one in listed(node.get(word))]
        left += [node.inner(node.get(word)) for word in _IN_PLACE_ONE]
        left += [node.inner(one) for _, one in pairs_of(node.get("dependentSchemas"))]


def declared(nodes: tuple[Node, ...]) -> frozenset[str]:
    """The members that are named by any of the schemas at one place."""
    return frozenset(name for node in in_place(nodes) for name, _ in pairs_of(node.get("properties")))


def kinds_of(schema: Any) -> frozenset[str]:
    """The kinds of values that a schema takes, by its own words."""
    if schema is False:
        return frozenset()
    if not isinstance(schema, dict):
        return KINDS
    found = KINDS
    if "type" in schema:
        said = schema["type"]
        names = [said] if isinstance(said, str) else said if isinstance(said, list) else []
        found = frozenset(kind for name in names for kind in _kinds_named(name)) or KINDS
    values = values_of(schema)
    if values is not None:
        found &= frozenset(map(kind_of, values))
    for word in ("anyOf", "oneOf"):
        if listed(schema.get(word)):
            found &= frozenset[str]().union(*map(kinds_of, schema[word]))
    return found


def kind_of(value: Any) -> str:
    """The kind of a JSON value; 1.0 is whole."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "fraction"
    names: Mapping[type, str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _kinds_named(name: Any) -> tuple[str, ...]:
    if name == "number":
        return ("integer", "fraction")
    return (name,) if name in KINDS - {"fraction"} else tuple(KINDS)


def readable(pattern: str) -> bool:
    """Whether it can be told which names match a pattern."""
    return _pattern(pattern) is not None


def matches(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern, by the rules of JSON Schema; True for a pattern that can't be read."""
    found = _pattern(pattern)
    return found is None or found.is_valid(name)


@lru_cache(maxsize=256)
def _pattern(text: str) -> jsonschema_rs.Validator | None:
    from hinge.protocol.validation import compile_schema

    try:
        return compile_schema({"pattern": text})
    except ValueError:
        return None


def spread(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """The schemas with what they refer to and consist of."""
    left, seen = list(reversed(nodes)), set[int]()
    while left:
        node = left.pop()
        if id(node.schema) in seen and isinstance(node.schema, dict):
            continue
        seen.add(id(node.schema))
        if node.schema is not True:
            yield node
        referred = node.root.find(node.get("$ref"))
        left += [referred] if referred is not None else []
        left += [node.inner(one) for one in listed(node.get("allOf"))]


def member_of(node: Node, name: str) -> Iterator[Node]:
    if not isinstance(node.schema, dict):
        return
    properties, patterns = node.get("properties"), node.get("patternProperties")
    said = False
    if isinstance(properties, dict) and name in properties:
        said = True
        yield node.inner(properties[name])
    for pattern, schema in pairs_of(patterns):
        if matches(pattern, name):
            said = True  # so does one that can't be read: it says nothing, and neither does additionalProperties then
            if _pattern(pattern) is not None:
                yield node.inner(schema)
    if not said and "additionalProperties" in node.schema:
        yield node.inner(node.schema["additionalProperties"])


def item_of(node: Node, place: int) -> Iterator[Node]:
    first = node.get("prefixItems")
    named = first if isinstance(first, list) else []
    if place < len(named):
        yield node.inner(named[place])
    elif isinstance(node.get("items"), dict | bool):
        yield node.inner(node.get("items"))


def values_of(schema: Any) -> list[Any] | None:
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def opens(value: Any) -> bool:
    """Whether additionalProperties says that others may come."""
    return value is True or isinstance(value, dict)


def pairs_of(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _renamed(schema: Any) -> bool:
    left, root = [schema], True
    while left:
        item = left.pop()
        if isinstance(item, dict):
            if not root and isinstance(item.get("$id"), str):
                return True
            left += item.values()
        elif isinstance(item, list):
            left += item
        root = False
    return False
