"""The comparison of SDKs: which cases it runs, and how it counts."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from tests.hostile import compare
from tests.hostile.compare import CHOICES, KINDS, ROUTES, Figures, Sdk
from tests.hostile.run import corpus

ROUTE = "stdio"


def figures(name: str, **kinds: str) -> Figures:
    """Outcomes of one SDK by the names of cases."""
    return Figures(Sdk(name, Path(sys.executable), Path(__file__)), {(ROUTE, case): kinds[case] for case in kinds}, {})


def test_each_choice_is_about_some_case() -> None:
    names = list(corpus().names())
    assert [pattern for pattern in CHOICES if not any(fnmatchcase(name, pattern) for name in names)] == []
    assert len(compare.compared(1)) > 0.9 * len(names)


def test_a_case_counts_if_all_servers_have_its_feature() -> None:
    one = figures("one", a="ok", b="silent", c="ok")
    other = figures("other", a="other", b="ok")
    text = compare.table([one, other])
    assert "2 cases" in text
    assert "| as specified | 1 | 1 |" in text
    assert "| no answer | 1 | 0 |" in text


def test_the_page_has_the_figures_of_one_run() -> None:
    page = compare.PAGE.read_text(encoding="utf-8")
    parts = re.findall(r"\*\*, (\d+) cases \|.*\n((?:\| .*\n)+)", page.replace("| **", "**"))
    assert len(parts) == len(ROUTES)
    for cases, rows in parts:
        counts = [[int(cell) for cell in row.split("|")[2:-1]] for row in rows.strip().split("\n")]
        assert len(counts) == len(KINDS)
        assert {sum(column) for column in zip(*counts, strict=True)} == {int(cases)}
