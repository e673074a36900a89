"""A thread that detects a blocked event loop and names the blocking function in the log.

It schedules a callback in the loop at intervals, and reads the loop's stack when the callback does not run in time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gemel.loops import PerLoop
from gemel.server.features.prompts import RegisteredPrompt
from gemel.server.features.resources import RegisteredResource
from gemel.server.features.tools import RegisteredTool
from gemel.signals import observe_stops
from gemel.telemetry import measure

logger = logging.getLogger("gemel")

#: A loop that was only suspended, because the process was stopped for a while, answers within so many seconds.
_GRACE = 0.05
#: The same at the end of the process, where clean-up may keep the loop busy.
_EXIT_GRACE = 0.5

#: The innermost file of the stack of an idle loop.
_IDLE = ("selectors.py", "asyncio/base_events.py", "asyncio/runners.py", "asyncio/events.py", "uvloop/__init__.py")


class Watchdog:
    """Watches the running event loop; see `watch`."""

    def __init__(self) -> None:
        self.users = 0
        self._loop = asyncio.get_running_loop()
        self._limit = 0.0
        self._thread_id = threading.get_ident()
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gemel-watchdog", daemon=True)

    def start(self, limit: float) -> None:
        """Begin to watch, with this limit in seconds."""
        self._limit = limit
        self._thread.start()

    def stop(self) -> None:
        """End; the thread is gone a moment later."""
        self._stop.set()
        self._answered.set()

    def _run(self) -> None:
        while not self._stop.wait(self._limit):
            self._answered.clear()
            start = time.perf_counter()
            try:
                self._loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:
                return  # the loop is closed
            if not self._answered.wait(self._limit):
                stack = list(_stack(self._thread_id))
                if not self._answered.wait(_GRACE) and not self._stop.is_set():
                    self._report(stack)
                    self._answered.wait()
            if not self._stop.is_set():
                measure("gemel.event_loop.lag", time.perf_counter() - start)

    def _report(self, stack: list[FrameType]) -> None:
        if not stack or stack[0].f_code.co_filename.endswith(_IDLE):
            return
        logger.warning(
            "%s holds up the event loop for more than %g s, at %s: no other request is served meanwhile. Await what waits, or make "
            "the function a plain `def`, which runs in a thread",
            _blocking_item(stack) or "Something",
            self._limit,
            _place(stack),
        )


_watched = PerLoop(Watchdog, abandon=lambda watchdog, why: watchdog.stop())


def watch(limit: float) -> None:
    """Watch the running loop, or go on doing so; `limit` in seconds, 0 for not at all."""
    if _watched.find() is None and limit <= 0:
        return
    watchdog = _watched.here()
    if not watchdog.users:
        watchdog.start(limit)
    watchdog.users += 1


def unwatch() -> None:
    """Undo one `watch`; the last one ends it."""
    watchdog = _watched.find()
    if watchdog is None:
        return
    watchdog.users -= 1
    if not watchdog.users:
        _watched.forget()
        watchdog.stop()


@contextmanager
def end_blocked_process(seconds: float) -> Iterator[None]:
    """Inside the context, end the process if its event loop is blocked `seconds` after a stop was requested.

    A stop is requested by a signal, or by the end of standard input if that is what is served.

    For a process that only serves: nothing else can stop a function that never returns to the event loop. In a thread besides
    the main one it does nothing, since the process is somebody else's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    serving = threading.get_ident()

    def watch_exit(loop: asyncio.AbstractEventLoop) -> None:
        arguments = (loop, serving, seconds)
        threading.Thread(target=_end_if_blocked, args=arguments, name="gemel-exit", daemon=True).start()

    with observe_stops(watch_exit):
        yield


def _end_if_blocked(loop: asyncio.AbstractEventLoop, thread_id: int, seconds: float) -> None:
    time.sleep(seconds)
    while True:
        answered = threading.Event()
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return  # the loop is closed: the process is about to end
        if not answered.wait(_EXIT_GRACE):
            logger.critical("%s: the process is ended without clean-up", describe_thread(thread_id))
            os._exit(1)
        time.sleep(_EXIT_GRACE)


def describe_thread(thread_id: int) -> str:
    """Name what blocks the event loop that runs in a thread: the tool and the line."""
    stack = list(_stack(thread_id))
    place = _place(stack) if stack else "an unknown place"
    return f"{_blocking_item(stack) or 'Something'} blocks the event loop, at {place}"


def _stack(thread_id: int) -> Iterator[FrameType]:
    """The frames of a thread, the innermost first."""
    frames = getattr(sys, "_current_frames", None)  # not in every implementation of Python
    frame = frames().get(thread_id) if frames is not None else None
    while frame is not None:
        yield frame
        frame = frame.f_back


def _blocking_item(stack: list[FrameType]) -> str | None:
    """The tool, prompt or resource whose function is on the stack."""
    for frame in stack:
        if frame.f_code.co_filename.startswith(_HERE):
            for entry in map(frame.f_locals.get, ("self", "entry")):
                if isinstance(entry, RegisteredTool | RegisteredPrompt | RegisteredResource):
                    return f"{entry.item.kind.removesuffix('s').title()} {entry.item.name!r}"
    return None


def _place(stack: list[FrameType]) -> str:
    """The innermost line that is neither in Gemel nor in Python's own library."""
    libraries = (_HERE, sys.prefix, sys.base_prefix, "<frozen")
    own = next((frame for frame in stack if not frame.f_code.co_filename.startswith(libraries)), stack[0])
    return f"{own.f_code.co_filename}:{own.f_lineno} in {own.f_code.co_name}()"


_HERE = __file__.rpartition("server")[0]
