"""The parts in which all tests are run: none is left out, none run twice, and what failed is tried again alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.source import ROOT
from tools import run_tests
from tools.run_tests import TESTS, Part, failed_before, main, parts, run, total


def test_every_test_is_in_exactly_one_part() -> None:
    found = Counter(
        file
        for part in parts()
        for path in part.paths
        for file in ([path] if path.is_file() else path.rglob("test_*.py"))
    )
    assert set(found) == set(TESTS.rglob("test_*.py"))
    assert set(found.values()) == {1}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tests of which one fails until a file is there."""
    monkeypatch.setattr(run_tests, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_planted.py").write_text(
        "from pathlib import Path\n"
        "def test_good():\n    with open('ran', 'a') as file: file.write('good ')\n"
        "def test_bad():\n    assert Path('there').exists()\n"
    )
    return tmp_path


def test_what_failed_is_tried_again_and_nothing_else(planted: Path) -> None:
    part = Part("planted", (planted / "test_planted.py",))
    again = ("--last-failed", "--last-failed-no-failures", "none")
    first = run(part)
    assert (first.code, failed_before(part)) == (1, True)
    assert "test_bad" in first.said
    (planted / "there").touch()
    second = run(part, *again)
    assert (second.code, failed_before(part)) == (0, False)
    assert (planted / "ran").read_text() == "good "


def test_a_part_that_was_cut_off_is_not_good_because_nothing_is_known_to_have_failed(planted: Path) -> None:
    part = Part("planted", (planted / "test_planted.py",))
    (planted / "test_planted.py").write_text("import os\ndef test_cut():\n    os._exit(1)\n")
    assert run(part).code == 1
    assert run(part, "--last-failed", "--last-failed-no-failures", "none").code != 0
    assert failed_before(part)


def test_the_last_line_counts_the_tests_of_all_parts() -> None:
    said = [
        "...\n2 failed, 10 passed, 1 warning in 3.2s\n",
        "7 passed, 1 skipped in 0.1s",
        "12 lines passed\nno tests ran in 0s",
    ]
    assert total(said) == "2 failed, 17 passed, 1 skipped"
    assert total([]) == "no tests ran"


def test_other_words_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fast"]) == 2
    assert "--failed" in capsys.readouterr().err


def test_it_is_what_make_and_the_ci_run() -> None:
    assert "-m tools.run_tests\n" in (ROOT / "Makefile").read_text()
    assert "-m tools.run_tests --failed" in (ROOT / ".ci" / "run").read_text()
