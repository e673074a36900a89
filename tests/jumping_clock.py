"""An event loop that never sleeps: when nothing can happen before a timer, the clock jumps to that timer.

So tests of limits use the real limits, wait for nothing, and never depend on how fast the machine is. Only for tests
without sockets, processes and threads: the clock doesn't wait for them.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any


class _Selector(selectors.SelectSelector):
    """Waits for nothing, and counts the seconds that it didn't wait."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing will ever happen: the test waits for itself")
        if not ready and timeout is not None and timeout > 0:
            self.skipped += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """The loop; `time` goes on by jumps alone."""

    def __init__(self) -> None:
        self._jumps = _Selector()
        super().__init__(self._jumps)

    def time(self) -> float:
        """Seconds since the loop began, real time left out."""
        return self._jumps.skipped

    def skip(self, seconds: float) -> None:
        """Let time pass as if something kept the loop busy."""
        self._jumps.skipped += seconds


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes on by `skip` alone: for tests of limits that need sockets, on a machine of any speed."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        """The seconds that were skipped."""
        return self._now

    def skip(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


def in_no_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The async test on a jumping loop; it fails if it leaves a task behind."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(_alone(test, fixtures))

    changed: Any = run
    changed.__signature__ = inspect.signature(test)
    del changed.__wrapped__
    found: Callable[..., None] = changed
    return found


async def _alone(test: Callable[..., Coroutine[Any, Any, None]], fixtures: Mapping[str, Any]) -> None:
    await test(**fixtures)
    for _ in range(10):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left behind: {left}"
