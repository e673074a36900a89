"""Mutation testing: `python -m tools.mutants [FILE ...] --sample 20`.

Changes one operator, constant or condition at a time in a copy of the source, and runs the tests of that file. A change that no
test notices has survived: a test is missing, or the code has no effect, or the change means the same (see EQUIVALENT).
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: The files that are mutated, and the tests that should notice.
FILES: dict[str, tuple[str, ...]] = {
    "src/hinge/jsonrpc.py": ("tests/test_jsonrpc.py", "tests/fuzz"),
    "src/hinge/protocol/connection.py": ("tests/protocol", "tests/fuzz", "tests/test_session.py"),
    "src/hinge/protocol/http/headers.py": ("tests/protocol/http", "tests/wire/test_decision_tables.py"),
    "src/hinge/protocol/http/sse.py": ("tests/protocol/http", "tests/fuzz"),
    "src/hinge/protocol/limits.py": ("tests/protocol",),
    "src/hinge/session.py": (
        "tests/test_session.py",
        "tests/test_session_asking.py",
        "tests/test_session_end.py",
        "tests/wire",
    ),
    "src/hinge/server/elicitation/request_state.py": ("tests/server/elicitation", "tests/wire"),
    "src/hinge/server/elicitation/stateless.py": ("tests/server/elicitation", "tests/wire"),
    "src/hinge/server/features/subscriptions.py": ("tests/server/features", "tests/wire"),
    "src/hinge/transports/http/server/session.py": ("tests/transports/http/server", "tests/wire"),
    "src/hinge/transports/http/server/session_store.py": ("tests/transports/http/server",),
}
#: Changes that mean the same, or that no test can see without looking inside: (the end of the file's name, the description).
EQUIVALENT: dict[tuple[str, str], str] = {}

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}


class Mutant(NamedTuple):
    """One changed file."""

    file: str
    line: int
    description: str
    text: str


def mutate(node: ast.AST) -> ast.AST | None:
    """Return a changed copy of a node; None if there is no change for it."""
    changed = copy.deepcopy(node)
    if isinstance(changed, ast.Compare) and type(changed.ops[0]) in _COMPARISONS:
        changed.ops[0] = _COMPARISONS[type(changed.ops[0])]()
        return changed
    if isinstance(changed, ast.BoolOp):
        changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
        return changed
    if isinstance(changed, ast.UnaryOp) and isinstance(changed.op, ast.Not):
        return changed.operand
    if isinstance(changed, ast.BinOp) and type(changed.op) in _OPERATORS and not isinstance(changed.left, ast.Constant):
        changed.op = _OPERATORS[type(changed.op)]()
        return changed
    if isinstance(changed, ast.Constant) and isinstance(changed.value, int):  # a bool is an int
        changed.value = not changed.value if isinstance(changed.value, bool) else changed.value + 1
        return changed
    if isinstance(changed, ast.Return) and changed.value is not None:
        changed.value = ast.Constant(None)
        return changed
    return None


def mutants(file: str) -> Iterator[Mutant]:
    """Yield all mutants of a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for parent in ast.walk(tree):
        if isinstance(parent, ast.AnnAssign):
            continue
        for name, value in ast.iter_fields(parent):
            for place, node in enumerate(value if isinstance(value, list) else [value]):
                changed = mutate(node) if isinstance(node, ast.AST) and name not in ("annotation", "returns") else None
                if changed is None:
                    continue
                _put(parent, name, place, changed)
                description = f"{ast.unparse(node)} -> {ast.unparse(ast.fix_missing_locations(changed))}"
                yield Mutant(file, getattr(node, "lineno", 0), " ".join(description.split()), ast.unparse(tree))
                _put(parent, name, place, node)


def _put(parent: ast.AST, name: str, place: int, node: ast.AST) -> None:
    value = getattr(parent, name)
    if isinstance(value, list):
        value[place] = node
    else:
        setattr(parent, name, node)


def survives(mutant: Mutant, copied: Path, tests: Sequence[str]) -> bool:
    """Run the tests with a mutant; return whether they pass."""
    target = copied / Path(mutant.file).relative_to("src")
    original = target.read_bytes()
    target.write_text(mutant.text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=60", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(copied)},
            capture_output=True,
            timeout=900,
            check=False,
        )
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        target.write_bytes(original)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description="Mutation testing of the kernel.")
    parser.add_argument("files", nargs="*", help="all files of the table by default")
    parser.add_argument(
        "--sample", type=int, default=0, help="so many mutants of each file, chosen at random; 0 for all"
    )
    parser.add_argument("--seed", type=int, default=0, help="for the choice")
    parser.add_argument("--list", action="store_true", help="count the mutants, and run nothing")
    options = parser.parse_args(arguments)
    survivors = 0
    with tempfile.TemporaryDirectory() as directory:
        copied = Path(directory, "src")
        shutil.copytree(ROOT / "src", copied, ignore=shutil.ignore_patterns("__pycache__"))
        for file in options.files or FILES:
            chosen = list(mutants(file))
            if options.sample and len(chosen) > options.sample:
                chosen = random.Random(options.seed).sample(chosen, options.sample)
            print(f"{file}: {len(chosen)} mutants", flush=True)
            for mutant in () if options.list else chosen:
                reason = EQUIVALENT.get((Path(file).name, mutant.description))
                if reason is None and survives(mutant, copied, FILES[file]):
                    survivors += 1
                    print(f"  survived, line {mutant.line}: {mutant.description}", flush=True)
    print(f"{survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
