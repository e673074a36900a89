"""What a call costs, in counts that other work on the machine does not change, each with a ceiling 5 % above what is written
here: `python -m benchmarks.ceilings`.

`functions` counts the Python functions that are entered per call, of Gemel and of the libraries that it uses, and the modules
that a start imports; it takes seconds. `instructions` counts what is executed in user mode, by valgrind, per call and for a start;
it takes about a minute. `bytes` counts what Python allocates for clients that wait, without the sockets; it takes seconds. The
exit code is 1 if a row is above its ceiling.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import gc
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import uvloop

from benchmarks.cases import PROGRAMS
from benchmarks.installing import ROOT
from benchmarks.instructions import COUNT, VALGRIND
from benchmarks.paths import PATHS, STREAMS, WAITING, listed_server
from benchmarks.wire import call
from benchmarks.wire import check as check_answer
from tools.ci import LEFT_OUT

ResultT = TypeVar("ResultT")

#: How far a count may rise above the one in the tables. When a count falls, or rises for something that is worth it, write the
#: new one into its table.
ROOM = 0.05


def ceiling(count: int) -> int:
    """The most that is allowed where the table has this count."""
    return math.ceil(count * (1 + ROOM))


class Row(NamedTuple):
    """A path of `benchmarks.paths`, and what it costs."""

    path: str
    title: str
    #: Python functions entered, and instructions executed, each time.
    functions: int
    instructions: int
    #: How often it is done before counting, and how often it is counted.
    warm: int = 100
    calls: int = 300
    #: On this event loop.
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop


#: The functions are at most as many on every Python; newer ones enter fewer. The instructions are those of BUILD.
ROWS = (
    Row("http", "HTTP stateless", 58, 209_500),
    Row("http_varied", "the calls of four clients, varied", 59, 263_800),
    Row("http_repeated", "the same clients, repeated", 59, 234_400),
    Row("session", "HTTP session", 87, 241_800),
    Row("session_events", "the same, answered by a stream", 137, 358_000),
    Row("memory", "in memory", 88, 212_900),
    Row("memory_asyncio", "the same, on asyncio's loop", 115, 240_700, loop=asyncio.new_event_loop),
    Row("client", "our client over HTTP", 80, 168_500),
    Row("post", "its floor, a raw POST", 30, 77_400),
    Row("stdio", "stdio", 46, 178_600),
    Row("sync", "sync tool, over HTTP", 86, 248_900),
    Row("list", "listing 1,000 tools", 1_101, 38_510_000, 5, 20),
    Row("register", "registering 1,000 tools", 390_400, 890_000_000, 0, 1),
    Row("text", "1 MB of text", 93, 15_020_000, 2, 10),
    Row("fan_out", f"a change told to {STREAMS} streams", 1_039, 2_130_000, 10, 30),
    Row("fan_out_sessions", f"the same told to {STREAMS} sessions", 3_524, 6_080_000, 10, 30),
)
UNITS = ("functions", "instructions", "bytes")


class Held(NamedTuple):
    """Clients that wait, of `benchmarks.paths`, and the bytes that each takes."""

    path: str
    title: str
    bytes: int


#: Objects are larger in a Python without the global lock.
_UNLOCKED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
HELD = (
    Held("connections", "idle HTTP connection", 793 if _UNLOCKED else 768),
    Held("sessions", "HTTP session that waits", 2_877 if _UNLOCKED else 2_699),
    Held("streams", "stream of changes that waits", 6_030 if _UNLOCKED else 5_900),
)
#: Clients that wait before counting, those that are counted, and seconds until they have freed what they do not need: more
#: than a quarter of `limits.keep_alive`, the period in which a server looks after its sessions.
FEW, MANY, SETTLED = 100, 600, 4.5

#: From the start of a server over stdio to the end of its process after one answer: the modules of Gemel that are imported,
#: on every Python, and the instructions.
START = {"functions": 144, "instructions": 588_800_000}
#: The Python whose instructions are in the tables.
BUILD = ("CPython", "3.11", "x86_64")
#: In Python 3.12 and newer these are no functions.
_INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")
_HARNESS = str(Path(__file__).parent)


def exceeded(counts: Mapping[str, float], unit: str) -> Iterator[str]:
    """Describe the rows that are above their ceilings.

    Args:
        counts: What was counted, by path.
        unit: "functions", "instructions" or "bytes".
    """
    for row in rows_of(unit):
        most, count = ceiling(getattr(row, unit)), counts[row.path]
        if count > most:
            more = f"{count - most:,.0f} more than its ceiling of {most:,} ({count / most - 1:+.1%})"
            hint = f"; see `python -m benchmarks.profile {row.path}`" if isinstance(row, Row) else ""
            yield f"{row.title}: {count:,.0f} {unit} each, {more}{hint}"


def rows_of(unit: str) -> Sequence[Row | Held]:
    """The rows that have a ceiling in this unit."""
    return HELD if unit == "bytes" else ROWS


# ---------------------------------------------------------------- functions


def _run(row: Row, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine on the loop of this row."""
    with asyncio.Runner(loop_factory=row.loop) as runner:
        return runner.run(work)


