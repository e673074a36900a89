"""The mutants of a source, and the command that tries them on a small project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source import ROOT
from tools.mutants.__main__ import LISTED, read_rows
from tools.mutants.mutations import find_mutants


def names(source: str) -> list[str]:
    return [mutant.name.partition(": ")[2] for mutant in find_mutants(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = b < 3", ["b < 3 -> b <= 3", "b < 3 -> b < 4"]),
        ("if a in b: c = d", ["a in b -> True", "a in b -> False"]),
        ("if a and b: c = d", ["a and b -> False", "a and b -> b", "a and b -> a"]),
        ("a = b or c", ["b or c -> c", "b or c -> b"]),
        ("a = [b for b in c if b.d]", ["b.d -> True", "b.d -> False"]),
        ("a(b=True)", ["a(b=True) -> pass", "b=True -> b=False"]),
        ("a = 0.25", ["a = 0.25 -> a = 250.0"]),
        ("a.b = c + d", ["a.b = c + d -> pass", "c + d -> c - d"]),
        ("a = self._limits.teardown", ["self._limits.teardown -> self._limits.teardown * 1000"]),
        ("a = b", []),
        ("a = 64 * 1024", []),
        ("assert a > 1", []),
        ("def f(): return False", ["return False -> return True"]),
        ("logger.info('a %s', 5)", []),
        ("'''A text.'''", []),
        ("a = f'{b + 1}'", []),
        ("a: Literal[1] = b", []),
    ],
)
def test_one_thing_is_changed_at_a_time(source: str, expected: list[str]) -> None:
    assert names(source) == expected


def test_a_result_becomes_none_or_the_opposite() -> None:
    assert names("def f(a): return a == 1") == [
        "return a == 1 -> return None",
        "a == 1 -> a != 1",
        "a == 1 -> a == 2",
    ]


def test_a_mutant_differs_in_the_changed_place_only() -> None:
    source = "# é\ndef f(a):  # a comment\n    return (\n        a\n        + 1\n    )\n"
    plus = next(mutant for mutant in find_mutants(source) if mutant.name == "f: a + 1 -> a - 1")
    assert plus.text == "# é\ndef f(a):  # a comment\n    return (\n        (a - 1)\n    )\n"
    assert plus.lines == (3, 5)


def test_equal_changes_of_one_function_are_told_apart() -> None:
    found = find_mutants("def f(a):\n    a.b()\n    a.b()\n")
    assert [mutant.name for mutant in found] == ["f: a.b() -> pass", "f: a.b() -> pass #2"]
    assert len({mutant.key for mutant in found}) == 2


def test_what_is_known_of_a_function_outlives_changes_elsewhere() -> None:
    one = "def f(a):\n    return a\n"
    (known,) = find_mutants(one)
    (moved,) = [mutant for mutant in find_mutants(f"b = c\n\n\n{one}") if mutant.name.startswith("f: ")]
    assert (moved.key, moved.name) == (known.key, known.name)


def test_the_table_lists_files_and_tests_that_exist() -> None:
    for file, row in read_rows(LISTED).items():
        missing = [name for name in (file, *row.tests) if not (ROOT / name.partition(" ")[0]).exists()]
        assert not missing
        assert all(row.explained.values()), f"{file}: each survivor needs a reason"


FLIES = "def flies(name, wings):\n    return wings > 1 and name\n"


def project(directory: Path, tests: str, explained: str = "", source: str = FLIES) -> Path:
    """A project of one file with one function."""
    (directory / "src/birds").mkdir(parents=True)
    (directory / "src/birds/__init__.py").write_text(source)
    (directory / "test_birds.py").write_text(f"from birds import flies\n\n{tests}\n")
    (directory / "files.toml").write_text(
        f'["src/birds/__init__.py"]\ntests = ["test_birds.py"]\n["src/birds/__init__.py".explained]\n{explained}\n'
    )
    return directory


def run(root: Path, *arguments: str, extra_seconds: float = 15) -> tuple[int, str]:
    pytest.importorskip("coverage")
    code = (
        "import sys; from pathlib import Path; from tools.mutants.__main__ import main; root = Path(sys.argv[1]); "
        "sys.exit(main(sys.argv[3:], root=root, listed=root / 'files.toml', extra_seconds=float(sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, str(root), str(extra_seconds), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


GOOD = """
def test_all():
    assert flies('owl', 2) == 'owl'
    assert not flies('owl', 1)
    assert not flies('', 2)
