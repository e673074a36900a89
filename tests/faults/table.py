"""Tables of faults: a row says what a server does instead of answering, a column at which step, a cell what callers get.

    == columns: list call
    dies before           exit                  | lost  lost/lost
    says nothing at all   -                     | late  late/ok

Words after the name are what the server does (`-` for nothing). A cell is one outcome; `one/other` where other calls
are in flight; `one~other` where either is right, because the two sides race; `2025:one,2026:other` where the eras
differ; `.` where the fault makes no sense. Outcomes are the keys of OUTCOMES.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gemel import (
    CallError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    HttpStatus,
    InvalidResponse,
    NotSent,
    PeerError,
    SessionEnded,
    ToolCallError,
)

#: How a call may end, by the word that stands in a table.
OUTCOMES: dict[str, type[CallError] | None] = {
    "ok": None,
    "lost": ConnectionLost,
    "bad": InvalidResponse,
    "late": CallTimeout,
    "failed": ConnectFailed,
    "unsent": NotSent,
    "error": PeerError,
    "status": HttpStatus,
    "ended": SessionEnded,
    "tool": ToolCallError,
}
_WORDS = {kind: word for word, kind in OUTCOMES.items() if kind is not None}


@dataclass(frozen=True)
class Case:
    """One cell: the server does `does` at `step`; the caller there gets `outcome`, and other calls `others`."""

    fault: str
    does: tuple[str, ...]
    era: str
    step: str
    outcome: str
    others: str

    def allows(self, ended: str, *others: str) -> bool:
        """Whether the call at the step may end so, and the others so."""
        return ended in self.outcome.split("~") and set(others) <= set(self.others.split("~"))

    def __str__(self) -> str:
        return f"{self.era}-{self.step}-{self.fault}".replace(" ", "_")


def word_of(ended: BaseException | None) -> str:
    """The table's word for how a call ended. What is no CallError of ours has none and shows as it is."""
    return "ok" if ended is None else _WORDS.get(type(ended), repr(ended))  # type: ignore[arg-type]  # any class may be asked for


def read_cases(path: Path, eras: dict[str, tuple[str, ...]]) -> Iterator[Case]:
    """Every cell of a table; `eras` says in which eras each step exists. Raises ValueError with the line of a mistake."""
    columns: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("== columns:"):
            columns = line.partition(":")[2].split()
        elif line.strip() and not line.startswith("#"):
            try:
                yield from _row(line, columns, eras)
            except ValueError as exc:
                raise ValueError(f"{path.name}:{number}: {exc}") from exc


def _row(line: str, columns: list[str], eras: dict[str, tuple[str, ...]]) -> Iterator[Case]:
    about, _, cells = line.partition("|")
    name, _, words = about.strip().partition("  ")
    does = tuple(word for word in words.split() if word != "-")
    if not words.strip() or len(cells.split()) != len(columns):
        raise ValueError(f"wants a name, two blanks, words, a bar and {len(columns)} cells")
    for step, cell in zip(columns, cells.split(), strict=True):
        for era in eras[step]:
            outcome, _, others = _cell(cell, era).partition("/")
            if outcome != ".":
                if not {*outcome.split("~"), *(others or outcome).split("~")} <= OUTCOMES.keys():
                    raise ValueError(f"{cell!r} is no outcome")
                yield Case(name, does, era, step, outcome, others or outcome)


def _cell(cell: str, era: str) -> str:
    if ":" not in cell:
        return cell
    choices = dict(one.split(":") for one in cell.split(","))
    return choices[era]
