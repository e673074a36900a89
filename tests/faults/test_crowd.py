"""Ten thousand calls at once on one client and one server: everybody's own answer, in order, in bounded memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.faults.crowd import ROUTES
from tests.source import ROOT

#: KiB that one call in flight may take, its client's and its server's part and its two tasks together …
EACH = 16.0
#: … and that a second crowd may take on top of the first.
AGAIN = 1.0


@pytest.mark.parametrize("route", ROUTES)
def test_a_crowd_of_calls_keeps_its_order_in_bounded_memory(route: str) -> None:
    """BASE-05: ids rise in the order of the calls and are answered to whom they belong."""
    count = 10_000 if route.endswith("2026") else 4_000
    words = [sys.executable, "-m", "tests.faults.crowd", route, str(count)]
    # What they all say alike is held against the schema in other tests; here nothing listens in, or that would be measured.
    environment = {name: value for name, value in os.environ.items() if name != "GEMEL_TEST_TAP"}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True, env=environment)
    seen = json.loads(done.stdout)
    assert seen["own"]
    assert seen["ids"]
    assert seen["left"] == 0
    if not route.startswith("http"):  # there each call has a connection of its own
        assert seen["served"]
        assert seen["ended"]
    assert seen["each"] < EACH
    assert seen["again"] < AGAIN
