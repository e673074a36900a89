"""Tests and checks of what has changed: `make test-quick` and `make check-quick`.

Changed is what differs from the commit at which this branch left `main`, committed or not. To a changed file belong:

- a file of tests: itself
- `src/gemel/client/cache.py`, and a helper such as `tests/client/site.py`: the test files in `tests/client`, without those of
  its subfolders, or in the nearest folder above that has some
- a document: its examples, and the links of all documents; an example: `tests/docs/test_*examples.py`
- any other `folder/name.py`, such as a tool: `tests/test_name.py`, if there is one

Long tests are left out, and where more than `MANY` files belong to a change, also the files that start programs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.docs.documents import documents
from tests.source import ROOT

MANY = 25
STARTS_PROGRAMS = re.compile(r"\bsubprocess|sys\.executable|\bneeds_redis")


class Missing(Exception):
    """Something that a command needs is not here."""


def changed_files(root: Path = ROOT) -> tuple[str, list[Path]]:
    """The commit that a checkout is compared with, and the files, relative to it, that differ or are new.

    Raises:
        Missing: There is no git, or no checkout.
    """
    if shutil.which("git") is None:
        raise Missing("what has changed is asked of git, which is not installed: use `make test` and `make check`")
    try:
        new = _git(root, "ls-files", "-z", "--others", "--exclude-standard", check=True)
        base = next(filter(None, (_git(root, "merge-base", "HEAD", name) for name in ("main", "origin/main"))), "HEAD")
        differing = _git(root, "diff", "-z", "--name-only", "--diff-filter=d", base, check=True)
    except subprocess.CalledProcessError as error:
        raise Missing(f"git does not tell what has changed: {error.stderr.partition(chr(10))[0]}") from None
    return base[:10], sorted({Path(name) for name in f"{differing}\0{new}".split("\0") if name})


def _git(root: Path, *words: str, check: bool = False) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=check).stdout.strip()


def select_tests(files: Sequence[Path], root: Path = ROOT) -> list[str]:
    """The test files that belong to changed files, as pytest is given them."""
    found = {test for file in files for test in _select(file, root)}
    whole = {name for name in found if "::" not in name}
    return sorted(name for name in found if name in whole or name.partition("::")[0] not in whole)


def _select(file: Path, root: Path) -> Iterator[str]:
    if file.suffix == ".md":
        if root / file in documents():
            yield f"tests/docs/test_blocks.py::test_what_a_document_shows_works[{file.as_posix()}]"
            yield "tests/docs/test_links.py"
    elif file.parts[0] == "examples":
        yield from (f"tests/docs/{test.name}" for test in (root / "tests/docs").glob("test_*examples.py"))
    elif file.suffix == ".py" and file.parts[0] == "tests" and file.name.startswith("test_"):
        yield file.as_posix()
    elif file.parts[0] == "tests" or file.parts[:2] == ("src", "gemel"):
        inner = file.relative_to("tests" if file.parts[0] == "tests" else "src/gemel")
        for folder in inner.parents:
            if tests := [path.relative_to(root).as_posix() for path in (root / "tests" / folder).glob("test_*.py")]:
                yield from tests
                break
    elif len(file.parts) > 1 and (root / f"tests/test_{Path(file.parts[1]).stem}.py").exists():
        yield f"tests/test_{Path(file.parts[1]).stem}.py"


def starts_programs(test: str, root: Path = ROOT) -> bool:
    """Whether a file of tests says that it starts programs."""
    return STARTS_PROGRAMS.search((root / test.partition("::")[0]).read_text(encoding="utf-8")) is not None


def run_tests(files: Sequence[Path], structure: Sequence[str]) -> int:
    """Run the tests that belong to changed files, but not those of the structure. Returns the exit code."""
    tests = [test for test in select_tests(files) if test not in structure or Path(test) in files]
    if len(tests) > MANY:
        left_out = [test for test in tests if Path(test) not in files and starts_programs(test)]
        tests = [test for test in tests if test not in left_out]
        print(f"left out, since they start programs: {' '.join(left_out)}", flush=True)
    if not tests:
        print("no tests belong to these files")
        return 0
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "auto",
        "--dist",
        "worksteal",
        "-q",
        "-rs",
        "-m",
        "not long",
        *tests,
    ]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 5:
        print("only long tests belong to these files: make test-long")
        return 0
    return code


def run_checks(files: Sequence[Path], structure: Sequence[str]) -> int:
    """Check the format, style and types of changed files, and the structure of all. Returns 1 if anything is wrong."""
    python = [str(file) for file in files if file.suffix == ".py"]
    typed = [name for name in python if is_typed(name)]
    commands = [
        *([["ruff", "format", "--check", "--force-exclude", *python]] if python else []),
        *([["ruff", "check", "--force-exclude", *python]] if python else []),
        *([["mypy", *typed], ["pyright", *typed]] if typed else []),
        ["pytest", "-q", *structure],
    ]
    codes = [subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode for command in commands]
    return int(any(codes))


def is_typed(name: str) -> bool:
    """Whether the type checkers look at a file, by the settings of mypy."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    return name.partition("/")[0] in settings["files"] and not any(re.search(one, name) for one in settings["exclude"])


def main(words: Sequence[str] | None = None) -> int:
    """Test or check what has changed."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.changed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("test", "check"))
    parser.add_argument("structure", nargs="*", help="tests of the structure, which belong to `check`")
    options = parser.parse_args(words)
    try:
        base, files = changed_files()
    except Missing as missing:
        print(missing)
        return 1
    print(f"{len(files)} files differ from {base}", flush=True)
    return (run_tests if options.what == "test" else run_checks)(files, options.structure)


if __name__ == "__main__":
    sys.exit(main())
