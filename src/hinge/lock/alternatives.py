"""The words of JSON Schema that join schemas, in proofs: all, any, one, not, if. And proofs case by case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hinge.lock.canonical import canonical
from hinge.lock.facts import Facts
from hinge.lock.nodes import Node
from hinge.lock.problems import Problem, undecided

if TYPE_CHECKING:
    from hinge.lock.proving import Prover

#: More alternatives than this are not taken apart.
MAX_CASES = 50


def by_cases(prover: Prover, facts: Facts, node: Node, at: str, problems: list[Problem]) -> list[Problem]:
    """The problems that stay when the left's alternatives are looked at one by one."""
    for known in facts.nodes:
        for word in ("anyOf", "oneOf"):
            cases = known.get(word)
            if isinstance(cases, list) and 0 < len(cases) <= MAX_CASES:
                return _merged(_cases(prover, facts, known, word), prover, node, at)
    return problems


def _cases(prover: Prover, facts: Facts, known: Node, word: str) -> Iterator[Facts]:
    others = prover.without(known, word)
    schemas = [known.inner(one) for one in known.schema[word]]
    for place, schema in enumerate(schemas):
        nots = tuple(one for other, one in enumerate(schemas) if other != place) if word == "oneOf" else ()
        yield facts.with_node(others, schema, without=known, nots=nots)


def _merged(cases: Iterator[Facts], prover: Prover, node: Node, at: str) -> list[Problem]:
    found: dict[tuple[str, str, str, str], Problem] = {}
    for case in cases:
        for problem in prover.prove(case, node, at, place=True):
            said = canonical(sorted(problem.left)) if problem.code in ("kinds", "values") and _plain(problem) else ""
            found.setdefault((problem.at, problem.code, problem.word, said), problem)
    return list(found.values())


def _plain(problem: Problem) -> bool:
    return all(isinstance(one, str) for one in problem.left)


# ---------------------------------------------------------------- the right side's


def _all(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    return [problem for one in _schemas(node, "allOf") for problem in prover.prove(facts, one, at)]


def _any(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    return _each_kind(prover, facts, _schemas(node, "anyOf"), at, _one_takes)


def _one(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    return _each_kind(prover, facts, _schemas(node, "oneOf"), at, _exactly_one_takes)


_Takes = Callable[["Prover", Facts, list[Node], str], bool]


def _each_kind(prover: Prover, facts: Facts, wanted: list[Node], at: str, takes: _Takes) -> list[Problem]:
    """One alternative may take them all; else each kind of value needs one."""
    if takes(prover, facts, wanted, at):
        return []
    found: list[Problem] = []
    lost: set[str] = set()
    for kind in sorted(facts.kinds):
        case = facts.of_kind(kind)
        if case.absurd or takes(prover, case, wanted, at):
            continue
        open_to_it = [one for one in wanted if kind in Facts((one,), keeps=False).kinds]
        if not open_to_it:
            lost.add(kind)
        elif len(open_to_it) == 1 and (problems := prover.prove(case, open_to_it[0], at)):
            found += problems
        else:
            found.append(Problem(at, "alternatives", certain=False))
    return [*([Problem(at, "kinds", frozenset(lost))] if lost else []), *found]


def _one_takes(prover: Prover, facts: Facts, wanted: list[Node], at: str) -> bool:
    return any(not prover.prove(facts, one, at) for one in wanted)


def _exactly_one_takes(prover: Prover, facts: Facts, wanted: list[Node], at: str) -> bool:
    for place, one in enumerate(wanted):
        others = [other for number, other in enumerate(wanted) if number != place]
        if not prover.prove(facts, one, at) and all(apart(prover, facts, other, at) for other in others):
            return True
    return False


def apart(prover: Prover, facts: Facts, node: Node, at: str) -> bool:
    """Whether no value of which the facts hold fits the schema, as far as that is easy to see."""
    if node.schema is False or facts.absurd:
        return True
    other = Facts((node,), keeps=False)
    if other.absurd or facts.kinds.isdisjoint(other.kinds):
        return True
    if any(not prover.prove(other, refused, at) for refused in facts.nots):
        return True
    if facts.finite is not None and other.finite is not None:
        return _disjoint(facts.finite, other.finite)
    if facts.kinds == {"object"} and any(_differ(facts, other, name) for name in facts.required | other.required):
        return True
    return any(
        all(apart(prover, facts, one, at) for one in found)
        for known in other.nodes
        for word in ("anyOf", "oneOf")
        if (found := _schemas(known, word))
    )


def _differ(facts: Facts, other: Facts, name: str) -> bool:
    """Whether a member tells the two apart: one side has it, and its values are others, or none, on the other side."""
    here, there = facts.member(name), other.member(name)
    if (name in other.required and here.absurd) or (name in facts.required and there.absurd):
        return True
    if name not in facts.required and name not in other.required:
        return False
    if here.kinds.isdisjoint(there.kinds):
        return True
    return here.finite is not None and there.finite is not None and _disjoint(here.finite, there.finite)


def _disjoint(one: list[Any], other: list[Any]) -> bool:
    return {canonical(value) for value in one}.isdisjoint(canonical(value) for value in other)


def _not(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    if apart(prover, facts, node.inner(node.schema["not"]), at):
        return []
    known = next((value for _, value in facts.values("not")), None)
    return [Problem(at, "word", known, node.schema["not"], word="not", certain=False)]


def _if(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    """`then` holds where `if` does, and `else` where not; without them `if` says nothing."""
    condition, then, otherwise = (node.inner(node.schema.get(word, True)) for word in ("if", "then", "else"))
    for known in facts.nodes:
        same = (
            known.inner(known.get(word) if known.get(word) is not None else True) for word in ("if", "then", "else")
        )
        if known.get("if") is not None and all(map(Node.same, same, (condition, then, otherwise))):
            return []
    met = not prover.prove(facts.with_node(prover.lent(condition)), then, at)
    unmet = not prover.prove(facts.with_node(nots=(condition,)), otherwise, at)
    if met and (unmet or not prover.prove(facts, condition, at)):
        return []
    if unmet and apart(prover, facts, condition, at):
        return []
    return [undecided(at, "if depends on the value")]


def _schemas(node: Node, word: str) -> list[Node]:
    found = node.get(word)
    return [node.inner(one) for one in found] if isinstance(found, list) else []


RULES: Mapping[str, Callable[[Any, Facts, Node, str], list[Problem]]] = {
    "allOf": _all,
    "anyOf": _any,
    "oneOf": _one,
    "not": _not,
    "if": _if,
}
