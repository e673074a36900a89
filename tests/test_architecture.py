"""What docs/ARCHITECTURE.md says about the code is so: the path of one call, the layers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal

import pytest

from gemel import Server
from tests.serving import Way, connected
from tests.source import ROOT
from tests.test_layering import LAYERS
from tests.wire_watch import VARIABLES

ARCHITECTURE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")

_ITEM = re.compile(r"^\d\. (?P<first>.*(?:\n   .*)*)", re.MULTILINE)
_NAME = re.compile(r"`(\w+\.\w+)` \(`")

server = Server("one call")


@server.tool
async def reached() -> str:
    """The end of the way."""
    return "here"


def documented_way() -> list[set[str]]:
    """The hops of the list in the document, each with the names that it has on one or another transport."""
    section = ARCHITECTURE.partition("## The path of one call")[2].partition("\n## ")[0]
    hops = [set(_NAME.findall(item["first"])) for item in _ITEM.finditer(section)]
    assert len(hops) == 7
    assert hops.pop() == set(), "the last hop is the user's function"
    return [*hops, {"reached"}]


@contextmanager
def watched(names: set[str]) -> Iterator[list[str]]:
    """Which of these functions are entered, in the order in which each is first entered."""
    entered: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_qualname in names and frame.f_code.co_qualname not in entered:
            entered.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("route", ["memory", "unix", "http"])
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_call_takes_the_documented_way(route: Way, era: Literal["2025", "2026"]) -> None:
    """Seven hops, the same on every route."""
    way = documented_way()
    async with connected(server, route, era=era) as client:
        with watched(set().union(*way)) as entered:
            assert (await client.call_tool("reached")).text == "here"
    assert len(entered) == len(way), entered
    for name, hop in zip(entered, way, strict=True):
        assert name in hop, entered


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the numbers are those of Python 3.11")
def test_a_call_switches_between_files_no_more_often_than_the_table_says() -> None:
    """From the first byte to the last, on sockets and pipes. The process that is measured is not watched by these tests."""
    unwatched = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "tools.call_path"]
    done = subprocess.run(command, cwd=ROOT, env=unwatched, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_layers_are_the_documented_ones() -> None:
    section = ARCHITECTURE.partition("## Who may import whom")[2]
    line = next(line for line in section.splitlines() if line.startswith("visible →"))
    found = [tuple(re.split(r" │ |, ", part)) for part in line.split(" → ")]
    assert [set(layer) - {"__main__"} for layer in LAYERS] == [set(layer) for layer in found]
