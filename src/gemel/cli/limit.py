"""How a command that calls a server ends early: by its time limit, `--timeout`, or by SIGTERM.

The limit is that of the whole command: with starting and connecting, without the time in which a person is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from gemel.errors import CallTimeout
from gemel.timeouts import time_limit


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """Have SIGTERM do what Ctrl-C does inside the block: a server that the command has started ends with it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


async def within(work: Coroutine[Any, Any, int], options: argparse.Namespace) -> int:
    """Run a command within its `--timeout`. Returns its exit code.

    A login extends the limit, as does a question of a server. Both have limits of their own.

    Raises:
        CallTimeout: The time is over.
    """
    limit: asyncio.Timeout | None = None
    try:
        async with time_limit(options.timeout) as limit:
            return await work
    except TimeoutError as exc:
        if limit is None or not limit.expired():
            raise
        text = f"The command did not end within {options.timeout:g} seconds, which include starting the server and connecting"
        raise CallTimeout(text) from exc
