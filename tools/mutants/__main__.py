"""Mutation testing: `python -m tools.mutants --count 40`.

Changes one condition, operator, result or statement of the source at a time, and runs the tests that are most likely to
notice. A change that none of them notices has survived: a test is missing, or the code has no effect, or the change means the
same. Mutants are chosen at random, equally many of each package; the same ones for the same seed, which is the date.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import NamedTuple

from tools.mutants.mutations import Mutant, find_mutants
from tools.mutants.nearest import Nearness
from tools.mutants.trials import Outcome, Trials

ROOT = Path(__file__).parents[2]
#: How many test files a mutant gets.
FILES = 15


class Chosen(NamedTuple):
    """A mutant and its file."""

    file: str
    mutant: Mutant

    def __str__(self) -> str:
        return f"{self.file}:{self.mutant.line}: {self.mutant.scope}: {self.mutant.change}"


def choose(root: Path, files: Iterable[str], count: int, seed: int) -> list[Chosen]:
    """Choose mutants of the packages in turn, in each from its files as their sizes are; all, if `count` is 0."""
    if not count:
        return [Chosen(file, mutant) for file in files for mutant in _mutants(root, file)]
    rng = random.Random(seed)
    packages: dict[str, list[str]] = {}
    for file in files:
        _, _, *rest = file.split("/")  # src, the name of the package
        packages.setdefault(rest[0] if len(rest) > 1 else "", []).append(file)
    names = rng.sample(sorted(packages), len(packages))
    chosen: dict[Chosen, None] = {}
    turn = 0
    while len(chosen) < count and turn < 20 * count:
        members = packages[names[turn % len(names)]].copy()
        file, mutants = "", list[Mutant]()
        while members and not mutants:  # many files have none
            (file,) = rng.choices(members, [(root / member).stat().st_size for member in members])
            members.remove(file)
            mutants = _mutants(root, file)
        if mutants:
            chosen[Chosen(file, rng.choice(mutants))] = None
        turn += 1
    return list(chosen)


def _mutants(root: Path, file: str) -> list[Mutant]:
    return find_mutants((root / file).read_text(encoding="utf-8"))


def function_around(source: str, line: int) -> str:
    """Return the text of the innermost function or class around a line; the whole text if there is none."""
    inner = source
    for node in ast.walk(ast.parse(source)):  # outer ones come first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (
            node.lineno <= line <= (node.end_lineno or line)
        ):
            inner = ast.get_source_segment(source, node) or inner
    return inner


class Run:
    """Tries mutants, several at a time, and prints those that survive.

    Args:
        root: The project.
        processes: How many at a time.
        seconds: After this time no further mutant is tried.
        limit: Seconds of tests for a mutant.

    Attributes:
        counts: How many were noticed, survived, or met no test; could not be decided, or were not tried.
    """

    def __init__(self, root: Path, processes: int, seconds: float, limit: float) -> None:
        self._root = root
        self._processes = processes
        self._end = time.monotonic() + seconds
        self._limit = limit
        self._tests = Nearness(root)
        self._own = threading.local()
        #: The mutants that each test noticed.
        self._noticed: dict[str, list[Chosen]] = {}
        self.counts = Counter[str]()

    def __call__(self, chosen: Sequence[Chosen]) -> None:
        """Try mutants."""
        with (
            tempfile.TemporaryDirectory() as scratch,
            ThreadPoolExecutor(self._processes, initializer=self._begin, initargs=(Path(scratch),)) as pool,
        ):
            self.counts.update(pool.map(self._try, chosen))
            pool.submit(self._doubt).result()

    def _begin(self, scratch: Path) -> None:
        """Give a thread its copy of the source."""
        self._own.trials = Trials(self._root, Path(tempfile.mkdtemp(dir=scratch)), self._limit)

    def _try(self, chosen: Chosen) -> str:
        """Try a mutant and return what became of it."""
        if time.monotonic() > self._end:
            return "not tried"
        file, mutant = chosen
        source = (self._root / file).read_text(encoding="utf-8")
        tests = self._tests.nearest(file, function_around(source, mutant.line), FILES)
        outcome: Outcome = self._own.trials.run(tests, file, mutant.applied_to(source))
        if outcome.failed:
            self._noticed.setdefault(outcome.failed, []).append(chosen)
            return "noticed"
        print(f"{chosen}: {outcome.passed} tests pass", flush=True)
        return "survived" if outcome.passed else "without a test"

    def _doubt(self) -> None:
        """Run the tests that failed with mutants once more without one. What fails nevertheless proves nothing."""
        tests = [test for test in self._noticed if "::" in test]
        while tests and (failed := self._own.trials.run(tests).failed):
            for chosen in self._noticed.get(failed, ()):
                print(f"{chosen}: undecided, {failed} fails without it, too", flush=True)
                self.counts.update({"noticed": -1, "undecided": 1})
            tests = tests[tests.index(failed) + 1 :] if failed in tests else []


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Run from the command line; return 1 if more mutants survived than were noticed."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description="Mutation testing.")
    parser.add_argument("files", nargs="*", help="source files; all by default")
    parser.add_argument("--count", type=int, default=40, help="how many mutants; 0 for all of the files")
    parser.add_argument("--seed", type=int, default=int(f"{date.today():%Y%m%d}"), help="the date by default")
    parser.add_argument("--seconds", type=float, default=360.0, help="after these no further mutant is tried")
    parser.add_argument("--limit", type=float, default=40.0, help="seconds of tests for a mutant")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many at a time")
    options = parser.parse_args(arguments)
    files = options.files or [str(path.relative_to(root)) for path in sorted(root.glob("src/**/*.py"))]
    chosen = choose(root, files, options.count, options.seed)
    print(f"{len(chosen)} mutants, --seed {options.seed}", flush=True)
    begin = time.monotonic()
    run = Run(root, options.processes, options.seconds, options.limit)
    run(chosen)
    counts = ", ".join(f"{count} {what}" for what, count in sorted(run.counts.items()) if count)
    last = root / ".cache" / "mutants.txt"
    before = f"; the run before: {last.read_text(encoding='utf-8')}" if last.exists() else ""
    print(f"mutants: {counts}, {time.monotonic() - begin:.0f} s{before}")
    last.parent.mkdir(exist_ok=True)
    last.write_text(f"{counts}, --seed {options.seed}", encoding="utf-8")
    return int(run.counts["survived"] > run.counts["noticed"] or not run.counts["noticed"])


if __name__ == "__main__":
    sys.exit(main())
