"""Names of a server as Python names: safe, unique, and never one that the module needs for itself."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection, Iterable

_OTHER = re.compile(r"[^A-Za-z0-9]+")
#: Longer names are cut.
_LONGEST = 28


def snake(text: str, fallback: str) -> str:
    """A name for a function, argument or member, which begins with a letter and holds no underscores at its ends."""
    found = _OTHER.sub("_", text).strip("_")[:_LONGEST].rstrip("_")
    if not found:
        found = fallback
    if found[0].isdigit():
        found = f"{fallback}_{found}"
    return f"{found}_" if keyword.iskeyword(found) else found


def pascal(text: str, fallback: str) -> str:
    """A name for a class."""
    found = "".join(part[:1].upper() + part[1:] for part in _OTHER.split(text))[:_LONGEST]
    if not found:
        return fallback
    return f"{fallback}{found}" if found[0].isdigit() else found


def unique(name: str, taken: Collection[str]) -> str:
    """The name, with an underscore or a number behind it where it is taken."""
    if name not in taken:
        return name
    candidate, number = f"{name}_" if not name.endswith("_") else f"{name}2", 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate


class ModuleNames:
    """The names at the top of one module."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._taken = {*dir(builtins), *keyword.kwlist, *reserved}

    @property
    def taken(self) -> frozenset[str]:
        """All that stand for something."""
        return frozenset(self._taken)

    def take(self, name: str) -> str:
        """The name, or one like it, for a new thing."""
        found = unique(name, self._taken)
        self._taken.add(found)
        return found
