"""A call enters no more Python functions than `benchmarks/ceilings.py` allows; instructions are counted by `make bench-quick`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.source import ROOT
from tests.wire_watch import VARIABLES

pytest.importorskip("uvloop")

from benchmarks import ceilings


def test_calls_enter_no_more_functions_than_allowed() -> None:
    """In a process of its own: what else is imported can lengthen the path."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "benchmarks.ceilings", "functions"]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(" functions each, at most ") == len(ceilings.ROWS)
    assert " modules of Gemel, at most " in done.stdout


def test_clients_that_wait_take_no_more_bytes_than_allowed() -> None:
    """In a process of its own, as above."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "benchmarks.ceilings", "bytes"]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(" bytes each, at most ") == len(ceilings.HELD)


@pytest.mark.parametrize("unit", ceilings.UNITS)
def test_what_exceeds_its_ceiling_is_named_with_how_to_look_at_it(unit: str) -> None:
    rows = ceilings.rows_of(unit)
    counts = {row.path: float(getattr(row, unit)) for row in rows}
    assert not list(ceilings.exceeded(counts, unit))
    counts[rows[0].path] *= 1.5
    (line,) = ceilings.exceeded(counts, unit)
    assert line.startswith(f"{rows[0].title}: ")
    assert f"ceiling of {getattr(rows[0], unit):,} (+50.0%)" in line
    assert ("; see `python -m benchmarks.profile http`" in line) == (unit != "bytes")


@pytest.mark.parametrize("unit", ceilings.START)
def test_a_start_that_imports_more_is_named(unit: str) -> None:
    most = ceilings.START[unit]
    assert not list(ceilings.start_exceeded(most, unit))
    (line,) = ceilings.start_exceeded(most + 1, unit)
    assert f"at most {most:,}; see `python -X importtime" in line


def _inner() -> None:
    """A function that is entered."""


@pytest.mark.parametrize("times", [0, 3])
def test_each_function_that_is_entered_is_counted(times: int) -> None:
    counter = ceilings.FunctionCounter()
    try:
        counter.count = 0
        for _ in range(times):
            _inner()
        assert counter.count == times
    finally:
        counter.close()
