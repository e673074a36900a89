"""Problems of a comparison in words, from the side of who reads them: what became narrower, and what became wider."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from hinge.lock.hidden import hidden_within, shown
from hinge.lock.problems import Problem
from hinge.lock.ranges import Bound

#: What a schema is about: arguments that a tool takes, or results that it gives.
Use: TypeAlias = Literal["input", "output"]

_SHOWN_VALUES = 8


def narrower(problem: Problem, use: Use) -> str:
    """What the new schema (the right side) no longer allows."""
    match problem.code:
        case "kinds" | "values" | "fractions":
            verb = "no longer takes" if use == "input" else "can no longer be"
            return f"{verb} {_left(problem)}"
        case "only":
            return f"{'takes' if use == 'input' else 'can be'} only {values(problem.right)} now"
        case "word":
            return _changed(problem.word, problem.left, problem.right)
        case "required":
            depends = f" where {problem.word} is given" if problem.word else ""
            return f"is {'required' if use == 'input' else 'always there'} now{depends}"
        case "refused":
            return "is gone, and members that aren't declared are refused"
        case "unlisted":
            return "is gone: whoever sends it may be ignored or refused" if use == "input" else "is gone"
        case "open":
            return "members that aren't declared are refused now"
        case "nothing":
            return "nothing fits here any more"
        case "alternatives":
            return "one of its alternatives is gone or narrower"
        case "undecided":
            return f"can't be compared: {problem.right}"


def wider(problem: Problem, use: Use) -> str:
    """What the new schema (the left side) allows, and the old one didn't."""
    match problem.code:
        case "kinds" | "values" | "fractions":
            return f"{'also takes' if use == 'input' else 'can also be'} {_left(problem)} now"
        case "only":
            return f"{'takes' if use == 'input' else 'can be'} more than {values(problem.right)} now"
        case "word":
            return _changed(problem.word, problem.right, problem.left)
        case "required":
            return "is optional now" if use == "input" else "may be missing now"
        case "refused":
            return "is new" if use == "input" else "is new, and the old schema refuses members that it doesn't declare"
        case "unlisted":
            return "is new"
        case "open":
            return "members that aren't declared are allowed now"
        case "nothing":
            return "something fits here now"
        case "alternatives":
            return "has an alternative more, or a wider one"
        case "undecided":
            return f"can't be compared: {problem.right}"


def text_changed(before: Any, after: Any) -> str:
    """A text before and after, from where they differ, with a word about what a reader wouldn't see."""
    if isinstance(before, str) and isinstance(after, str):
        same = next((place for place, (x, y) in enumerate(zip(before, after, strict=False)) if x != y), None)
        start = max(0, (min(len(before), len(after)) if same is None else same) - 20)
        if start:
            before, after = f"…{before[start:]}", f"…{after[start:]}"
    return f"{_or_none(before)} → {_or_none(after)}{warning(after)}"


def warning(value: Any) -> str:
    """A word about hidden characters in a value; empty if there are none."""
    found = hidden_within(value)
    return f" (hidden characters: {', '.join(found[:_SHOWN_VALUES])})" if found else ""


def values(given: Iterable[Any]) -> str:
    """Some values, in a list."""
    found = [shown(value, 60) for value in given]
    more = f" and {len(found) - _SHOWN_VALUES} more" if len(found) > _SHOWN_VALUES else ""
    return ", ".join(found[:_SHOWN_VALUES]) + more


def _left(problem: Problem) -> str:
    if problem.code == "values":
        return values(problem.left)
    if problem.code == "fractions":
        return "numbers that aren't whole"
    kinds = set(problem.left)
    if {"integer", "fraction"} <= kinds:
        kinds = kinds - {"integer", "fraction"} | {"number"}
    return ", ".join(sorted("numbers that aren't whole" if kind == "fraction" else kind for kind in kinds))


def _changed(word: str, before: Any, after: Any) -> str:
    return f"{word}: {_or_none(before)} → {_or_none(after)}"


def _or_none(value: Any) -> str:
    if isinstance(value, Bound):
        return f"{'beyond ' if value.exclusive else ''}{shown(value.value)}"
    return "none" if value is None else shown(value, 120)
