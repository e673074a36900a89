"""Put what a `$ref` refers to in its place: many hosts drop `$defs` or can't resolve references.

Recursive definitions remain, and so does a schema that would become too large: nested definitions grow exponentially.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from gemel.protocol.http.mirror import ANNOTATION
from gemel.protocol.schema_keywords import KEYWORDS, with_inner
from gemel.protocol.validation import MAX_BYTES, MAX_DEPTH, depth, follow_pointer

#: A result that is more than this many times as large as the schema is not used.
MAX_GROWTH = 2

_DEFINITIONS = ("$defs", "definitions")
#: Keywords that don't restrict values beside `$ref`.
_NEUTRAL = frozenset({*_DEFINITIONS, "$anchor", "$id", "$ref", "$schema", "$vocabulary"})
#: With these, the meaning of a schema depends on where it stands.
_DYNAMIC = frozenset({"$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"})
#: Dialects in which `$ref` overrides the keywords beside it.
_OLDER = ("http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema")
_NEWER = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema")


class _CannotInline(Exception):
    """The schema stays as it is."""


class _Referenced(NamedTuple):
    """What a reference leads to: `way` holds the objects that a pointer passes, and the target at the end."""

    way: list[Any]
    is_pointer: bool
    #: Of a definition.
    name: str | None


def inline_references(schema: object, growth: int = MAX_GROWTH) -> Any:
    """Return an equivalent schema without `$ref` and `$defs`, as far as that is possible.

    An object that takes the place of a reference has the name of its definition as `title`, unless it has another one.
    References to recursive definitions remain, with these definitions. A schema is returned unchanged if it would become
    too large or too deep, refers elsewhere, changes its base URI or its dialect inside (`$id`, `$schema`), uses dynamic
    references or an unknown dialect.

    Args:
        schema: A JSON Schema; any other value is returned unchanged.
        growth: How many times as large as the schema, in bytes of JSON, the result may be. Building stops at this size.

    Returns:
        The schema itself, or a new one.
    """
    try:
        text = msgspec.json.encode(schema)
        if b'"$ref"' not in text or len(text) > MAX_BYTES or depth(schema, MAX_DEPTH) > MAX_DEPTH:
            return schema
        # A copy in which each part is an object of its own.
        inlined = _Inliner(msgspec.json.decode(text), growth * len(text)).build()
        if len(msgspec.json.encode(inlined)) > growth * len(text) or depth(inlined, MAX_DEPTH) > MAX_DEPTH:
            return schema
    except (_CannotInline, TypeError, ValueError, RecursionError):
        return schema
    return schema if inlined == schema else inlined


class _Inliner:
    """Builds one schema. `size`: bytes that it may have."""

    def __init__(self, root: object, size: int) -> None:
        if not isinstance(root, dict):
            raise _CannotInline
        dialect = root.get("$schema")
        if isinstance(dialect, str):
            dialect = dialect.rstrip("#")
        if dialect not in (None, *_NEWER, *_OLDER):
            raise _CannotInline
        self._root = root
        self._is_older = dialect in _OLDER
        self._base = root["$id"] if isinstance(root.get("$id"), str) else ""
        self._left = size
        #: The bytes of the keywords of a schema that hold no schemas, by id.
        self._sizes: dict[int, int] = {}
        self._anchors = dict(self._find_anchors())
        #: By reference: a long one may be copied often.
        self._targets: dict[str, _Referenced] = {}
        #: Targets of references that lead back to themselves, by id; and all objects on the way to them.
        self._recursive: set[int] = set()
        self._kept: set[int] = set()
        self._find_recursive()

    def build(self) -> Any:
        """The schema. Raises _CannotInline."""
        return self._build(self._root, 0, copied=False)

    # ---------------------------------------------------------------- analysis

    def _find_anchors(self) -> Iterator[tuple[str, Any]]:
        pending: list[Any] = [self._root]
        while pending:
            schema = pending.pop()
            if schema is not self._root and ("$id" in schema or "$schema" in schema):
                raise _CannotInline
            if schema.keys() & _DYNAMIC:
                raise _CannotInline
            if isinstance(schema.get("$anchor"), str):
                yield schema["$anchor"], schema
            pending += [inner for _, inner in _inner(schema)]

    def _find_recursive(self) -> None:
        targets: dict[int, Any] = {id(self._root): self._root}
        edges: dict[int, set[int]] = {}
        ways: dict[int, list[Any]] = {}
        pending = [id(self._root)]
        while pending:
            one = pending.pop()
            edges[one] = set()
            for reference in _references(targets[one]):
                way = self._resolve(reference).way
                target = way[-1]
                edges[one].add(id(target))
                if id(target) not in targets:
                    targets[id(target)], ways[id(target)] = target, way
                    pending.append(id(target))
        self._recursive = set(_cyclic(_cyclic(edges)))
        steps = [step for one in self._recursive for step in ways.get(one, ())]
        if self._is_older and any("$ref" in step for step in steps):
            raise _CannotInline  # the place of a definition could be left out
        self._kept = {id(step) for step in steps}

    def _resolve(self, reference: str) -> _Referenced:
        if reference not in self._targets:
            self._targets[reference] = self._find_target(reference)
        return self._targets[reference]

    def _find_target(self, reference: str) -> _Referenced:
        from urllib.parse import unquote, urldefrag, urljoin

        url, fragment = urldefrag(urljoin(self._base, reference))
        if url and url != urldefrag(self._base).url:
            raise _CannotInline
        is_pointer = not fragment or fragment.startswith("/")
        way: list[Any] = [self._root] if is_pointer else [self._anchors.get(unquote(fragment))]
        for token in fragment.split("/")[1:]:  # the names of anchors have none
            way.append(follow_pointer(way[-1], f"/{token}"))
        if not isinstance(way[-1], dict | bool):
            raise _CannotInline
        place, _, name = fragment.rpartition("/")
        name = unquote(name).replace("~1", "/").replace("~0", "~")
        return _Referenced(way, is_pointer, name if unquote(place).endswith(_DEFINITIONS) else None)

    # ---------------------------------------------------------------- building

    def _build(self, schema: object, level: int, *, copied: bool) -> Any:
        if level > MAX_DEPTH:
            raise _CannotInline
        if not isinstance(schema, dict):
            return schema
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return self._words(schema, level, copied=copied)
        way, is_pointer, name = self._resolve(reference)
        rest = self._words(schema, level, copied=copied)
        if id(way[-1]) in self._recursive:
            if not is_pointer:
                raise _CannotInline  # anchors are left out
            self._spend(len(reference))
            return {"$ref": reference, **rest}
        inner = self._build(way[-1], level + 1, copied=True)
        if isinstance(inner, bool):
            inner = {} if inner else {"not": {}}
        if name is not None and "properties" in inner:
            self._spend(len(name))
            inner = {"title": name, **inner}  # people and generated code call it so
        restricting = rest.keys() & KEYWORDS - _NEUTRAL
        if not restricting or self._is_older:
            return {**inner, **{word: value for word, value in rest.items() if word not in restricting}}
        return {**rest, "allOf": [*rest.get("allOf", ()), inner]}

    def _words(self, schema: dict[str, Any], level: int, *, copied: bool) -> dict[str, Any]:
        """The keywords beside `$ref`; definitions only as far as references to them remain."""
        if copied and ANNOTATION in schema:
            raise _CannotInline
        self._spend(self._own_size(schema))
        words: dict[str, Any] = {}
        for word, value in schema.items():
            if word in _DEFINITIONS and isinstance(value, dict):
                value = {name: one for name, one in value.items() if id(one) in self._kept and not copied}
                if not value:
                    continue
            if word != "$anchor" and (word != "$ref" or not isinstance(value, str)):
                words[word] = value
        return with_inner(words, lambda _, one: self._build(one, level + 1, copied=copied))

    def _own_size(self, schema: dict[str, Any]) -> int:
        """The bytes of a schema without those inside it, its definitions and its reference."""
        if id(schema) not in self._sizes:
            words = {word: value for word, value in schema.items() if word not in (*_DEFINITIONS, "$ref")}
            self._sizes[id(schema)] = len(msgspec.json.encode(with_inner(words, lambda _, one: 0)))
        return self._sizes[id(schema)]

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _CannotInline


def _inner(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The schemas directly inside a schema, with their keywords."""
    inner: list[tuple[str, Any]] = []
    with_inner(schema, lambda word, one: inner.append((word, one)))
    return [(word, one) for word, one in inner if isinstance(one, dict)]


def _references(schema: object) -> Iterator[str]:
    """The references in a schema, without those in its definitions."""
    pending = [schema] if isinstance(schema, dict) else []
    while pending:
        part = pending.pop()
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        pending += [inner for word, inner in _inner(part) if word not in _DEFINITIONS]


def _cyclic(edges: dict[int, set[int]]) -> dict[int, set[int]]:
    """A graph without the nodes from which no cycle is reached; its edges are reversed."""
    reverse: dict[int, set[int]] = {one: set() for one in edges}
    for one, others in edges.items():
        for other in others:
            reverse[other].add(one)
    left = {one: len(others) for one, others in edges.items()}
    ends = [one for one in edges if not left[one]]
    gone: set[int] = set()
    while ends:
        end = ends.pop()
        gone.add(end)
        for one in reverse[end]:
            left[one] -= 1
            if not left[one]:
                ends.append(one)
    return {one: others - gone for one, others in reverse.items() if one not in gone}
