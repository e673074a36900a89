"""Requests to stop: the first SIGINT or SIGTERM requests it, the second kills the process. Others can observe requests."""

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

logger = logging.getLogger("gemel")

#: The signals that request a stop. SIGBREAK is Ctrl-Break on Windows.
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name))

#: Called with the event loop when a stop is requested, even while the loop is blocked.
_observers: list[Callable[[asyncio.AbstractEventLoop], None]] = []


@contextlib.contextmanager
def observe_stops(observer: Callable[[asyncio.AbstractEventLoop], None]) -> Iterator[None]:
    """Inside the context, call `observer` with the event loop when a stop is requested."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def announce_stop(loop: asyncio.AbstractEventLoop) -> None:
    """Tell the observers that a stop is requested. From any thread, even while the loop is blocked."""
    for observer in _observers:
        observer(loop)


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[str], None], before_exit: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Handle SIGINT and SIGTERM inside the context: the first signal calls `stop`, the next one kills the process.

    The second signal works even if the event loop is blocked. Outside the main thread, where Python allows no signal
    handlers, nothing is changed.

    Args:
        stop: Called with the name of the signal in the running event loop.
        before_exit: Called before the process is killed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    requested = False

    def take(number: int, _frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            before_exit()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        requested = True
        announce_stop(loop)
        loop.call_soon_threadsafe(stop, signal.Signals(number).name)

    before: dict[signal.Signals, Any] = {number: signal.signal(number, take) for number in ENDING}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


def is_ctrl_c(exc: BaseException) -> bool:
    """Whether an exception may come from Ctrl-C; if not, the running function raised it.

    Python raises KeyboardInterrupt in the running code only if nothing else handles SIGINT, as `stop_on_signals` and
    `asyncio.run` do.
    """
    return (
        isinstance(exc, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
