"""Whether every value that some schemas take fits another schema: word by word, and what stands in the way.

A word of the right side is met when what is known on the left demands at least as much. What can't be decided is said as
such: an empty list of problems is a proof. The words of objects, arrays and alternatives have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from hinge.lock import alternatives, arrays, objects
from hinge.lock.canonical import canonical
from hinge.lock.facts import Facts
from hinge.lock.nodes import Node, Root, kinds_of
from hinge.lock.normal import newest
from hinge.lock.problems import Problem, undecided
from hinge.lock.ranges import HIGHEST, LOWEST, within

#: A comparison that needs more steps than this is given up.
MAX_STEPS = 2_000
#: Nor are schemas compared that are nested in each other more often than this.
MAX_NESTED = 60
#: More values than this are not tried one by one.
MAX_VALUES = 1000


class Prover:
    """One comparison. `prove` is what the words of all files call for the schemas inside them."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        #: What is being proved, with how many steps into the value it was reached: a recursion through a part of the
        #: value may take itself for granted, since values end.
        self._open: dict[object, int] = {}
        self._inside = 0
        #: Schemas made here; they are known by their identity, so they must not go away.
        self._made: list[Any] = []
        self._without: dict[tuple[int, str], Node] = {}
        self._lent: dict[int, Root] = {}

    def prove(self, facts: Facts, node: Node, at: str, *, place: bool = False) -> list[Problem]:
        """Why a value of which `facts` hold may not fit `node`. `at` names the value, `place` that its names are compared."""
        if node.schema is True or facts.absurd:
            return []
        if node.schema is False:
            return [Problem(at, "nothing")]
        self._left -= 1
        if not isinstance(node.schema, dict):
            return [undecided(at, "it is no schema")]
        if self._left < 0 or len(self._open) > MAX_NESTED:
            return [undecided(at, "it is too complex")]
        if any(known.same(node) for known in facts.nodes):
            return []
        key = (facts.key, id(node.schema))
        if key in self._open:
            return [] if self._inside > self._open[key] else [undecided(at, "it refers to itself")]
        self._open[key] = self._inside
        try:
            return self._proved(facts, node, at, place)
        finally:
            del self._open[key]

    def inside(self, facts: Facts, node: Node, at: str) -> list[Problem]:
        """The same for a part of the value."""
        self._inside += 1
        try:
            return self.prove(facts, node, at, place=True)
        finally:
            self._inside -= 1

    def made(self, node: Node, schema: Any) -> Node:
        """A schema that stands nowhere, with references of `node`."""
        self._made.append(schema)
        return node.inner(schema)

    def without(self, node: Node, word: str) -> Node:
        """A schema without one of its words, and without what was spread beside it; the same one each time."""
        key = (id(node.schema), word)
        if key not in self._without:
            left = {name: value for name, value in node.schema.items() if name not in (word, "$ref", "allOf")}
            self._without[key] = self.made(node, left)
        return self._without[key]

    def lent(self, node: Node) -> Node:
        """A schema of the right as something that is known."""
        root = self._lent.setdefault(id(node.root), Root(node.root.schema, lent=True))
        return Node(root, node.schema)

    def _proved(self, facts: Facts, node: Node, at: str, place: bool) -> list[Problem]:
        by_values = _by_values(facts, node, at)
        if by_values is not None:
            return by_values
        found: list[Problem] = []
        for word in node.schema:
            rule = RULES.get(word)
            if rule is not None:
                found += rule(self, facts, node, at)
        if place and "object" in facts.kinds:
            found += objects.names(facts, node, at)
        return alternatives.by_cases(self, facts, node, at, found) if found else []


def compare(left: Any, right: Any, at: str, *, steps: int = MAX_STEPS) -> list[Problem]:
    """Why a value that fits the schema `left`, and holds only what that declares, may not fit `right`. Both are normal.

    After so many steps the rest is left undecided.
    """
    if canonical(left) == canonical(right):
        return []
    one, other = newest(left), newest(right)
    if one is None or other is None:
        return [undecided(at, "its dialect of JSON Schema is not known here")]
    known, wanted = Node(Root(one), one), Node(Root(other), other)
    try:
        problems = Prover(steps).prove(Facts((known,), whole=True), wanted, at, place=True)
    except RecursionError:
        return [undecided(at, "it is nested too deep")]
    return list({(one.at, one.code, one.word, repr(one.left)): one for one in problems}.values())


def _by_values(facts: Facts, node: Node, at: str) -> list[Problem] | None:
    """Where the values can be counted, each is tried; None where not, or where a schema can't be used."""
    if facts.finite is None or len(facts.finite) > MAX_VALUES:
        return None
    try:
        tests = [_validator(known) for known in facts.nodes]
        fits = _validator(node)
    except ValueError:
        return None
    lost = [value for value in facts.finite if all(test(value) for test in tests) and not fits(value)]
    return [Problem(at, "values", lost)] if lost else []


