"""The count of requirements that tests cite: what is a citation, and that a wrong one is an error."""

from pathlib import Path

import pytest

from tools.requirement_coverage import TESTS, Ledger, main, measure, read_sections, report, shorten

# Prefixes that no requirement has, so that this file cites nothing.
LEDGER = "# birds\nBIRD-01  a\nBIRD-02  b\nBIRD-03  c\nBIRD-07  d\n\n# worms\nW-010  e\nW-011  f\n"
IDS = [one for ids in read_sections(LEDGER).values() for one in ids]


def named(text: str) -> list[str]:
    return sorted(one for *_, one in Ledger(IDS).citations(text) if one is not None)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ('"""BIRD-01."""', ["BIRD-01"]),
        ("BIRD-01, BIRD-07; W-010/W-011", ["BIRD-01", "BIRD-07", "W-010", "W-011"]),
        ("BIRD-02 … 03 times", ["BIRD-02"]),
        ("BLACKBIRD-01, BIRD-1, bird-01, UTF-16, X-BIRD-01", []),
    ],
)
def test_ids_and_lists_are_citations(text: str, ids: list[str]) -> None:
    assert named(text) == ids


@pytest.mark.parametrize(
    "text",
    [
        "BIRD-04",
        "BIRD-010",
        "W-10",
        "BIRD-01..BIRD-07",
        "BIRD-02 … BIRD-03",
        "BIRD-02–03",
        "BIRD-02...BIRD-03",
        "W-010…011",
    ],
)
def test_a_range_and_what_does_not_exist_name_nothing(text: str) -> None:
    ((start, written, one),) = Ledger(IDS).citations(text)
    assert (start, written, one) == (0, text, None)


def a_test_tree(directory: Path, text: str) -> Path:
    tests = directory / "tests"
    (tests / "deep").mkdir(parents=True)
    (tests / "requirement_ids.txt").write_text(LEDGER)
    (tests / "deep" / "test_nest.py").write_text(text)
    return tests


def test_the_report_counts_by_section_and_joins_neighbours(tmp_path: Path) -> None:
    tests = a_test_tree(tmp_path, '"""BIRD-07, W-010, W-011."""')
    assert list(report(measure(tests))) == [
        "birds    1 of   4",
        "    owed: BIRD-01..BIRD-03",
        "worms    2 of   2",
        "3 of 6 requirements are cited by tests, 3 are owed, 0 later",
    ]


def test_what_is_not_owed_now_is_counted_by_its_reason(tmp_path: Path) -> None:
    """What is cited all the same is covered."""
    tests = a_test_tree(tmp_path, '"""BIRD-07."""')
    (tests / "requirement_ids.txt").write_text(f"{LEDGER}! winter: BIRD-02, BIRD-03, BIRD-07\n! rain: W-011\n")
    assert list(report(measure(tests))) == [
        "birds    1 of   4, 2 later",
        "    owed: BIRD-01",
        "worms    0 of   2, 1 later",
        "    owed: W-010",
        "later, winter: 2",
        "later, rain: 1",
        "1 of 6 requirements are cited by tests, 2 are owed, 3 later",
    ]


@pytest.mark.parametrize(
    "line",
    ["! winter: BIRD-09", "! winter: BIRD-01..BIRD-03", "! winter:", "! BIRD-01", "! : BIRD-01", "! x: BIRD-01, W-099"],
)
def test_what_is_put_off_must_exist_and_have_a_reason(tmp_path: Path, line: str) -> None:
    tests = a_test_tree(tmp_path, "")
    (tests / "requirement_ids.txt").write_text(f"{LEDGER}{line}\n")
    with pytest.raises(ValueError, match="names no reason"):
        measure(tests)


def test_uncovered_requirements_are_no_error(tmp_path: Path) -> None:
    assert main(a_test_tree(tmp_path, "")) == 0


def test_a_wrong_citation_is_an_error_that_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(a_test_tree(tmp_path, '"""Nests.\n\nBIRD-01, BIRD-09."""')) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "tests/deep/test_nest.py:3: BIRD-09 does not exist, or is a range: name each id"
    )


def test_ranges_join_only_what_stands_side_by_side() -> None:
    assert shorten(["BIRD-01", "BIRD-03", "BIRD-07", "W-010"], IDS) == "BIRD-01, BIRD-03..BIRD-07, W-010"


@pytest.mark.parametrize("text", ["BIRD-01  a", "# birds\nBIRD-01  a\nBIRD-01  a"])
def test_a_ledger_with_a_homeless_or_double_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="BIRD-01 stands"):
        read_sections(text)


def test_an_id_without_its_statement_is_refused() -> None:
    with pytest.raises(ValueError, match="BIRD-01 has no statement"):
        read_sections("# birds\nBIRD-01")


def test_no_test_cites_a_requirement_that_does_not_exist() -> None:
    coverage = measure(TESTS)
    assert coverage.cited
    assert not coverage.mistakes, "\n" + "\n".join(coverage.mistakes)
