"""In how many ways one JSON Schema looks at one place of a value: what a hostile schema doubles at each step.

Pure arithmetic on the schema's text; it knows keywords and references, and validates nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from hinge.errors import shorten

if TYPE_CHECKING:
    import jsonschema_rs


#: Keywords that look at the same place again.
_SAME_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", "extends")
#: Keywords whose members look at different places: only the worst of them counts.
_OTHER_PLACES = ("properties", "prefixItems")
#: Keywords that look at places within: more than one may look at the same.
_WITHIN = (
    *("items", "additionalItems", "unevaluatedItems", "contains", "patternProperties", "additionalProperties"),
    *("unevaluatedProperties", "propertyNames", "contentSchema"),
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

#: References follow each other so far and no further.
MAX_STEPS = 300


class Ways:
    """The ways of one schema, counted once for each of its parts."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._counted: dict[int, int] = {}
        self._open: set[int] = set()
        self._bases: dict[int, str] = {}
        #: Parts that have a name: by their own address, with or without an anchor.
        self._named: dict[str, Any] = {"": schema}
        self._name(schema)

    def count(self) -> int:
        """How often the worst place is looked at; a part that refers to itself counts once. Raises ValueError for 300 steps."""
        return self._count(self._root, 0)

    def _name(self, schema: Any) -> None:
        left: list[tuple[Any, str]] = [(schema, "")]
        while left:
            part, base = left.pop()
            if isinstance(part, dict):
                identity = part.get("$id", part.get("id"))
                if isinstance(identity, str):
                    base = urljoin(base, urldefrag(identity).url)
                    self._named.setdefault(base, part)
                for word in ("$anchor", "$dynamicAnchor"):
                    if isinstance(part.get(word), str):
                        self._named.setdefault(f"{base}#{part[word]}", part)
                self._bases[id(part)] = base
                left.extend((inner, base) for inner in part.values())
            elif isinstance(part, list):
                left.extend((inner, base) for inner in part)

    def _count(self, part: Any, steps: int) -> int:
        if isinstance(part, list):
            return sum(self._count(inner, steps) for inner in part)
        if not isinstance(part, dict) or id(part) in self._open:
            return 1
        known = self._counted.get(id(part))
        if known is not None:
            return known
        if steps > MAX_STEPS:
            raise ValueError(f"its references follow each other for more than {MAX_STEPS} steps")
        self._open.add(id(part))
        found = 1 + sum(self._looks(part, steps + 1))
        self._open.discard(id(part))
        self._counted[id(part)] = found
        return found

    def _looks(self, part: dict[str, Any], steps: int) -> Iterator[int]:
        for word in _REFERENCES:
            if isinstance(part.get(word), str):
                yield self._count(self._target(part[word], self._bases.get(id(part), "")), steps)
        for word in (*_SAME_PLACE, *_WITHIN):
            inner = part.get(word)
            many = word in ("dependentSchemas", "dependencies", "patternProperties") and isinstance(inner, dict)
            if inner is not None:
                yield self._count(list(inner.values()) if many and isinstance(inner, dict) else inner, steps)
        for word in _OTHER_PLACES:
            inner = part.get(word)
            inner = list(inner.values()) if isinstance(inner, dict) else inner
            if isinstance(inner, list):
                yield max((self._count(one, steps) for one in inner), default=0)

    def _target(self, reference: str, base: str) -> Any:
        """What a reference names; None for nothing here, which the library refuses."""
        url, fragment = urldefrag(urljoin(base, reference) if not reference.startswith("#") else base + reference)
        if fragment and not fragment.startswith("/"):
            return self._named.get(f"{url}#{fragment}")
        found = self._named.get(url)
        for token in fragment.split("/")[1:]:
            name = unquote(token).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            else:
                found = found.get(name) if isinstance(found, dict) else None
        return found


#: A larger or deeper schema is refused rather than compiled.
MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
#: In how many ways a schema may look at one place of a value: some 50 ms of work.
MAX_WAYS = 1_000_000


def compile_schema(schema: Any) -> jsonschema_rs.Validator:
    """A validator by the dialect that `$schema` names, 2020-12 by default.

    References leave the schema only within itself: nothing is ever fetched. Raises ValueError, in words for people, for a
    schema that is too large, too deep, repeats itself too often, refers elsewhere, or is no valid schema.
    """
    import jsonschema_rs

    if len(msgspec.json.encode(schema)) > MAX_BYTES:
        raise ValueError(f"the schema is larger than {MAX_BYTES} bytes")
    if _depth(schema) > MAX_DEPTH:
        raise ValueError(f"the schema is nested deeper than {MAX_DEPTH} levels")
    if Ways(schema).count() > MAX_WAYS:
        raise ValueError(f"the schema looks at one place of a value in more than {MAX_WAYS:,} ways")
    try:
        return jsonschema_rs.validator_for(
            schema, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions(), mask="the value"
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
        raise ValueError(f"no usable JSON Schema: {shorten(_in_a_line(exc))}") from exc


def _in_a_line(exc: Exception) -> str:
    """What is wrong and where, without the picture that the library draws of it."""
    words = str(exc).partition("\n")[0]
    place = ".".join(map(str, getattr(exc, "instance_path", ())))
    return f"{place}: {words}" if place else words


def schema_errors(validator: jsonschema_rs.Validator, value: Any) -> Iterator[str]:
    """Where the value doesn't fit and why, one line each, without the value itself."""
    for error in validator.iter_errors(value):
        place = ".".join(map(str, error.instance_path))
        yield shorten(f"{place}: {error.message}" if place else error.message)


def first_problem(validator: jsonschema_rs.Validator, value: Any) -> str | None:
    """The first of `schema_errors`; None when the value fits."""
    return next(schema_errors(validator, value), None)


def _refuse(uri: str) -> Any:
    raise ValueError(f"it refers to {shorten(uri)}, and only references inside a schema are followed")


def _depth(schema: Any) -> int:
    deepest, left = 0, [(schema, 1)]
    while left and deepest <= MAX_DEPTH:
        item, depth = left.pop()
        deepest = max(deepest, depth)
        inner: Iterable[Any] = ()
        if isinstance(item, dict):
            inner = item.values()
        elif isinstance(item, list):
            inner = item
        left.extend((one, depth + 1) for one in inner)
    return deepest
