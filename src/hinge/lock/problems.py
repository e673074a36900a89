"""What stands in the way when one schema is held against another: data, which `wording` puts into words."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

#: - kinds: the left has kinds of values that the right refuses (`left` holds them); fractions: numbers that aren't whole
#: - values: values of the left that the right refuses; only: the right takes only the values of `right`
#: - word: a limit, pattern, format … (`word`), `left` and `right` its values on both sides
#: - required: a member that the left may lack; refused: one that the left declares and the right forbids
#: - unlisted: one that the left declares and the right doesn't, but lets pass; open: undeclared ones are let pass on the left only
#: - nothing: the right takes nothing here; alternatives: none of the right's takes all that the left's do
#: - undecided: for the reason in `right`
Code: TypeAlias = Literal[
    "kinds",
    "fractions",
    "values",
    "only",
    "word",
    "required",
    "refused",
    "unlisted",
    "open",
    "nothing",
    "alternatives",
    "undecided",
]


class Problem(NamedTuple):
    """A value of the left may not fit the right. `at` names the place in the value, `certain` that there is such a value."""

    at: str
    code: Code
    left: Any = None
    right: Any = None
    word: str = ""
    certain: bool = True


def undecided(at: str, why: str) -> Problem:
    """Whether it fits can't be told."""
    return Problem(at, "undecided", right=why, certain=False)


def member(at: str, name: str) -> str:
    """The place of a member."""
    from hinge.lock.hidden import name_shown

    return f"{at}.{name_shown(name)}"
