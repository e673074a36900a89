"""In how many ways one JSON Schema looks at one place of a value: what a hostile schema doubles at each step.

Pure arithmetic on the schema's text; it knows keywords and references, and validates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

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
