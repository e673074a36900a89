"""Which requirements the tests cite, section by section: `python tools/requirement_coverage.py`.

Reads `tests/requirement_ids.txt` (a title after `#`, then an id and its statement on each line) and looks for these ids in
every text below `tests/`. A cited id says that a test claims to prove the statement. Lines `! reason: ids` there name what is
not required yet, or not of this library. Exits with 1 when a test cites an id that does not exist, a range of ids, or an id
that has no statement.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
LEDGER = "requirement_ids.txt"
NEWLINE = "\n"
TEXT_FILES = frozenset({".py", ".json", ".jsonl", ".md", ".toml", ".txt", ".yaml", ".mjs"})


@dataclass(frozen=True)
class Coverage:
    """The sections with their ids, the ids that are cited, and where somebody cites what does not exist."""

    sections: Mapping[str, Sequence[str]]
    #: What is not owed now, with the reason.
    later: Mapping[str, str] = field(default_factory=dict)
    cited: set[str] = field(default_factory=set)
    mistakes: list[str] = field(default_factory=list)


def read_sections(text: str) -> dict[str, list[str]]:
    """The ids by section. Raises ValueError for an id without a statement, twice, or before any title."""
    sections: dict[str, list[str]] = {}
    seen: set[str] = set()
    title = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("!"):
            continue
        if line.startswith("#"):
            title = line.lstrip("# ")
            sections[title] = []
        else:
            one, _, statement = line.partition("  ")
            if not title or one in seen:
                raise ValueError(f"{one} stands {'twice' if title else 'before the first title'}")
            if not statement:
                raise ValueError(f"{one} has no statement")
            seen.add(one)
            sections[title].append(one)
    return sections


def read_later(text: str, ledger: "Ledger") -> dict[str, str]:
    """The ids that are not owed now, with the reason. Raises ValueError for a line that names what does not exist."""
    later: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("!"):
            continue
        reason, _, ids = line[1:].rpartition(":")
        named = [one or "" for *_, one in ledger.citations(ids)]
        if not reason.strip() or not named or "" in named:
            raise ValueError(f"{line!r} names no reason, or what does not exist")
        later.update(dict.fromkeys(named, reason.strip()))
    return later


class Ledger:
    """All ids, and where a text cites them. Each is named: a range (`BASE-01..BASE-05`) would cite what nobody thought of."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = frozenset(ids)
        prefixes = "|".join(sorted({one.rpartition("-")[0] for one in ids}, key=len, reverse=True))
        dots = r"(?:\.\.\.?|…|–)"
        self._citation = re.compile(
            rf"(?<![\w-])(?P<id>(?P<prefix>{prefixes})-\d\d+)(?P<range>\s*{dots}\s*(?P=prefix)-\d\d+|{dots}\d\d+)?(?!\d)"
        )

    def citations(self, text: str) -> Iterator[tuple[int, str, str | None]]:
        """Each citation: where in the text it begins, how it is written, and the id; None for a range and an unknown id."""
        for found in self._citation.finditer(text):
            known = found["id"] in self.ids and found["range"] is None
            yield found.start(), found[0], found["id"] if known else None


def measure(tests: Path) -> Coverage:
    """What the texts below `tests` cite."""
    text = (tests / LEDGER).read_text(encoding="utf-8")
    sections = read_sections(text)
    ledger = Ledger([one for ids in sections.values() for one in ids])
    coverage = Coverage(sections, read_later(text, ledger))
    for path in sorted(tests.rglob("*")):
        if path.suffix not in TEXT_FILES or path == tests / LEDGER or "__pycache__" in path.parts:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for start, written, one in ledger.citations(text):
            if one is not None:
                coverage.cited.add(one)
                continue
            place = f"{path.relative_to(tests.parent)}:{text.count(NEWLINE, 0, start) + 1}"
            coverage.mistakes.append(f"{place}: {written} does not exist, or is a range: name each id")
    return coverage


def shorten(ids: Sequence[str], among: Sequence[str]) -> str:
    """The ids as words, neighbours in `among` joined to ranges."""
    runs: list[list[str]] = []
    previous = -2
    for one in ids:
        position = among.index(one)
        if position == previous + 1 and runs[-1][0].rpartition("-")[0] == one.rpartition("-")[0]:
            runs[-1].append(one)
        else:
            runs.append([one])
        previous = position
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


def report(coverage: Coverage) -> Iterator[str]:
    """The lines to print: a line per section, what is owed below it, the sums, then the mistakes."""
    width = max(map(len, coverage.sections), default=0)
    cited, later = coverage.cited, coverage.later
    for title, ids in coverage.sections.items():
        owed = [one for one in ids if one not in cited and one not in later]
        waits = sum(one not in cited and one in later for one in ids)
        covered = len(ids) - len(owed) - waits
        yield f"{title:<{width}}  {covered:>3} of {len(ids):>3}" + (f", {waits} later" if waits else "")
        if owed:
            yield f"    owed: {shorten(owed, ids)}"
    everything = [one for ids in coverage.sections.values() for one in ids]
    waiting = Counter(later[one] for one in everything if one in later and one not in cited)
    for reason, count in waiting.most_common():
        yield f"later, {reason}: {count}"
    left = len(everything) - len(cited) - waiting.total()
    yield f"{len(cited)} of {len(everything)} requirements are cited by tests, {left} are owed, {waiting.total()} later"
    yield from coverage.mistakes


def main(tests: Path = TESTS) -> int:
    """Print the report; 1 when a test cites an id that does not exist."""
    coverage = measure(tests)
    for line in report(coverage):
        print(line)
    return 1 if coverage.mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
