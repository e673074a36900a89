"""What the commands draw while something happens: a line of progress that disturbs no question."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gemel import LogParams, ProgressParams
from gemel.cli.console import Console
from gemel.cli.remaining_time import Pace
from tests.typist import Typist, at_the_terminal


@pytest.fixture
async def typist() -> AsyncIterator[Typist]:
    async with Typist() as typist:
        yield typist


def console_of(typist: Typist, monkeypatch: pytest.MonkeyPatch, term: str = "xterm") -> Console:
    """A console whose standard input and error are the typist's; only for this phase of a test, as pytest captures."""
    monkeypatch.setattr(sys, "stdin", typist.keyboard)
    monkeypatch.setattr(sys, "stderr", typist.screen)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("NO_COLOR", "1")
    return Console(argparse.Namespace(no_input=False))


def far(progress: float) -> ProgressParams:
    return ProgressParams(progress_token=1, progress=progress, total=4, message="on it")


async def test_progress_is_one_line_that_makes_room_for_others(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    with console_of(typist, monkeypatch) as console:
        console.progress(far(1))
        console.progress(far(9))
        console.log(LogParams(level="info", data={"a": 1}))
        logging.getLogger("gemel").warning("careful")
    await typist.sees(f"{'━' * 20} 9/4 on it")
    await typist.sees('\ninfo: {"a":1}\ngemel: careful\n')
    assert "1/4 on it" in typist.seen
    assert "\x1b[2K" in typist.raw[: typist.raw.index("info:")], "the bar is not removed"


async def test_progress_leaves_a_prompt_whole(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    console = console_of(typist, monkeypatch)
    line = asyncio.create_task(console.terminal.read_line("you> "))
    await typist.sees("you>")
    console.progress(far(1))
    console.clear()
    await typist.sees("1/4 on it\nyou>")
    typist.type("done\n")
    assert await line == "done"


async def test_a_dumb_terminal_gets_lines(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    console_of(typist, monkeypatch, "dumb").progress(far(1))
    await typist.sees("1/4 on it\n")
    assert "\x1b" not in typist.raw


@pytest.mark.parametrize(
    ("progress", "total", "seconds", "described"),
    [
        (5, 20, 2.5, "2.0/s, 0:08 left"),
        (50, 100, 2.0, "25/s, 0:02 left"),
        (1, 10, 30.0, "2.0/min, 4:30 left"),
        (1, 10, 3600.0, "1.0/h, 9:00:00 left"),
        (1, 1000, 86400.0, "1.0/day, 999 days left"),
        (0.5, 1, 2.0, "0:02 left"),
        (5, None, 2.5, "2.0/s"),
        (20, 20, 10.0, "2.0/s"),
        (30, 20, 10.0, "3.0/s"),
        (5, 20, 0.5, ""),
        (0, 20, 9.0, ""),
    ],
)
def test_the_pace_of_a_call(progress: float, total: float | None, seconds: float, described: str) -> None:
    pace = Pace()
    assert pace.describe(0, total, 100.0) == ""
    assert pace.describe(progress, total, 100.0 + seconds) == described


def test_progress_that_goes_back_begins_again() -> None:
    pace = Pace()
    pace.describe(8, 10, 0.0)
    assert pace.describe(2, 10, 5.0) == ""
    assert pace.describe(4, 10, 7.0) == "1.0/s, 0:06 left"


SLOW = """
import asyncio
from gemel import Context, Server

server = Server("slow")

@server.tool
async def walk(ctx: Context) -> str:
    for step in range(3):
        await ctx.report_progress(step, 4, "on it")
        await asyncio.sleep(0.6)
    return "done"
"""


@pytest.mark.parametrize("term", ["xterm", "dumb"])
async def test_a_terminal_shows_the_pace(term: str, tmp_path: Path) -> None:
    """After a second; with and without a bar."""
    (tmp_path / "slow.py").write_text(SLOW)
    command = [sys.executable, "-m", "gemel", "call", f"{tmp_path}/slow.py", "walk"]
    async with at_the_terminal(command, {"TERM": term}) as (typist, _):
        await typist.sees(" left) on it")
    assert ("━" in typist.seen) == (term == "xterm")
