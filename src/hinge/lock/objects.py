"""The words of JSON Schema for objects, in proofs: members, names, and what depends on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hinge.lock.facts import Facts
from hinge.lock.nodes import Node, declared, in_place, matches, readable
from hinge.lock.problems import Problem, member, undecided

if TYPE_CHECKING:
    from hinge.lock.proving import Prover


def names(facts: Facts, node: Node, at: str) -> list[Problem]:
    """Members that the left declares and the right doesn't know, though it may let them pass."""
    known = declared((node,))
    patterns = [text for one in in_place((node,)) for text in one.get("patternProperties") or ()]
    return [
        Problem(member(at, name), "unlisted", name in facts.required, certain=False)
        for name in sorted(facts.declared - known)
        if not any(matches(one, name) for one in patterns) and not facts.member(name).absurd
    ]


def _required(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    if "object" not in facts.kinds or not isinstance(node.schema["required"], list):
        return []
    wanted = [name for name in node.schema["required"] if isinstance(name, str)]
    return [
        Problem(member(at, name), "required", name in facts.declared) for name in wanted if name not in facts.required
    ]


def _properties(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    found: list[Problem] = []
    if "object" in facts.kinds and isinstance(node.schema["properties"], dict):
        for name, schema in node.schema["properties"].items():
            found += prover.inside(facts.member(name), node.inner(schema), member(at, name))
    return found


def _additional(word: str, prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    """Every name that the left may have and the right doesn't list."""
    if "object" not in facts.kinds:
        return []
    if word == "unevaluatedProperties" and any(key in node.schema for key in _BESIDE):
        return [undecided(at, f"{word} depends on what stands around it")]
    schema, listed = node.inner(node.schema[word]), node.get("properties") or {}
    patterns = list(node.get("patternProperties") or ())
    found: list[Problem] = []
    for name in sorted(facts.declared - set(listed)):
        if not any(matches(one, name) for one in patterns):
            found += _let_in(prover, facts, schema, name, at)
    for pattern in facts.patterns:
        if pattern not in patterns:
            found += prover.inside(facts.matching(pattern), schema, f"{at}.*")
    unseen = facts.declared_patterns - {*facts.patterns, *patterns}
    rest = Facts((), keeps=False) if unseen else facts.rest()
    if not rest.absurd:
        problems = prover.inside(rest, schema, f"{at}.*")
        found += [Problem(at, "open", certain=not unseen)] if schema.schema is False and problems else problems
    return found


def _let_in(prover: Prover, facts: Facts, schema: Node, name: str, at: str) -> list[Problem]:
    known = facts.member(name)
    if schema.schema is False:
        return [] if known.absurd else [Problem(member(at, name), "refused", name in facts.required)]
    return prover.inside(known, schema, member(at, name))


def _patterns(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    if "object" not in facts.kinds or not isinstance(node.schema["patternProperties"], dict):
        return []
    found: list[Problem] = []
    for pattern, schema in node.schema["patternProperties"].items():
        wanted, place = node.inner(schema), f"{at}.*"
        if not readable(pattern):
            found.append(undecided(place, "a pattern of names can't be read"))
        for name in sorted(facts.declared):
            if matches(pattern, name):
                found += prover.inside(facts.member(name), wanted, member(at, name))
        others = [facts.matching(pattern)] if pattern in facts.patterns else list(map(facts.matching, facts.patterns))
        if facts.declared_patterns - set(facts.patterns):
            others = [Facts((), keeps=False)]
        elif pattern not in facts.patterns and not facts.closed:
            others.append(facts.rest())
        for known in others:
            found += prover.inside(known, wanted, place)
    return found


def _names_fit(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    """What names must be like: each declared one, and all others."""
    if "object" not in facts.kinds:
        return []
    wanted = node.inner(node.schema["propertyNames"])
    known = tuple(one.inner(value) for one, value in facts.values("propertyNames"))
    if any(one.same(wanted) for one in known):
        return []
    found: list[Problem] = []
    for name in sorted(facts.declared):
        if not facts.member(name).absurd:
            found += prover.inside(Facts((prover.made(wanted, {"const": name}),)), wanted, member(at, name))
    if not facts.closed or facts.declared_patterns:
        strings = prover.made(wanted, {"type": "string"})
        found += prover.inside(Facts((strings, *known)), wanted, f"{at}.*")
    return found


def _dependent_names(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    if "object" not in facts.kinds or not isinstance(node.schema["dependentRequired"], dict):
        return []
    found: list[Problem] = []
    for name, wanted in node.schema["dependentRequired"].items():
        if facts.member(name).absurd or not isinstance(wanted, list):
            continue
        known = facts.required | {one for _, value in facts.values("dependentRequired") for one in _of(value, name)}
        found += [Problem(member(at, one), "required", True, word=name) for one in wanted if one not in known]
    return found


def _dependent_schemas(prover: Prover, facts: Facts, node: Node, at: str) -> list[Problem]:
    if "object" not in facts.kinds or not isinstance(node.schema["dependentSchemas"], dict):
        return []
    found: list[Problem] = []
    for name, schema in node.schema["dependentSchemas"].items():
        if facts.member(name).absurd:
            continue
        known = [one.inner(value[name]) for one, value in facts.values("dependentSchemas") if name in value]
        there = prover.made(node, {"type": "object", "required": [name]})
        found += prover.prove(facts.with_node(there, *known), node.inner(schema), at)
    return found


def _of(value: Any, name: str) -> list[str]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


#: Words of the same value, whose members `unevaluatedProperties` counts as seen.
_BESIDE = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas")

RULES: Mapping[str, Callable[[Any, Facts, Node, str], list[Problem]]] = {
    "required": _required,
    "properties": _properties,
    "additionalProperties": partial(_additional, "additionalProperties"),
    "unevaluatedProperties": partial(_additional, "unevaluatedProperties"),
    "patternProperties": _patterns,
    "propertyNames": _names_fit,
    "dependentRequired": _dependent_names,
    "dependentSchemas": _dependent_schemas,
}
