"""How a server ends: the first SIGINT or SIGTERM asks it to stop, the second kills the process. And whose an interrupt is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

logger = logging.getLogger("hinge")

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[str], None], before_exit: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While inside: the first signal calls `stop(name)` in the running loop; the next one kills the process.

    The second works even when the loop is stuck, because it is taken outside of it; `before_exit` is called first. In a
    thread other than the main one, where Python allows no signal handlers, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    asked = False

    def take(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            before_exit()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        asked = True
        loop.call_soon_threadsafe(stop, signal.Signals(number).name)

    before: dict[signal.Signals, Any] = {number: signal.signal(number, take) for number in ENDING}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


def is_ctrl_c(exc: BaseException) -> bool:
    """Whether this may be somebody's Ctrl-C. If not, it is an exception that the function itself raised.

    Python raises KeyboardInterrupt in whatever is running only where nobody else took SIGINT: `stop_on_signals` has, and
    so has `asyncio.run`, which cancels its main task.
    """
    return (
        isinstance(exc, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
