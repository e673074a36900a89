"""Runs a test under asyncio and under uvloop, each time on a loop of its own that must be left without tasks."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
if sys.platform != "win32":
    import uvloop

    FACTORIES["uvloop"] = uvloop.new_event_loop


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The async test once on each event loop; it fails if it leaves tasks behind. `tests.leftovers` finds the rest."""

    @functools.wraps(test)
    def run(loop_name: str, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=FACTORIES[loop_name]) as runner:
            runner.run(_and_nothing_else(test(**fixtures)))

    parameters = list(inspect.signature(test).parameters.values())
    loop_name = inspect.Parameter("loop_name", inspect.Parameter.KEYWORD_ONLY)
    changed: Any = run
    changed.__signature__ = inspect.Signature([*parameters, loop_name])
    del changed.__wrapped__
    marked: Callable[..., None] = pytest.mark.parametrize("loop_name", list(FACTORIES))(run)
    return marked


async def _and_nothing_else(test: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(30):
        await test
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left behind: {left}"


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (the tests look from outside, there is nothing to be told by)
            await asyncio.sleep(0.001)
