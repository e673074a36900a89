"""Each extra has a program that `make extras` runs where nothing else is installed."""

from __future__ import annotations

from tests.extras.run import EXTRAS, PROGRAMS, program_of


def test_each_extra_has_a_program_that_uses_it() -> None:
    assert sorted(map(program_of, EXTRAS)) == sorted(PROGRAMS.glob("*.py"))
