"""What is above its ceiling is named; `make bench-quick` counts."""

from __future__ import annotations

import pytest

pytest.importorskip("uvloop")

from benchmarks import ceilings


@pytest.mark.parametrize("unit", ceilings.UNITS)
def test_what_exceeds_its_ceiling_is_named_with_how_to_look_at_it(unit: str) -> None:
    rows = ceilings.rows_of(unit)
    most = ceilings.ceiling(getattr(rows[0], unit))
    counts = {row.path: float(getattr(row, unit)) for row in rows} | {rows[0].path: float(most)}
    assert not list(ceilings.exceeded(counts, unit))
    counts[rows[0].path] = most * 1.5
    (line,) = ceilings.exceeded(counts, unit)
    assert line.startswith(f"{rows[0].title}: ")
    assert f"ceiling of {most:,} (+50.0%)" in line
    assert ("; see `python -m benchmarks.profile http`" in line) == (unit != "bytes")


@pytest.mark.parametrize("unit", ceilings.START)
def test_a_start_that_imports_more_is_named(unit: str) -> None:
    most = ceilings.ceiling(ceilings.START[unit])
    assert not list(ceilings.start_exceeded(most, unit))
    (line,) = ceilings.start_exceeded(most + 1, unit)
    assert f"at most {most:,}; see `python -X importtime" in line


def test_a_ceiling_leaves_five_percent_of_room() -> None:
    assert [ceilings.ceiling(count) for count in (20, 30, 1_000)] == [21, 32, 1_050]


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
