"""What a regular expression of a JSON Schema may cost, from its text."""

from __future__ import annotations

import re

#: So many places are not told apart from more.
MAX_POSITIONS = 1_000_000
#: One that is not closed ends with the pattern, so that no text is looked at twice.
_ATOM = r"(?:\\(?:[pPux]\{[^}]{0,100}\}|.)|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|$)|[^\\\[(){}|?*+])"
#: What begins a pattern and can match in one way only: atoms that are repeated a fixed number of times.
_FIXED_START = re.compile(rf"\^(?:{_ATOM}(?:\{{\d+\}})?(?![?*+{{]))*", re.DOTALL)
_TOKEN = re.compile(
    rf"\((?:\?(?:P?<\w{{1,100}}>|[:=!]|<[=!]))?|\{{(\d{{1,9}})(?:,(\d{{0,9}}))?\}}|{_ATOM}|.", re.DOTALL
)


def count_positions(pattern: str) -> int:
    """Return in how many places of a pattern a match may be at once, at most.

    A repetition `{m,n}` counts n times. Places before which there is only one way count as none: `^[0-9a-f]{64}$` has none.
    """
    fixed = _FIXED_START.match(pattern)
    #: The places of each open group, and those of what a repetition would repeat.
    groups, last = [0], 0
    for token in _TOKEN.finditer(pattern, fixed.end() if fixed else 0):
        text = token[0]
        if text.startswith("("):
            groups.append(0)
            last = 0
        elif text == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif token[1]:
            times = max(int(token[1]) + (token[2] == ""), int(token[2] or 1))
            groups[-1] += last * (times - 1)
            last = min(last * times, MAX_POSITIONS)
        elif text not in "?*+|":
            last = 1
            groups[-1] += 1
    return min(sum(groups), MAX_POSITIONS)
