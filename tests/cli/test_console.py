"""What the commands draw while something happens: a line of progress that disturbs no question."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import AsyncIterator

import pytest

from hinge import LogParams, ProgressParams
from hinge.cli.console import Console
from tests.typist import Typist


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
        logging.getLogger("hinge").warning("careful")
    await typist.sees(f"{'━' * 20} 9/4 on it")
    await typist.sees('\ninfo: {"a":1}\nhinge: careful\n')
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
