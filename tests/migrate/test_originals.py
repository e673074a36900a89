"""The comments of the programs are right about the originals: each runs in its own package's environment; for `make interop`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.peers import ROOT, install, locate
from tests.migrate.expectations import PROGRAMS, expected_of

#: The beginning of a program's name to the group of tests/interop/peers.toml that it runs in.
ENVIRONMENTS = {"fastmcp": "fastmcp", "mcp1": "mcp-1.26", "mcp2": "peers"}
GROUPS = ("fastmcp", "fastmcp-2", "mcp-1.26", "peers")
REQUIRED = "REQUIRE_PEERS" in os.environ


def programs(group: str) -> Iterator[Path]:
    for path in sorted(PROGRAMS.glob("*_*.py")):
        expected = expected_of(path)
        own = expected.first("packages") or ENVIRONMENTS.get(path.stem.partition("_")[0])
        if own == group and expected.first("only") != "rewrite":
            yield path


@pytest.mark.timeout(300)  # one process runs up to fifty programs, and imports a package that takes seconds
@pytest.mark.parametrize("group", GROUPS)
def test_the_originals_do_what_their_comments_say(group: str) -> None:
    if REQUIRED:
        install(frozenset({group}))
    python = locate().python(group)
    if not python.exists():
        pytest.skip(f"{group} isn't installed: `make interop`")
    paths = list(programs(group))
    assert paths
    command = [str(python), str(Path(__file__).with_name("original.py")), *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
