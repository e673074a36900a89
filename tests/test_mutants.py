"""The mutants of a source, and the command that tries them on a small project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source import ROOT
from tools.mutants.__main__ import choose, function_around
from tools.mutants.mutations import find_mutants
from tools.mutants.nearest import Nearness

SOURCES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "src").rglob("*.py"))]


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in find_mutants(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if a in b: c = d", ["a in b -> True", "a in b -> False"]),
        ("if a and b: c = d", ["a and b -> False", "a and b -> b", "a and b -> a"]),
        ("a = b or c", ["b or c -> c", "b or c -> b"]),
        ("a = [b for b in c if b.d]", ["b.d -> True", "b.d -> False"]),
        ("a(b=True)", ["a(b=True) -> pass", "True -> False"]),
        ("a.b = c + d", ["a.b = c + d -> pass", "c + d -> c - d"]),
        ("def f(a): return a == 1", ["return a == 1 -> return None", "a == 1 -> a != 1"]),
        ("def f(a): return not a", ["return not a -> return None", "not a -> a"]),
        ("def f(): return False", ["False -> True"]),
        ("a = b", []),
        ("a = b < 3", []),
        ("a = 64 * 1024 + 1", []),
        ("assert a > 1 and b", []),
        ("logger.info('a %s', True)", []),
        ("'''A text.'''", []),
        ("a = f'{b + 1}'", []),
        ("a: Literal[True] = b", []),
        ("if TYPE_CHECKING: import a", []),
    ],
)
def test_one_thing_is_changed_at_a_time(source: str, expected: list[str]) -> None:
    assert changes(source) == expected


def test_a_mutant_differs_in_the_changed_place_only() -> None:
    source = "# é\ndef f(a):  # a comment\n    return (\n        a\n        + b\n    )\n"
    plus = next(mutant for mutant in find_mutants(source) if mutant.change == "a + b -> a - b")
    assert plus.applied_to(source) == "# é\ndef f(a):  # a comment\n    return (\n        (a - b)\n    )\n"
    assert (plus.line, plus.scope) == (4, "f")


@pytest.mark.timeout(120)  # it reads the whole source
def test_a_sample_has_mutants_of_every_package_and_is_the_same_for_the_same_seed() -> None:
    chosen = choose(ROOT, SOURCES, 40, 7)
    assert len(set(chosen)) == 40
    packages = {path.parent.name for path in (ROOT / "src/gemel").glob("*/__init__.py")}
    assert packages <= {one.file.split("/")[2] for one in chosen}
    assert choose(ROOT, SOURCES, 40, 7) == chosen
    assert choose(ROOT, SOURCES, 40, 8) != chosen


@pytest.mark.parametrize(
    ("file", "function", "test"),
    [
        ("src/gemel/server/router.py", "add_files", "tests/server/features/test_files.py"),
        ("src/gemel/extensions/tasks/stored_tasks.py", "change", "tests/extensions/tasks/test_stored_tasks.py"),
        ("src/gemel/testing/scripted_peer.py", "data_received", "tests/testing/test_scripted.py"),
        ("src/gemel/transports/stream/line_channel.py", "close", "tests/transports/stream/test_pipe.py"),
    ],
)
def test_the_tests_of_a_function_are_found_by_its_words(file: str, function: str, test: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    line = source[: source.index(f"def {function}(")].count("\n") + 1
    assert test in Nearness(ROOT).nearest(file, function_around(source, line), 5)


FLIES = "def flies(name, wings):\n    return wings > 1 and name\n"
GOOD = """
def test_all():
    assert flies('owl', 2) == 'owl'
    assert not flies('owl', 1)
    assert not flies('', 2)
"""


def project(directory: Path, tests: str, source: str = FLIES) -> Path:
    """A project of one file with one function."""
    for folder in ("src/birds", "tests"):
        (directory / folder).mkdir(parents=True)
    (directory / "src/birds/__init__.py").write_text(source)
    (directory / "tests/test_birds.py").write_text(f"from birds import *\n\n{tests}\n")
    return directory


def run(root: Path, *arguments: str) -> tuple[int, str]:
    code = "import sys; from pathlib import Path; from tools.mutants.__main__ import main; "
    code += "sys.exit(main(sys.argv[2:], root=Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(root), "--seed", "1", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.long
@pytest.mark.timeout(120)  # each mutant is a run of pytest
def test_survivors_are_printed_and_compared_with_the_run_before(tmp_path: Path) -> None:
    root = project(tmp_path, "def test_one():\n    assert flies('owl', 3) == 'owl'")
    code, printed = run(root)
    assert code == 0
    assert "src/birds/__init__.py:2: flies: wings > 1 and name -> name: 1 tests pass\n" in printed
    assert "mutants: 2 noticed, 1 survived" in printed
    (root / "tests/test_birds.py").write_text(f"from birds import *\n\n{GOOD}\n")
    code, printed = run(root)
    assert (code, "mutants: 3 noticed, " in printed) == (0, True), printed
    assert "the run before: 2 noticed, 1 survived, --seed 1\n" in printed


@pytest.mark.long
@pytest.mark.timeout(120)
def test_tests_that_fail_without_a_mutant_prove_nothing(tmp_path: Path) -> None:
    code, printed = run(project(tmp_path, "def test_wrong():\n    assert flies('owl', 0)"))
    assert code == 1
    assert "undecided, tests/test_birds.py::test_wrong fails without it, too\n" in printed
    assert "mutants: 1 survived, 2 undecided" in printed


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_run_in_which_most_mutants_survive_fails(tmp_path: Path) -> None:
    code, printed = run(project(tmp_path, "def test_nothing():\n    pass"))
    assert (code, "mutants: 3 survived" in printed) == (1, True), printed


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_mutant_that_cannot_be_imported_or_never_ends_is_noticed(tmp_path: Path) -> None:
    source = "def lands(height):\n    while height > 1:\n        height -= 1\n\n\nlands(2)\n"
    code, printed = run(project(tmp_path, "def test_one():\n    lands(2)", source), "--count", "0", "--limit", "4")
    assert (code, "2 noticed" in printed) == (0, True), printed
