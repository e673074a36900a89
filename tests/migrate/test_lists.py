"""What a rewritten program lists equals what the original lists, in its own package's environment; for `make interop`.

`# differs: text` among the comments of a program names a difference that is meant.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.peers import install, locate
from tests.migrate.expectations import PROGRAMS, expected_of
from tests.migrate.test_originals import GROUPS, programs

pytest.importorskip("libcst")
from gemel.migrate import check, migrate_paths  # needs libcst
from gemel.migrate.check import CheckOutcome  # needs libcst

REQUIRED = "REQUIRE_PEERS" in os.environ
FILES = [(group, path) for group in GROUPS for path in programs(group)]


@pytest.mark.timeout(200)  # each imports a package that takes seconds
@pytest.mark.parametrize(("group", "path"), FILES, ids=[path.stem for _, path in FILES])
def test_a_rewritten_program_lists_the_same(group: str, path: Path) -> None:
    if REQUIRED:
        install(frozenset({group}))
    python = locate().python(group)
    if not python.exists():
        pytest.skip(f"{group} isn't installed: `make interop`")
    files = [file for file in migrate_paths([path]) if file.diff]
    meant = expected_of(path).all("differs")
    for program in check.programs(files):
        for verdict in check.check(program, str(python)):
            assert verdict.outcome == CheckOutcome.SAME or any(text in verdict.text for text in meant), verdict.text


def test_each_program_has_its_own_library() -> None:
    assert {path.name for _, path in FILES} < {path.name for path in PROGRAMS.glob("*.py")}
