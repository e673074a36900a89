"""Reads `wire_table.txt`, the members of every published type by revision; its first lines tell what it says.

Knows nothing of `gemel`: the table is there to judge it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

#: The revisions that know something.
Window = frozenset[str]


@dataclass(frozen=True)
class Member:
    """One row of a type: a member, what it may be, and where."""

    name: str
    optional: bool
    expression: str
    window: Window


@dataclass
class Kind:
    """One type: the rows of its members, and where unknown members are welcome."""

    name: str
    window: Window
    members: list[Member] = field(default_factory=list)
    open: set[str] = field(default_factory=set)

    def in_revision(self, revision: str) -> dict[str, Member]:
        """The members that a revision knows."""
        return {member.name: member for member in self.members if revision in member.window}

    def window_of(self, name: str) -> Window:
        """The revisions that know a member."""
        return frozenset().union(*(member.window for member in self.members if member.name == name))

    def comes_after(self, revision: str, name: str) -> bool:
        """Whether a member is of a later revision only."""
        window = self.window_of(name)
        return bool(window) and min(window) > revision


@dataclass(frozen=True)
class Row:
    """One method: who sends it with what, and what answers it (None for a notification)."""

    method: str
    sender: str
    params: str
    params_optional: bool
    result: str | None
    window: Window


@dataclass(frozen=True)
class Table:
    """All that the file says."""

    aliases: Mapping[str, str]
    kinds: Mapping[str, Kind]
    rows: tuple[Row, ...]

    def row(self, sender: str, method: str, revision: str) -> Row | None:
        """The row of a method, if the revision lets this side send it."""
        found = (row for row in self.rows if (row.sender, row.method) == (sender, method) and revision in row.window)
        return next(found, None)


@cache
def read_table() -> Table:
    """The table beside this file."""
    aliases: dict[str, str] = {}
    kinds: dict[str, Kind] = {}
    rows: list[Row] = []
    for line in Path(__file__).with_name("wire_table.txt").read_text().splitlines():
        text, _, window = line.partition(" @ ")
        words = text.split()
        if not words or words[0] == "#":
            continue
        if line.startswith(" "):
            _add(list(kinds.values())[-1], words, window)
        elif words[0] == "alias":
            aliases[words[1]] = words[3]
        elif words[0] == "type":
            kinds[words[1]] = Kind(words[1], read_window(window))
        else:
            rows.append(_row(words, window))
    return Table(aliases, kinds, tuple(rows))


def read_window(text: str) -> Window:
    """`first..last`, either end open, or one revision; nothing means all of them."""
    first, dots, last = text.strip().partition("..")
    if not dots and first:
        last = first
    return frozenset(revision for revision in REVISIONS if (first or "") <= revision <= (last or REVISIONS[-1]))


def _add(kind: Kind, words: list[str], window: str) -> None:
    known = read_window(window) & kind.window
    if words[0] == "...":
        kind.open |= known
    else:
        kind.members.append(Member(words[0].removesuffix("?"), words[0].endswith("?"), words[1], known))


def _row(words: list[str], window: str) -> Row:
    sort, method, sender, params, *result = words
    assert sort in ("request", "notification"), words
    optional = params.endswith("?")
    return Row(method, sender, params.removesuffix("?"), optional, result[0] if result else None, read_window(window))


@cache
def alternatives(expression: str) -> tuple[str, ...]:
    """What a union may be: split at the bars that stand in no bracket."""
    return tuple(re.findall(r"(?:\[[^\]]*\][.\d]*|\{[^}]*\}|\([^)]*\)|'[^']*'|[^|])+", expression))
