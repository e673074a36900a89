"""Measures Gemel, the official SDK and a bare floor side by side: `python -m benchmarks.run [--quick] [--check]`.

All contestants of a case run at the same time and are sampled in turn, round after round, so that whatever else the
machine does hits them alike. The figure to trust is CPU time per call.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import Case, Contestant, Running, Sample, all_cases
from benchmarks.clocks import spin
from benchmarks.figures import PAGE, spread, summary, table, today
from benchmarks.floors import QUICK, verdicts
from benchmarks.installing import CACHE, ROOT, WANTED, installed, peer_python
from tools.measured import write_measured

RESULTS = CACHE / "bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 if all went well, 1 if a floor was missed, 2 if Gemel could not be checked."""
    options = parse(arguments)
    ours = Path(sys.executable)
    peers = peer_python("peers")
    fastmcp = None if options.quick else peer_python("fastmcp")
    # As for installed packages: without it, each process would compile the sources anew where Python may not write bytecode.
    compileall.compile_dir(ROOT / "src", quiet=1)
    with_gemel = options.gemel if options.gemel is not None else gemel_runs(ours)
    cases = all_cases(peers, ours, with_gemel, fastmcp)
    if options.case:
        cases = [case for case in cases if case.key in options.case]
    disturbance: list[tuple[float, float]] = []
    results: dict[str, dict[str, Any]] = {}
    begin, load = time.time(), os.getloadavg()
    for case in cases:
        results[case.key] = measured(case, options, disturbance)
    versions = installed(peers, WANTED["peers"])
    if fastmcp is not None:
        versions |= installed(fastmcp, ["fastmcp"])
    noise = describe(disturbance, load, versions)
    print(f"{noise['words']}  {time.time() - begin:.0f} s in all.")
    if options.check:
        measure_again(cases, results, options, disturbance)
    if options.write:
        write_measured(PAGE, "versions", f"Versions: {', '.join(map(' '.join, versions.items()))}.")
    save(results, noise, versions, options)
    if not with_gemel:
        print("Gemel took no part: `from gemel import Server, Client` does not work yet (or --no-gemel).")
    worst = report(results, options.slack)
    return worst if options.check else 0


def measure_again(
    cases: Sequence[Case],
    results: dict[str, dict[str, Any]],
    options: argparse.Namespace,
    disturbance: list[tuple[float, float]],
) -> None:
    """Measure the cases that missed a floor up to twice more: on a shared machine a floor counts as missed the third time."""
    for _ in range(2):
        missed = {
            floor.case
            for floor, ratio, kept in verdicts(results, options.slack)
            if floor.binding and ratio is not None and not kept
        }
        for case in cases:
            if case.key in missed:
                print(f"{case.title}: missed a floor, measured again", flush=True)
                results[case.key] = measured(case, options, disturbance)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds, under 2 minutes in all")
    parser.add_argument("--check", action="store_true", help="end with 1 if Gemel misses a floor")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/performance.md")
    parser.add_argument("--case", action="append", help="only this case (repeatable): http, stdio_pipelined, …")
    parser.add_argument("--rounds", type=int, help="rounds per case (default 7, quick 3)")
    parser.add_argument("--seconds", type=float, help="length of one sample (default 2, quick 0.8)")
    parser.add_argument(
        "--gemel", action=argparse.BooleanOptionalAction, help="measure Gemel (default: if it can be imported)"
    )
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (3 if options.quick else 7)
    options.seconds = options.seconds or (0.8 if options.quick else 2.0)
    options.slack = QUICK if options.quick else 1.0
    return options


def gemel_runs(python: Path) -> bool:
    """Whether this checkout has a server and a client to measure."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "src"))
    command = [str(python), "-c", "from gemel import Server, Client; Server.http_app, Server.run"]
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


def measured(case: Case, options: argparse.Namespace, disturbance: list[tuple[float, float]]) -> dict[str, Any]:
    """The figures of a case, which are printed, and written into the page if that was asked for."""
    rows = summary(case, measure(case, options, disturbance))
    text = table(case, rows)
    print(text, end="\n\n", flush=True)
    if options.write:
        below = f"{today()}, {options.rounds} rounds of {options.seconds:g} s"
        write_measured(PAGE, case.key, f"{text}\n\n{below}.")
    return rows


def measure(case: Case, options: argparse.Namespace, disturbance: list[tuple[float, float]]) -> dict[str, list[Sample]]:
    """Start everybody, sample in turn (the order turns with the rounds), end everybody."""
    rounds: dict[str, list[Sample]] = {contestant.name: [] for contestant in case.contestants}
    running: list[tuple[Contestant, Running]] = []
    try:
        for contestant in case.contestants:
            running.append((contestant, case.start(contestant)))
        for number in range(options.rounds + (2 if case.one_shot else 0)):
            turn = number % len(running)
            disturbance.append(spin())
            for contestant, runner in running[turn:] + running[:turn]:
                rounds[contestant.name].append(runner.sample(options.seconds))
    finally:
        for _, runner in running:
            runner.close()
    return rounds


def describe(
    disturbance: Sequence[tuple[float, float]], load: tuple[float, float, float], versions: dict[str, str]
) -> dict[str, Any]:
    """What was measured, and how quiet the machine was: how often a fixed piece of work waited, how much its speed changed."""
    waits = [wall / cpu for wall, cpu in disturbance]
    speeds = [cpu for _, cpu in disturbance]
    words = (
        f"Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}.\n"
        f"Machine: {os.cpu_count()} cores, Python {platform.python_version()}; load {load[0]:.1f} at the start, "
        f"{os.getloadavg()[0]:.1f} at the end; a fixed piece of work took {max(waits):.2f} × its CPU time at worst, "
        f"and its CPU time varied by {max(speeds) / min(speeds):.2f} ×."
    )
    return {"words": words, "wall_over_cpu": spread(waits), "cpu_of_fixed_work": spread(speeds), "load": load}


def save(results: Any, noise: Any, versions: dict[str, str], options: argparse.Namespace) -> None:
    """The figures as JSON: the newest run, and one file per run beside it."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    document = {
        "time": stamp,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "python": sys.version,
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "versions": versions,
        "noise": noise,
        "cases": results,
    }
    text = json.dumps(document, indent=1)
    for name in ("latest.json", f"{stamp}.json"):
        (RESULTS / name).write_text(text)
    print(f"Figures: {RESULTS / 'latest.json'}")


def report(results: dict[str, dict[str, Any]], slack: float) -> int:
    """Print each floor with what was reached; the exit code says whether all are kept."""
    worst = 0
    for floor, ratio, kept in verdicts(results, slack):
        if floor.case not in results:
            continue
        if ratio is None:
            print(f"not measured  {floor.words}")
            worst = max(worst, 2)
        else:
            print(f"{'kept' if kept else 'MISSED':12}  {floor.words}: {ratio:.3f} (at most {floor.most * slack:g})")
            worst = worst if kept or not floor.binding else 1
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