"""


@pytest.mark.long
@pytest.mark.timeout(120)  # some ten forked runs of pytest
def test_survivors_fail_the_command_until_they_are_noticed_or_explained(tmp_path: Path) -> None:
    root = project(tmp_path, "def test_one():\n    assert flies('owl', 3) == 'owl'")
    code, printed = run(root)
    assert code == 1
    assert '"flies: wings > 1 -> wings >= 1" = ' in printed
    (root / "test_birds.py").write_text(f"from birds import flies\n\n{GOOD}\n")
    code, printed = run(root)
    assert (code, "6 of 6 mutants: 6 noticed, 0 explained, 0 survived" in printed) == (0, True), printed


@pytest.mark.long
@pytest.mark.timeout(120)
def test_an_explained_survivor_is_not_tried_and_must_exist(tmp_path: Path) -> None:
    row = '"flies: wings > 1 -> wings >= 1" = "a reason"'
    root = project(tmp_path, GOOD, row)
    code, printed = run(root)
    assert (code, "5 noticed, 1 explained, 0 survived" in printed) == (0, True), printed
    (root / "files.toml").write_text((root / "files.toml").read_text().replace(">= 1", ">= 7"))
    code, printed = run(root)
    assert code == 1
    assert "there is no such mutant: flies: wings > 1 -> wings >= 7" in printed


@pytest.mark.long
@pytest.mark.timeout(120)
def test_tests_that_fail_without_a_mutant_prove_nothing(tmp_path: Path) -> None:
    code, printed = run(project(tmp_path, "def test_wrong():\n    assert flies('owl', 0)"))
    assert code == 1
    assert "its tests fail without a mutant" in printed


KEEPS = """
from functools import cache

@cache
def flies(bird, wings):
    return wings > 1 and bird
"""


@pytest.mark.long
@pytest.mark.timeout(120)
def test_of_functions_that_keep_results_all_tests_count(tmp_path: Path) -> None:
    tests = "def test_all():\n    flies('owl', 1)\n\ndef test_last():\n    assert not flies('owl', 1)"
    root = project(tmp_path, tests, source=KEEPS)
    code, printed = run(root, "--only", "wings > 1 -> wings >= 1")
    assert (code, "1 survived" in printed) == (1, True), printed
    listed = (root / "files.toml").read_text()
    (root / "files.toml").write_text(listed.replace("tests = ", "keeps_results = true\ntests = ", 1))
    code, printed = run(root, "--only", "wings > 1 -> wings >= 1")
    assert (code, "1 noticed, 0 explained, 0 survived" in printed) == (0, True), printed


LANDS = """
import threading

def lands(height):
    landed = threading.Event()
    while height > 1:
        height -= 1
    landed.set()
    landed.wait()
"""


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mutant", ["height > 1 -> True", "landed.set() -> pass"], ids=["computes", "waits"])
def test_a_mutant_that_never_ends_is_noticed(tmp_path: Path, mutant: str) -> None:
    root = project(tmp_path, "def test_one():\n    lands(2)", source=LANDS)
    (root / "test_birds.py").write_text((root / "test_birds.py").read_text().replace("flies", "lands"))
    code, printed = run(root, "--only", mutant, extra_seconds=4)
    assert (code, "1 noticed, 0 explained, 0 survived" in printed) == (0, True), printed


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_busy_machine_changes_no_result(tmp_path: Path) -> None:
    tests = """
import pathlib, time

def test_one():
    time.sleep(3 if pathlib.Path("busy").exists() else 0)
    assert flies('owl', 3) == 'owl'
"""
    root = project(tmp_path, tests)
    mutant = "wings > 1 -> wings >= 1"
    code, quiet = run(root, "--only", mutant, extra_seconds=3)
    assert (code, "1 survived" in quiet) == (1, True), quiet
    (root / "busy").touch()
    code, busy = run(root, "--only", mutant, "--fresh", extra_seconds=3)
    assert (code, "1 survived" in busy) == (1, True), busy
