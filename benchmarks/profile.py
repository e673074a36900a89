"""Where the time of one call goes in Gemel: `python -m benchmarks.profile http|session|stdio|memory|… [--lines 40]`.

Drives the path in one process without sockets, so that only our own code is seen: CPU time per call, Python functions
entered per call, objects left to the garbage collector per call, and the functions that cost most.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import time
from collections.abc import Iterator
from typing import Any

import uvloop

from benchmarks.installing import ROOT
from benchmarks.paths import PATHS, One

#: How often a path is taken by default, if it is not a call of a small tool.
_CALLS = {"list": 10, "register": 5, "text": 500}


async def profile(one: One, lines: int, calls: int) -> Iterator[str]:
    """Measure and describe."""

    async def many(count: int) -> None:
        for _ in range(count):
            await one()

    await many((calls + 1) // 2)
    best = float("inf")
    for _ in range(5):
        begin = time.process_time()
        await many(calls)
        best = min(best, (time.process_time() - begin) / calls)
    garbage = await _garbage(one, min(calls, 100))
    profiler = cProfile.Profile()
    profiler.enable()
    await many(calls)
    profiler.disable()
    return _described(best, garbage, sorted(_rows(profiler, calls), reverse=True), lines)


def _described(best: float, garbage: float, rows: list[tuple[float, float, float, str]], lines: int) -> Iterator[str]:
    entered = sum(row[2] for row in rows if not row[3].startswith("~"))
    yield f"{best * 1e6:.1f} µs CPU per call (the harness's own share included)"
    yield f"{entered:.0f} Python functions entered, {sum(row[2] for row in rows):.0f} with built-in ones"
    yield f"{garbage:.0f} objects per call in cycles, left to the garbage collector\n"
    yield "under the profiler, µs per call:   own     cum   times  function"
    for own, cumulated, times, place in rows[:lines]:
        yield f"{own:38.2f} {cumulated:7.2f} {times:7.2f}  {place}"


def _rows(profiler: cProfile.Profile, calls: int) -> list[tuple[float, float, float, str]]:
    rows = []
    # `stats` is what pstats is made of: place -> (calls without recursion, calls, own, cumulated, callers).
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = vars(pstats.Stats(profiler))["stats"]
    for (file, line, name), (_, times, own, cumulated, _) in stats.items():
        place = f"{file.removeprefix(f'{ROOT}/src/gemel/')}:{line} {name}"
        rows.append((own / calls * 1e6, cumulated / calls * 1e6, times / calls, place))
    return rows


async def _garbage(one: One, calls: int) -> float:
    gc.collect()
    gc.disable()
    for _ in range(calls):
        await one()
    found = gc.collect()
    gc.enable()
    return found / calls


async def measure(path: str, lines: int, calls: int) -> Iterator[str]:
    """Take the path and describe it."""
    async with PATHS[path]() as one:
        return await profile(one, lines, calls)


def main() -> None:
    """Read the path and run it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("path", choices=PATHS)
    parser.add_argument("--lines", type=int, default=30)
    parser.add_argument("--calls", type=int, help="how often it is profiled (default: 4000, less for large ones)")
    options = parser.parse_args()
    calls = options.calls or _CALLS.get(options.path, 4000)
    print("\n".join(uvloop.run(measure(options.path, options.lines, calls))))


if __name__ == "__main__":
    main()