class FunctionCounter:
    """Counts the Python functions that are entered in any thread, from the next threads on."""

    def __init__(self) -> None:
        self.count = 0
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name not in _INLINED and not code.co_filename.startswith(_HARNESS):
            self.count += 1

    def close(self) -> None:
        """Count no more."""
        sys.setprofile(None)
        threading.setprofile(None)


async def functions(row: Row) -> int:
    """The least of several times: a timer may run during one of them."""
    counter = FunctionCounter()
    try:
        async with PATHS[row.path]() as one:
            counts = []
            for _ in range(min(row.warm, 10) + min(row.calls, 10)):
                counter.count = 0
                await one()
                counts.append(counter.count)
            return min(counts[min(row.warm, 10) :])
    finally:
        counter.close()


def count_functions(rows: Sequence[Row]) -> dict[str, float]:
    """Count for these rows."""
    return {row.path: _run(row, functions(row)) for row in rows}


# ---------------------------------------------------------------- bytes


async def held(row: Held) -> float:
    """The difference of many clients and few."""
    async with WAITING[row.path]() as more:
        await more(FEW)
        gc.collect()
        tracemalloc.start()
        try:
            await more(MANY)
            await asyncio.sleep(SETTLED)
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / MANY
        finally:
            tracemalloc.stop()


def count_bytes(rows: Sequence[Held]) -> dict[str, float]:
    """Count for these rows."""
    return {row.path: uvloop.run(held(row)) for row in rows}


# ---------------------------------------------------------------- instructions


def count_instructions(rows: Sequence[Row]) -> dict[str, float]:
    """Count for these rows, in one process of valgrind, whose forks are counted one by one."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*VALGRIND, f"--log-file={folder}/%p", sys.executable, "-m", "benchmarks.ceilings", "--forks", folder]
        for row in rows:
            command += ["--row", row.path]
        environment = dict(os.environ, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}", PYTHONHASHSEED="0")
        done = subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        counts: dict[str, float] = json.loads(done.stdout)
        return counts


def _run_forks(folder: Path, rows: Sequence[Row]) -> dict[str, float]:
    """Do each path rarely and often, in forks; the difference is what it costs, without what was imported and made before."""
    listed_server()

    def forked(row: Row, calls: int) -> int:
        pid = os.fork()
        if not pid:
            _run(row, _repeat(row, calls))
            os._exit(0)
        os.waitpid(pid, 0)
        found = COUNT.search((folder / str(pid)).read_text())
        if found is None:
            raise SystemExit(f"{row.title}: valgrind counted nothing")
        return int(found[1].replace(",", ""))

    return {row.path: (forked(row, row.warm + row.calls) - forked(row, row.warm)) / row.calls for row in rows}


async def _repeat(row: Row, calls: int) -> None:
    async with PATHS[row.path]() as one:
        for _ in range(calls):
            await one()


def why_not() -> str | None:
    """Why instructions can't be held against the ceilings here."""
    if shutil.which("valgrind") is None:
        return "valgrind is not here"
    build = (platform.python_implementation(), ".".join(platform.python_version_tuple()[:2]), platform.machine())
    return None if build == BUILD else f"the ceilings are for {' '.join(BUILD)}, this is {' '.join(build)}"


