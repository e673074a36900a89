"""One `tools/call` passes through few files, and switches rarely between them; `python -m tests.call_path -v` lists them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.source import ROOT
from tests.wire_watch import VARIABLES

#: Files and switches: the aim, and the present numbers, which are only lowered.
AIMS = {"stateless POST": (15, 32), "handshake session": (19, 42), "line channel": (13, 28), "HTTP client": (10, 20)}
CEILINGS = {
    "stateless POST": (15, 30),
    "handshake session": (17, 32),
    "line channel": (13, 24),
    "HTTP client": (9, 16),
}


@pytest.fixture(scope="module")
def counts() -> dict[str, tuple[int, int]]:
    """Files and switches of each route, measured in a fresh process that nobody listens to."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "tests.call_path"]
    printed = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(printed)
    lines = re.findall(r"^(.*?) +(\d+) files +(\d+) switches", printed, re.MULTILINE)
    return {name: (int(files), int(switches)) for name, files, switches in lines}


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="newer Pythons begin tasks at once, which switches more often"
)
@pytest.mark.parametrize("route", CEILINGS)
def test_a_call_passes_through_few_files(counts: dict[str, tuple[int, int]], route: str) -> None:
    files, switches = counts[route]
    assert files <= CEILINGS[route][0], f"{files} files; the aim is {AIMS[route][0]}"
    assert switches <= CEILINGS[route][1], f"{switches} switches; the aim is {AIMS[route][1]}"
