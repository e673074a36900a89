"""Mutation testing: `python -m tools.mutants [FILE ...] --sample 20`.

Changes one condition, constant, operator, result or statement at a time in a copy of the source, and runs the tests that
reach the changed line. A change that no test notices has survived: a test is missing, or the code has no effect, or the
change means the same. `files.toml` lists the files, their tests, and the survivors that are explained; any other is an error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tools.mutants.mutations import Mutant, find_mutants
from tools.mutants.trials import EXTRA_SECONDS, Baseline, Laboratory, Undecided

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("files.toml")


class Row(NamedTuple):
    """What `files.toml` says of a file."""

    tests: list[str]
    #: The names of mutants that survive, with the reason.
    explained: dict[str, str]
    #: Whether its functions keep results, so that a test may depend on a line that only an earlier test reached.
    keeps_results: bool


def read_rows(path: Path) -> dict[str, Row]:
    """Read the table of files."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        file: Row(row["tests"], row.get("explained", {}), row.get("keeps_results", False))
        for file, row in table.items()
    }


class Command:
    """One run over some files."""

    def __init__(self, root: Path, laboratory: Laboratory, *, fresh: bool) -> None:
        self._root = root
        self._laboratory = laboratory
        self._cache = root / ".cache" / "mutants"
        self._cache.mkdir(parents=True, exist_ok=True)
        #: The keys of mutants that a test noticed.
        self._noticed: set[str] = set()
        self._outcomes = self._cache / "noticed"
        if fresh:
            self._outcomes.unlink(missing_ok=True)
        if self._outcomes.exists():
            self._noticed = set(self._outcomes.read_text().split())

    def run(self, file: str, row: Row, mutants: Sequence[Mutant], of: int) -> int:
        """Try mutants of a file and print what became of them; return how many survivors are not explained."""
        start, counts, failures = time.monotonic(), Counter[str](), 0
        baseline: Baseline | None = None
        for mutant in mutants:
            if mutant.name in row.explained:
                counts["explained"] += 1
            elif mutant.key in self._noticed:
                counts["noticed"] += 1
            else:
                baseline = baseline or self._baseline(file, row)
                if baseline is None:
                    print(f"{file}: its tests fail without a mutant: {' '.join(row.tests)}", flush=True)
                    return 1
                tests = baseline.tests(mutant, reached_or_not=row.keeps_results)
                try:
                    noticed = bool(tests) and self._laboratory.notices(file, mutant, tests, baseline)
                except Undecided:
                    failures += 1
                    print(
                        f"{file}:{mutant.lines[0]}: undecided, its tests fail without it, too: {mutant.name}",
                        flush=True,
                    )
                    continue
                if noticed:
                    counts["noticed"] += 1
                    self._noticed.add(mutant.key)
                    with self._outcomes.open("a") as outcomes:
                        outcomes.write(f"{mutant.key}\n")
                else:
                    failures += 1
                    why = f"{len(tests)} tests pass" if tests else "no test reaches it"
                    print(f"{file}:{mutant.lines[0]}: {why}\n{json.dumps(mutant.name)} = ", flush=True)
        self._laboratory.close()
        print(
            f"{file}: {len(mutants)} of {of} mutants: {counts['noticed']} noticed, {counts['explained']} explained, "
            f"{failures} survived, {time.monotonic() - start:.0f} s",
            flush=True,
        )
        return failures

    def _baseline(self, file: str, row: Row) -> Baseline | None:
        """Which test reaches what, measured once for a state of the file and its tests."""
        digest = hashlib.sha256((self._root / file).read_bytes())
        for test in row.tests:
            for path in sorted(_files(self._root / test.partition(" ")[0])):
                digest.update(path.read_bytes())
        name = file.removeprefix("src/").replace("/", ".")
        path = self._cache / f"{name}-{digest.hexdigest()[:16]}.json"
        if path.exists():
            return Baseline.load(path)
        for old in self._cache.glob(f"{name}-*.json"):
            old.unlink()
        baseline = self._laboratory.measure(file, row.tests)
        if baseline is not None:
            baseline.save(path)
        return baseline


def _sample(mutants: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """Choose some mutants: the same ones while they exist, and in a larger sample, too."""
    ranks = {mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest() for mutant in mutants}
    chosen = set(sorted(mutants, key=ranks.__getitem__)[:size])
    return [mutant for mutant in mutants if mutant in chosen]


def _files(path: Path) -> list[Path]:
    return [found for found in path.rglob("*") if found.suffix in (".py", ".txt")] if path.is_dir() else [path]


def main(
    arguments: Sequence[str] | None = None,
    *,
    root: Path = ROOT,
    listed: Path = LISTED,
    extra_seconds: float = EXTRA_SECONDS,
) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description="Mutation testing of the kernel.")
    parser.add_argument("files", nargs="*", help="all files of the table by default")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants of each file; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="for the choice of the sample")
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    parser.add_argument("--fresh", action="store_true", help="try again what earlier runs found to be noticed")
    options = parser.parse_args(arguments)
    rows = read_rows(listed)
    failures, total, every = 0, 0, 0
    with tempfile.TemporaryDirectory() as directory:
        copied = Path(directory, "src")
        shutil.copytree(root / "src", copied)
        command = Command(root, Laboratory(root, copied, extra_seconds=extra_seconds), fresh=options.fresh)
        for file in options.files or rows:
            row, found = rows[file], find_mutants((root / file).read_text(encoding="utf-8"))
            for name in row.explained.keys() - {mutant.name for mutant in found}:
                failures += 1
                print(f"{file}: explained, but there is no such mutant: {name}")
            mutants = [mutant for mutant in found if options.only in mutant.name]
            if options.sample:
                mutants = _sample(mutants, options.sample, options.seed)
            if options.list:
                print(*(f"{file}:{mutant.lines[0]}: {mutant.name}" for mutant in mutants), sep="\n")
            else:
                failures += command.run(file, row, mutants, len(found))
            total, every = total + len(mutants), every + len(found)
    print(f"{total} of {every} mutants: {failures} survived without an explanation")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
