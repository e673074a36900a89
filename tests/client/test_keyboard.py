"""Lines from a terminal, a pipe, and a loop that can't watch either."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hinge.client.keyboard import LONGEST, Interrupted, Keyboard, Left
from tests.typist import Typist


@pytest.fixture
async def typist() -> AsyncIterator[Typist]:
    async with Typist() as typist:
        yield typist


async def typed(typist: Typist, keys: str, keyboard: Keyboard | None = None) -> str:
    """What one line comes to."""
    keyboard = keyboard or Keyboard(typist.keyboard)
    with keyboard.attended(fresh=True):
        line = asyncio.create_task(keyboard.line(""))
        await asyncio.sleep(0)
        typist.type(keys)
        return await line


async def test_the_terminal_edits_the_line(typist: Typist) -> None:
    assert await typed(typist, "wrong\x15helo\x7flo, Åse\n") == "hello, Åse"


@pytest.mark.parametrize("keys", ["\x03", "half\x03", "\x04", "half\x04\x04"])
async def test_ctrl_c_and_ctrl_d_leave(typist: Typist, keys: str) -> None:
    with pytest.raises(Left):
        await typed(typist, keys)
    assert await typed(typist, "next\n") == "next"


@pytest.mark.parametrize(
    ("keys", "word"), [("a\x1b[Db\n", "arrow keys"), ("x" * 5000 + "\n", f"at most {LONGEST} bytes")]
)
async def test_what_the_terminal_would_spoil_is_refused(typist: Typist, keys: str, word: str) -> None:
    """Arrow keys come as escape sequences; a terminal cuts a long line, and doesn't say so."""
    with pytest.raises(ValueError, match=word):
        await typed(typist, keys)


async def test_something_more_urgent_takes_the_keyboard(typist: Typist) -> None:
    keyboard = Keyboard(typist.keyboard)
    line = asyncio.create_task(keyboard.line(""))
    await asyncio.sleep(0)
    keyboard.interrupt()
    with pytest.raises(Interrupted):
        await line
    keyboard.interrupt()  # nobody reads: nothing happens
    assert await typed(typist, "x\n", keyboard) == "x"


async def test_a_terminal_that_is_gone_is_left(typist: Typist) -> None:
    keyboard = Keyboard(typist.keyboard)
    typist.hang_up()
    with pytest.raises(Left):
        await keyboard.line("")


async def test_lines_of_a_pipe_come_one_by_one_and_the_last_needs_no_end() -> None:
    here, there = os.pipe()
    with os.fdopen(here) as stream:
        keyboard = Keyboard(stream)
        os.write(there, b"one\ntwo\nthree")
        os.close(there)
        with keyboard.attended(fresh=False):
            assert [await keyboard.line("") for _ in range(3)] == ["one", "two", "three"]
            with pytest.raises(Left):
                await keyboard.line("")


async def test_a_loop_that_cannot_watch_a_terminal_reads_in_a_thread(
    typist: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows. A line that nobody waits for any more is for the next who asks: nothing is lost."""

    def refuse(*arguments: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
    keyboard = Keyboard(typist.keyboard)
    assert await typed_in_thread(keyboard, typist, "one\n") == "one"
    line = asyncio.create_task(keyboard.line(""))
    await asyncio.sleep(0)
    keyboard.interrupt()
    with pytest.raises(Interrupted):
        await line
    assert await typed_in_thread(keyboard, typist, "two\n") == "two"
    with pytest.raises(Left):
        await typed_in_thread(keyboard, typist, "\x04")


async def typed_in_thread(keyboard: Keyboard, typist: Typist, keys: str) -> str:
    line = asyncio.create_task(keyboard.line(""))
    await asyncio.sleep(0)
    typist.type(keys)
    return await line
