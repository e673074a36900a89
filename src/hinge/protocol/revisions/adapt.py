"""Dress a value of the newest shape for the revision of the peer.

What each revision knows stands as data in `schema.revisions`; what is changed rather than left out stands in
`shape_rules` and `stand_ins`. Here both become one plan per type and revision, made when it is first needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, TypeAlias, get_args

from msgspec import NODEFAULT, structs

from hinge.protocol.revisions.fallbacks import STAND_INS
from hinge.protocol.revisions.rules import RULES, TooNew
from hinge.schema.base import Model
from hinge.schema.revisions import ALWAYS, MEMBERS, REVISIONS, TYPES, within

__all__ = ["TooNew", "known_in", "shape"]

_Dress: TypeAlias = Callable[[Any], Any]

#: Types that negotiate are adapted to the revision that they name, not to the one in force.
_NAMES_ITS_REVISION = frozenset({"InitializeParams", "InitializeResult"})


def shape(value: Any, revision: str) -> Any:
    """The value as a peer of this revision knows it, ready for encoding. The given one is never changed: it is shared.

    A struct of ours becomes a struct of ours, the same one where nothing needs change; anything else passes untouched.
    Raises TooNew for what the revision has no words for.
    """
    kind: Any = type(value)
    plan = plan_for(kind, revision)
    return value if plan is None else plan(value)


@cache
def plan_for(kind: type, revision: str) -> _Dress | None:
    """The function that adapts values of a type to a revision; None where they stay as they are.

    A user's subclass of one of our types is adapted like the type: its own members are the user's business.
    """
    if not issubclass(kind, Model):
        return None
    return _compiled(next(base for base in kind.__mro__ if base.__module__.startswith("hinge.schema.")), revision)


@cache
def _compiled(kind: type[Model], revision: str) -> _Dress | None:
    if kind.__name__ in _NAMES_ITS_REVISION:
        return lambda value: _negotiated(kind, value, revision)
    if not within(revision, TYPES.get(kind.__name__, ALWAYS)):
        return _replacing(kind, revision)
    return _by_members(kind, revision)


def _negotiated(kind: type[Model], value: Any, revision: str) -> Any:
    named = value.protocol_version
    dress = _by_members(kind, named if named in REVISIONS else revision)
    return value if dress is None else dress(value)


def _replacing(kind: type[Model], revision: str) -> _Dress:
    stand_in = STAND_INS.get(kind)
    if stand_in is not None:
        return lambda value: shape(stand_in(value, revision), revision)

    def refuse(value: Any) -> Any:
        raise TooNew(f"Revision {revision} of the protocol has no {kind.__name__}: it can't be sent to this peer")

    return refuse


@cache
def _by_members(kind: type[Model], revision: str) -> _Dress | None:
    changes = []
    for field in structs.fields(kind):
        if known_in(kind, field.name, revision):
            change = _change(kind, field, revision)
        else:
            assert field.default is not NODEFAULT, f"{kind.__name__}.{field.name} can't be left out"
            change = _constant(field.default)
        if change is not None:
            changes.append((field.name, field.default, change))
    return _dressing(tuple(changes)) if changes else None


def _constant(default: Any) -> _Dress:
    """A member that must be absent gets its default, which is never written."""
    return lambda value: default


def _dressing(changes: tuple[tuple[str, Any, _Dress], ...]) -> _Dress:
    """Change the members that are set, in a copy that is made only when one of them comes out different."""

    def dress(value: Any) -> Any:
        dressed = value
        for name, default, change in changes:
            old = getattr(value, name)
            if old is default:
                continue
            new = change(old)
            if new is not old:
                if dressed is value:
                    dressed = copy.copy(value)
                setattr(dressed, name, new)
        return dressed

    return dress


def _names(kind: type) -> Iterator[str]:
    return (base.__name__ for base in kind.__mro__)


def known_in(kind: type, member: str, revision: str) -> bool:
    """Whether a revision that has the type knows this member of it (by its Python name)."""
    rows = (MEMBERS[name][member] for name in _names(kind) if member in MEMBERS.get(name, ()))
    return within(revision, next(rows, ALWAYS))


def _change(kind: type[Model], field: structs.FieldInfo, revision: str) -> _Dress | None:
    """What happens to a member: its own rule first, then the dressing of what it holds."""
    make = next((RULES[name, field.name] for name in _names(kind) if (name, field.name) in RULES), None)
    rule = make(revision) if make is not None else None
    inner = _inside(revision) if _may_change(field.type, revision) else None
    if rule is None or inner is None:
        return rule or inner
    first, then = rule, inner
    return lambda value: then(first(value))


def _may_change(annotation: Any, revision: str) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return _compiled(annotation, revision) is not None
    return any(_may_change(part, revision) for part in get_args(annotation))


def _inside(revision: str) -> _Dress:
    """Dress a struct, or each struct in a list or dict; the same object comes back where nothing changed."""

    def dress(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return _each(value, enumerate(value), list, revision)
        if isinstance(value, dict):
            return _each(value, value.items(), dict, revision)
        return shape(value, revision)

    return dress


def _each(value: Any, items: Iterable[tuple[Any, Any]], copied: Callable[[Any], Any], revision: str) -> Any:
    dressed = value
    for place, old in items:
        new = shape(old, revision)
        if new is not old:
            if dressed is value:
                dressed = copied(value)
            dressed[place] = new
    return dressed
