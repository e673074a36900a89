"""What the journal of the steps of tasks says: whether a step ran after it was recorded, and which ran again before.

Each line is one event, in the order in which they happened: `ran TASK STEP KEY KIND` at the beginning of a step, `recorded TASK
STEP` when the function of the task got its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

RAN_AGAIN = "a recorded step ran again"


class Steps(NamedTuple):
    """Figures of a journal.

    Attributes:
        recorded: Steps that were recorded.
        again: Runs of steps that had run before, and were not recorded.
        violations: What must not happen.
    """

    recorded: int
    again: int
    violations: list[str]


def read_journal(lines: Iterable[str]) -> Steps:
    """Count the steps of a journal."""
    runs: Counter[tuple[str, str]] = Counter()
    keys: dict[tuple[str, str], str] = {}
    recorded: set[tuple[str, str]] = set()
    violations: list[str] = []
    for line in lines:
        event, task, number, *more = line.split()
        step = task, number
        if event == "recorded":
            recorded.add(step)
            continue
        key, kind = more
        runs[step] += 1
        if step in recorded:
            violations.append(RAN_AGAIN)
        if keys.setdefault(step, key) != key:
            violations.append("a step ran again with another key")
        if runs[step] > 1 and kind == "once":
            violations.append("a step with retry=False ran again")
    return Steps(len(recorded), sum(count - 1 for count in runs.values()), violations)