# ---------------------------------------------------------------- start


def start_server(under: Sequence[str] = (), options: Sequence[str] = ()) -> str:
    """Start a server over stdio and let it answer one call; what was written to standard error, by Python or `under`."""
    command = [*under, sys.executable, *options, str(PROGRAMS / "gemel_server.py"), "stdio"]
    environment = dict(os.environ, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}", PYTHONHASHSEED="0")
    done = subprocess.run(command, env=environment, input=call(3) + b"\n", capture_output=True, check=True)
    check_answer(done.stdout, 3)
    return done.stderr.decode()


def count_start(unit: str) -> int:
    """Modules of Gemel that a start imports, or its instructions."""
    if unit == "functions":
        names = (line.rpartition("|")[2].strip() for line in start_server(options=["-X", "importtime"]).splitlines())
        return sum(name.partition(".")[0] == "gemel" for name in names)
    compileall.compile_dir(ROOT / "src", quiet=1)  # as for installed packages
    found = COUNT.search(start_server(under=VALGRIND))
    if found is None:
        raise SystemExit("valgrind counted nothing")
    return int(found[1].replace(",", ""))


def start_exceeded(count: int, unit: str) -> Iterator[str]:
    """Describe a start that is above its ceiling."""
    most = ceiling(START[unit])
    if count > most:
        what = "modules of Gemel are imported" if unit == "functions" else "instructions are executed"
        yield f"stdio start: {count:,} {what}, at most {most:,}; see `python -X importtime -c 'import gemel.server.run'`"


# ---------------------------------------------------------------- command


def check(unit: str) -> list[str]:
    """Count, print the counts, and return what is above its ceiling, twice: timers may run while a call is counted."""
    count: Any = {"functions": count_functions, "instructions": count_instructions, "bytes": count_bytes}[unit]
    rows = rows_of(unit)
    counts: dict[str, float] = count(rows)
    again = [row for row in rows if counts[row.path] > ceiling(getattr(row, unit))]
    counts |= {path: min(number, counts[path]) for path, number in (count(again) if again else {}).items()}
    for row in rows:
        print(
            f"{row.title:30}{counts[row.path]:>14,.0f} {unit} each, at most {ceiling(getattr(row, unit)):,}", flush=True
        )
    above = list(exceeded(counts, unit))
    if unit in START:
        start, what = count_start(unit), "modules of Gemel" if unit == "functions" else unit
        print(f"{'stdio, start to answer':30}{start:>14,} {what}, at most {ceiling(START[unit]):,}", flush=True)
        above += start_exceeded(start, unit)
    return above


def main() -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ceilings", description=__doc__)
    parser.add_argument("unit", nargs="?", choices=UNITS, help="what to count; all of them by default")
    parser.add_argument("--row", action="append", help=argparse.SUPPRESS)
    parser.add_argument("--forks", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.forks:
        print(json.dumps(_run_forks(options.forks, [row for row in ROWS if row.path in options.row])))
        return 0
    above: list[str] = []
    for unit in [options.unit] if options.unit else UNITS:
        if unit == "instructions" and (reason := why_not()) is not None:
            print(f"{LEFT_OUT}ceilings of instructions: {reason}")
        else:
            above += check(unit)
    print("\n".join(above) or "nothing is above its ceiling")
    return 1 if above else 0


if __name__ == "__main__":
    raise SystemExit(main())