def _validator(node: Node) -> Callable[[Any], bool]:
    """A test of values. Raises ValueError for a schema that can't be used."""
    from hinge.protocol.validation import compile_schema

    schema = node.schema
    if isinstance(schema, dict) and isinstance(node.root.schema, dict):
        lent = {word: node.root.schema[word] for word in ("$defs", "definitions") if word in node.root.schema}
        if schema is not node.root.schema and '"$ref"' in canonical(schema):
            if not node.root.refers_within or _refers_beyond(schema) or any(map(_refers_beyond, lent.values())):
                raise ValueError("it refers to more than definitions")
            schema = {**schema, **lent}
    validator = compile_schema(schema)
    return validator.is_valid


def _refers_beyond(schema: Any) -> bool:
    """Whether a reference inside leads elsewhere than to the root's definitions."""
    if isinstance(schema, dict):
        said = schema.get("$ref")
        if isinstance(said, str) and not said.startswith(("#/$defs/", "#/definitions/")):
            return True
        return any(map(_refers_beyond, schema.values()))
    return isinstance(schema, list) and any(map(_refers_beyond, schema))


# ---------------------------------------------------------------- words of all kinds, and of numbers and texts


def _type(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    lost = facts.kinds - kinds_of({"type": node.schema["type"]})
    if "fraction" in lost and "integer" not in lost and "integer" in facts.kinds:
        return [Problem(at, "fractions"), *([Problem(at, "kinds", lost - {"fraction"})] if len(lost) > 1 else [])]
    return [Problem(at, "kinds", lost)] if lost else []


def _enumerated(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    values = [node.schema["const"]] if "const" in node.schema else node.schema["enum"]
    return [Problem(at, "only", values)]  # if the left had only so many values, they were tried


def _bounded(word: str, kind: str, prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    """Limits of numbers, lengths and counts; `word` is the one without `exclusive`."""
    if facts.kinds.isdisjoint({kind, "fraction"} if kind == "integer" else {kind}):
        return []
    right = Facts((node.inner({key: value for key, value in node.schema.items() if key not in ("$ref", "allOf")}),))
    right.__dict__["kinds"] = facts.kinds
    known, wanted = facts.bound(word), right.bound(word)
    if word == "minProperties" and wanted is not None and len(facts.required) >= wanted.value:
        return []
    return [] if within(word, known, wanted) else [Problem(at, "word", known, wanted, word=word)]


def _multiple(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    step = _fraction(node.schema["multipleOf"])
    if facts.kinds.isdisjoint({"integer", "fraction"}) or step is None:
        return []
    known = [found for _, value in facts.values("multipleOf") if (found := _fraction(value)) is not None]
    if "fraction" not in facts.kinds:
        known.append(Fraction(1))
    if any((one / step).denominator == 1 for one in known):
        return []
    return _unlike("multipleOf", facts, node, at)


def _fraction(value: Any) -> Fraction | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return Fraction(str(value)) if usable else None


def _text(word: str, prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    """A pattern or a format: two of them can't be compared, so only the same one is met."""
    if word == "pattern" and "string" not in facts.kinds:
        return []
    if any(value == node.schema[word] for _, value in facts.values(word)):
        return []
    return _unlike(word, facts, node, at)


def _unlike(word: str, facts: Facts, node: Node, at: str) -> list[Problem]:
    known = [value for _, value in facts.values(word)]
    certain = not known and word != "format"
    return [Problem(at, "word", known[0] if known else None, node.schema[word], word=word, certain=certain)]


def _reference(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    found = node.root.find(node.schema["$ref"])
    return [undecided(at, "a reference leads elsewhere")] if found is None else prover.prove(facts, found, at)


def _unknown(word: str, prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    return [undecided(at, f"{word} depends on what stands around it")]


Rule = Callable[[Prover, Facts, Node, str], list[Problem]]

_KIND_OF_BOUND = {"Length": "string", "Items": "array", "Properties": "object"}
RULES: Mapping[str, Rule] = {
    "type": _type,
    "enum": _enumerated,
    "const": _enumerated,
    "multipleOf": _multiple,
    "pattern": partial(_text, "pattern"),
    "format": partial(_text, "format"),
    "$ref": _reference,
    **{word: partial(_bounded, word, _KIND_OF_BOUND.get(word[3:], "integer")) for word in (*LOWEST, *HIGHEST)},
    "exclusiveMinimum": partial(_bounded, "minimum", "integer"),
    "exclusiveMaximum": partial(_bounded, "maximum", "integer"),
    **{word: partial(_unknown, word) for word in ("$dynamicRef", "$recursiveRef", "unevaluatedItems", "dependencies")},
    **objects.RULES,
    **arrays.RULES,
    **alternatives.RULES,
}
