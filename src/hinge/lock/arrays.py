"""The words of JSON Schema for arrays, in proofs: items by place and in general, and what arrays must contain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hinge.lock.facts import Facts
from hinge.lock.nodes import Node
from hinge.lock.problems import Problem, undecided

if TYPE_CHECKING:
    from hinge.lock.proving import Prover

_BEHIND_ALL = 10**9


def _items(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    """The items behind those that have a schema of their own."""
    if "array" not in facts.kinds:
        return []
    if not isinstance(node.schema["items"], dict | bool):
        return [undecided(at, "items is a list, which this dialect doesn't know")]
    first, found = _named(node), list[Problem]()
    wanted = node.inner(node.schema["items"])
    for place in range(first, max(first, facts.named_items)):
        if place < _longest(facts):
            found += prover.inside(facts.item(place), wanted, f"{at}[{place}]")
    if max(first, facts.named_items) < _longest(facts):
        rest = facts.item(_BEHIND_ALL)
        more = prover.inside(rest, wanted, f"{at}[]")
        found += [Problem(at, "word", None, first, word="maxItems")] if wanted.schema is False and more else more
    return found


def _prefix(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    found: list[Problem] = []
    if "array" in facts.kinds and isinstance(node.schema["prefixItems"], list):
        for place, schema in enumerate(node.schema["prefixItems"]):
            if place < _longest(facts):
                found += prover.inside(facts.item(place), node.inner(schema), f"{at}[{place}]")
    return found


def _contains(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    """So many items that fit a schema, and no more than so many."""
    if "array" not in facts.kinds:
        return []
    wanted = node.inner(node.schema["contains"])
    least, most = _count(node, "minContains", 1), _count(node, "maxContains", _BEHIND_ALL)
    enough = least == 0 or any(
        _count(one, "minContains", 1) >= least
        and not prover.inside(Facts((one.inner(value),), keeps=False), wanted, at)
        for one, value in facts.values("contains")
    )
    few = most >= _longest(facts) or any(
        _count(one, "maxContains", _BEHIND_ALL) <= most
        and not prover.inside(Facts((wanted,), keeps=False), one.inner(value), at)
        for one, value in facts.values("contains")
    )
    if enough and few:
        return []
    known = next((value for _, value in facts.values("contains")), None)
    return [Problem(at, "word", known, node.schema["contains"], word="contains", certain=known is None)]


def _unique(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    if "array" not in facts.kinds or node.schema["uniqueItems"] is not True or _longest(facts) <= 1:
        return []
    if any(value is True for _, value in facts.values("uniqueItems")):
        return []
    return [Problem(at, "word", None, True, word="uniqueItems")]


def _named(node: Node) -> int:
    found = node.get("prefixItems")
    return len(found) if isinstance(found, list) else 0


def _longest(facts: Facts) -> float:
    """How many items there are at most."""
    bound = facts.bound("maxItems")
    lengths = [bound.value] if bound is not None else []
    for node in facts.nodes:
        if node.get("items") is False:
            lengths.append(_named(node))
    return min(lengths, default=_BEHIND_ALL)


def _count(node: Node, word: str, default: int) -> float:
    found = node.get(word)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else default


RULES: Mapping[str, Callable[[Any, Facts, Node, str], list[Problem]]] = {
    "items": _items,
    "prefixItems": _prefix,
    "contains": _contains,
    "uniqueItems": _unique,
}
