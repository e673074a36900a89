"""`gemel bench`, as real processes: what is counted, that callers are concurrent, and what is printed of failures."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemel import Client
from gemel.cli.measurement import Latencies
from tests.quick_commands import QUICK
from tests.typist import at_the_terminal

SERVER = """
import asyncio, os, time
from gemel import Context, Server, ToolError

server = Server("shop", version="3")
together = asyncio.Barrier(4)
now = most = calls = 0

@server.tool
async def meet() -> int:
    "Return when four calls are here at once."
    global now, most, calls
    now, calls = now + 1, calls + 1
    most = max(most, now)
    await together.wait()
    now -= 1
    return calls

@server.tool
async def counted() -> list[int]:
    return [most, calls, os.getpid()]

@server.tool
async def fail(number: int) -> str:
    global calls
    calls += 1
    if calls % 2:
        raise ToolError(f"no luck\\nwith {number} {calls}")
    return "luck"

@server.tool
async def compute(ctx: Context) -> str:
    await ctx.info("computing")
    await ctx.report_progress(1, 2)
    end = time.process_time() + 0.002
    while time.process_time() < end:
        pass
    return "done"

@server.tool
async def die() -> str:
    os._exit(3)
"""
ERAS = ("2025", "2026")
LATENCIES = ["min", "p50", "p90", "p99", "p99.9", "max"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(SERVER)
    return f"{tmp_path}/shop.py"


@pytest.fixture
def url(file: str) -> Iterator[str]:
    """The server over HTTP, as a process of its own."""
    command = [sys.executable, "-m", "gemel", "run", file, "--http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[-1]
        finally:
            process.terminate()
            process.communicate()


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return QUICK.run("bench", *words)


def figures(*words: str) -> dict[str, Any]:
    """The figures of a command whose calls all succeed."""
    done = bench(*words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("era", ERAS)
async def test_as_many_calls_are_made_as_asked_for_by_concurrent_callers(url: str, era: str) -> None:
    result = figures(url, "meet", "--era", era, "--concurrency", "4", "--calls", "40", "--warm-up", "0")
    async with Client(url) as client:
        most, calls, _ = (await client.call_tool("counted")).data
    assert (most, calls) == (4, 40)
    (run,) = result["runs"]
    assert result == {"server": {"name": "shop", "version": "3"}, "tool": "meet", "concurrency": 4, "runs": [run]}
    assert (run["calls"], run["failed"], run["complete"], run["errors"]) == (40, 0, True, [])
    assert run["callsPerSecond"] == pytest.approx(40 / run["seconds"], rel=0.1)
    assert list(run["latency"]) == LATENCIES
    assert 0 < run["latency"]["min"] <= run["latency"]["p50"] <= run["latency"]["p99"] <= run["latency"]["max"]
    assert run["client"]["cpuPerCall"] > 0
    assert run["server"] is None  # another machine for all that is known


def test_both_eras_stand_side_by_side(file: str) -> None:
    words = (file, "--era", "both", "--seconds", "0.05", "--warm-up", "0.01", "--concurrency", "2")
    text, encoded = bench(*words), figures(*words)
    assert text.returncode == 0, text.stderr
    lines = text.stdout.splitlines()
    assert lines[:3] == ["shop 3: ping/server/discover, 2 concurrent callers", "", lines[2]]
    assert re.fullmatch("protocol +2025-11-25  2026-07-28", lines[2])
    rows = {line[:26].rstrip(): line[26:].split() for line in lines[3:]}
    assert all(len(cells) == 2 for cells in rows.values())
    assert {f"latency {name}, ms" for name in LATENCIES} | {"server CPU per call, µs", "client CPU, cores"} < set(rows)
    assert [(run["protocolVersion"], run["method"]) for run in encoded["runs"]] == [
        ("2025-11-25", "ping"),
        ("2026-07-28", "server/discover"),
    ]
    assert all(run["seconds"] >= 0.05 and run["calls"] for run in encoded["runs"])


ON_LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell")


@ON_LINUX
@pytest.mark.parametrize("target", ["{file}", "/bin/sh -c '{python} -m gemel run {file}; true'"])
def test_the_cost_of_a_program_and_of_those_that_it_starts_is_read(file: str, target: str) -> None:
    """Log messages and progress of the calls are not asked for, so that they are not printed."""
    words = (target.format(file=file, python=sys.executable), "compute", "--calls", "20", "--warm-up", "0.01")
    (run,) = figures(*words)["runs"]
    assert run["server"]["cpuPerCall"] >= 2000
    assert run["server"]["peakMemory"] > 10_000_000
    assert run["latency"]["max"] >= 2


@ON_LINUX
async def test_the_cost_of_a_server_with_a_url_is_read_of_the_process_that_is_named(url: str) -> None:
    async with Client(url) as client:
        pid = (await client.call_tool("counted")).data[2]
    (run,) = figures(url, "compute", "--calls", "20", "--warm-up", "0", "--pid", str(pid))["runs"]
    assert run["server"]["cpuPerCall"] >= 2000
    assert run["server"]["peakMemory"] > 10_000_000


def test_failures_are_counted_by_their_messages(file: str) -> None:
    words = (file, "fail", "number=7", "--calls", "100", "--concurrency", "1", "--warm-up", "0")
    text, encoded = bench(*words), bench(*words, "--json")
    assert text.returncode == encoded.returncode == 1
    (run,) = json.loads(encoded.stdout)["runs"]
    assert (run["calls"], run["failed"]) == (100, 50)
    assert run["errors"][:2] == [
        {"message": "other errors", "count": 30},
        {"message": "no luck with 7 1", "count": 1},
    ]
    assert len(run["errors"]) == 21
    assert re.search("^failed +50$", text.stdout, re.MULTILINE)
    assert "\nfailed calls in protocol 2026-07-28:\n      30  other errors\n       1  no luck with 7 1\n" in text.stdout


def test_a_server_that_dies_is_a_failure(file: str) -> None:
    done = bench(file, "die", "--calls", "2", "--concurrency", "1", "--warm-up", "0", "--json")
    assert done.returncode == 1
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["calls"], run["failed"], run["latency"], run["server"]) == (2, 2, None, None)
    assert "exited with code 3" in run["errors"][0]["message"]


async def test_ctrl_c_prints_what_was_measured_so_far(file: str) -> None:
    command = [sys.executable, "-m", "gemel", "bench", file, "compute", "--seconds", "600", "--era", "both"]
    async with at_the_terminal(command, columns=90) as (typist, process):
        await typist.sees(" calls, ")
        await typist.sees("/s")
        typist.type("\x03")
        table = await typist.sees("client CPU, cores")
    assert process.returncode == 0
    assert re.search("protocol +2025-11-25\n", table), "the other era is not begun"
    assert "Traceback" not in typist.seen


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["{file}", "met"], 1, "gemel: Unknown tool: met; did you mean meet?"),
        (["{file}", "fail", "7"], 1, "gemel: '7' is not an argument: write KEY=VALUE, KEY:=JSON, or KEY=@FILE"),
        (["x", "--concurrency", "0"], 2, "gemel: argument --concurrency: use a whole number, 1 or more"),
        (["x", "--calls", "0"], 2, "gemel: argument --calls: use a whole number, 1 or more"),
        (["x", "--seconds", "nan"], 2, "gemel: argument --seconds: use a number of seconds, 0 or more"),
    ],
)
def test_a_mistake_gets_one_line(file: str, words: list[str], code: int, error: str) -> None:
    done = bench(*(word.format(file=file) for word in words))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert done.stderr.startswith(error)


def test_latencies_are_exact_to_half_a_percent_in_bounded_memory() -> None:
    chance, latencies = random.Random(7), Latencies()
    values = sorted(chance.lognormvariate(-7, 2) for _ in range(20_000))
    for value in values:
        latencies.add(value)
    for part in (0.0, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = values[max(0, math.ceil(part * 20_000) - 1)]
        assert latencies.percentile(part) == pytest.approx(exact, rel=0.005)
    described = latencies.describe()
    assert described is not None
    assert described["min"] == pytest.approx(values[0] * 1000, abs=1e-4)
    assert described["max"] == pytest.approx(values[-1] * 1000, abs=1e-4)
    assert len(latencies._buckets) < 2100


def test_a_single_latency_is_every_percentile() -> None:
    latencies = Latencies()
    assert latencies.describe() is None
    latencies.add(0.25)
    assert latencies.describe() == dict.fromkeys(LATENCIES, 250.0)
