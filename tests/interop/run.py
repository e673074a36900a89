"""Runs the interop matrix with real processes over loopback and prints a table; exit code 1 when a step went wrong.

python -m tests.interop.run                    foreign clients on Gemel, Gemel's client on foreign servers, faults
python -m tests.interop.run --proof            foreign clients on foreign servers: is the harness itself right?
python -m tests.interop.run --client python --server gemel --transport http --era 2026 -v
python -m tests.interop.run --short            the current SDKs only, neither old ones nor the SDKs' examples
python -m tests.interop.run --agents           the clients of agent frameworks on Gemel's server
python -m tests.interop.run --server 'sdk-*'   the examples of the official Python SDK
"""

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

from tests.interop import faults
from tests.interop.cells import Matrix, Outcome
from tests.interop.excuses import EXCUSES
from tests.interop.judge import Cell, skipped
from tests.interop.matrix import HERE
from tests.interop.peers import GROUPS, OLD_SDKS, install, locate
from tools.ci import FLAKY

#: The options that choose cells by a member of that name.
FILTERS = ("client", "server", "transport", "era")


def select(cells: list[Cell], matrix: Matrix, chosen: argparse.Namespace) -> tuple[list[Cell], list[str]]:
    """The cells to run, and the values of options that match none of them.

    With --proof the pairs without Gemel; else the pairs with Gemel on at least one side.
    """
    selected = [
        cell for cell in cells if (cell.client == "gemel" or matrix.servers[cell.server].is_ours) != chosen.proof
    ]
    if chosen.short:
        selected = [
            cell for cell in selected if not any(_is_for_whole_runs(name) for name in (cell.client, cell.server))
        ]
    for name in FILTERS:
        patterns = getattr(chosen, name)
        if patterns:
            selected = [cell for cell in selected if any(fnmatch(getattr(cell, name), each) for each in patterns)]
    unmatched = [
        f"--{name} {pattern}"
        for name in FILTERS
        for pattern in getattr(chosen, name) or ()
        if not any(fnmatch(getattr(cell, name), pattern) for cell in selected)
    ]
    return selected, unmatched


def _is_for_whole_runs(peer: str) -> bool:
    return peer in OLD_SDKS or peer in ("typescript-1", "reference") or peer.startswith("sdk-")


def _show(outcome: Outcome, verbose: bool) -> None:
    cell = outcome.cell
    left_out = sum(skipped(entry) for entry in outcome.steps.values())
    parts = ["WRONG: " + ", ".join(outcome.wrong) if outcome.wrong else "ok"]
    parts += [f"excused: {', '.join(outcome.excused)}"] if outcome.excused else []
    parts += [f"{left_out} not possible"] if left_out else []
    print(
        f"{cell.client:<11}{cell.server:<23}{cell.transport:<6}{cell.era:<6}"
        f"{len(outcome.steps):>3} steps {outcome.seconds:6.1f} s  {'; '.join(parts)}",
        flush=True,
    )
    for step, problem in outcome.wrong.items():
        print(f"    {step}: {problem}", flush=True)
    if verbose:
        for step, entry in outcome.steps.items():
            print(f"    . {step}: {json.dumps(entry, ensure_ascii=False)[:300]}")


def _explain(outcomes: list[Outcome]) -> None:
    """The excuses that were used, and those whose steps were made in the cells that ran, and went well."""
    used = {excuse for outcome in outcomes for excuse in outcome.excused.values()}
    made = [(outcome.cell, step) for outcome in outcomes for step, entry in outcome.steps.items() if not skipped(entry)]
    for excuse in EXCUSES:
        if excuse in used:
            print(f"excused: {excuse}")
        elif not excuse.sometimes and any(excuse.covers(cell, step) for cell, step in made):
            print(f"an excuse was not needed: {excuse}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proof", action="store_true", help="only pairs without Gemel")
    parser.add_argument("--short", action="store_true", help="only the current SDKs and servers")
    parser.add_argument("--agents", action="store_true", help="only the clients of agent frameworks, on Gemel's server")
    parser.add_argument("--client", action="append", help="a name or a pattern; may be repeated, as the next three")
    parser.add_argument("--server", action="append")
    parser.add_argument("--transport", action="append", choices=("stdio", "http", "sse"))
    parser.add_argument("--era", action="append", choices=("2025", "2026"))
    parser.add_argument("--fixture", type=Path, default=HERE / "server.py", help="the server that `gemel run` is given")
    parser.add_argument("--jobs", type=int, default=3, help="cells at the same time; a good part of each is waiting")
    parser.add_argument("--faults", choices=("yes", "no", "only"), default="yes")
    parser.add_argument("--keep", type=Path, help="where reports, logs and journals are to stay")
    parser.add_argument("-v", "--verbose", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    chosen = _arguments()
    keep: Path = (chosen.keep or Path(tempfile.mkdtemp(prefix="interop-"))).resolve()
    matrix = Matrix(locate(), keep, chosen.fixture, with_agents=chosen.agents)
    cells, unmatched = select(list(matrix.cells()), matrix, chosen)
    if unmatched or not cells:
        print(f"interop: FAILED: no cell matches {', '.join(unmatched) or '--proof'}")
        return 1
    groups = GROUPS.difference(OLD_SDKS, ("examples",)) if chosen.short else GROUPS
    install(frozenset({"node"}.union(cell.client for cell in cells)) if chosen.agents else groups)
    wrong: list[str] = []
    with ThreadPoolExecutor(chosen.jobs) as pool:
        if chosen.faults != "only":
            wrong += _matrix(matrix, cells, pool, chosen.verbose)
        if chosen.faults != "no" and not chosen.agents:
            wrong += faults.run_all(matrix, cells, pool)
    print(f"reports, logs and journals: {keep}")
    print(f"interop: FAILED: {'; '.join(wrong)}" if wrong else "interop: passed")
    return 1 if wrong else 0


def _matrix(matrix: Matrix, cells: list[Cell], pool: Executor, verbose: bool) -> list[str]:
    """Run the cells; returns those that went wrong."""
    begin, outcomes = time.monotonic(), []
    for outcome in pool.map(matrix.run, cells):
        _show(outcome, verbose)
        outcomes.append(outcome)
    _explain(outcomes)
    # As failed tests in CI: on a shared machine a step may be late by no fault of its own.
    failed = [outcome for outcome in outcomes if outcome.wrong]
    again = [matrix.run(outcome.cell) for outcome in failed]
    for first, second in zip(failed, again, strict=True):
        _show(second, verbose)
        if not second.wrong:
            step, problem = next(iter(first.wrong.items()))
            print(f"{FLAKY}{first.cell}, {step}: {problem}", flush=True)
    wrong = [str(outcome.cell) for outcome in again if outcome.wrong]
    steps = sum(len(outcome.steps) for outcome in outcomes)
    fine = len(cells) - len(wrong)
    took = time.monotonic() - begin
    print(f"matrix: {fine} of {len(cells)} cells without complaint, {steps} steps, {took:.0f} s", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
