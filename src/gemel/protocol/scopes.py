"""OAuth scopes: how they are written, and which ones a grant includes (RFC 6749, section 3.3)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gemel.errors import DefinitionError, shorten

#: Visible ASCII without `"` and `\`.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
#: So many different grants are remembered with what they include.
_REMEMBERED = 256


def parse_scopes(what: str, scopes: Collection[str]) -> frozenset[str]:
    """Check the names of scopes.

    Args:
        what: The option that they come from, for the error.
        scopes: The names.

    Raises:
        DefinitionError: One string in place of a collection, or a name that RFC 6749 does not allow.
    """
    if isinstance(scopes, str):
        raise DefinitionError(f"{what}: scopes={shorten(scopes)!r} is one string: write scopes=[{shorten(scopes)!r}]")
    if not isinstance(scopes, Iterable):
        raise DefinitionError(f'{what}: scopes={shorten(repr(scopes))} is not a list: write scopes=["notes.write"]')
    names: frozenset[Any] = frozenset(scopes)
    for name in names:
        if not isinstance(name, str) or _SCOPE.fullmatch(name) is None:
            raise DefinitionError(
                f"{what}: {shorten(repr(name))} is not a scope: use visible ASCII without blanks, quotes and backslashes"
            )
    return names


def write_scopes(scopes: Iterable[str]) -> str:
    """Return scopes in the form of the `scope` parameter, sorted; what is not the name of one is left out."""
    return " ".join(sorted(scope for scope in scopes if _SCOPE.fullmatch(scope)))


class ScopeHierarchy:
    """Which scopes include others: with `{"notes.write": ["notes.read"]}` a grant of the first is one of both.

    Args:
        includes: By scope, the scopes that it includes; those may include others.

    Raises:
        DefinitionError: A name is not a scope.
    """

    __slots__ = ("_closure", "_expanded")

    def __init__(self, includes: Mapping[str, Collection[str]]) -> None:
        direct = {
            scope: parse_scopes("scope_hierarchy", inner)
            for scope, inner in includes.items()
            if parse_scopes("scope_hierarchy", [scope])
        }
        self._closure = {scope: _reachable(scope, direct) for scope in direct}
        self._expanded: dict[frozenset[str], frozenset[str]] = {}

    def expand(self, granted: frozenset[str]) -> frozenset[str]:
        """Return the granted scopes with all that they include."""
        if not self._closure:
            return granted
        expanded = self._expanded.get(granted)
        if expanded is None:
            expanded = granted.union(*(self._closure.get(scope, ()) for scope in granted))
            if len(self._expanded) >= _REMEMBERED:
                self._expanded.clear()
            self._expanded[granted] = expanded
        return expanded


def _reachable(scope: str, direct: Mapping[str, Collection[str]]) -> frozenset[str]:
    reached: set[str] = set()
    open_scopes = [scope]
    while open_scopes:
        for inner in direct.get(open_scopes.pop(), ()):
            if inner not in reached:
                reached.add(inner)
                open_scopes.append(inner)
    return frozenset(reached)


#: Every scope includes itself alone.
NO_HIERARCHY = ScopeHierarchy({})
