"""Sync functions in worker threads: bounded in number, and never keeping the process from ending.

The threads are daemons: a function that never returns can't be stopped.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hinge.errors import as_failure

THREAD_NAME = "hinge-tool"
#: An idle thread ends after so many seconds.
IDLE_SECONDS = 10.0

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Threads:
    """Up to `limit` threads, started when needed; further calls wait in a queue."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: deque[_Job] = deque()
        self._ready = threading.Condition()
        self._threads = 0
        self._idle = 0

    async def run(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Call `function(**arguments)` in a thread, with the caller's context variables; a cancelled wait drops the result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        with self._ready:
            self._jobs.append((loop, future, lambda: context.run(function, **arguments)))
            if len(self._jobs) <= self._idle:
                self._ready.notify()
            elif self._threads < self._limit:
                self._threads += 1
                threading.Thread(target=self._work, name=THREAD_NAME, daemon=True).start()
        return await future

    def _work(self) -> None:
        while True:
            with self._ready:
                while not self._jobs:
                    # A job that arrives while the wait times out is taken, too.
                    self._idle += 1
                    woken = self._ready.wait(timeout=IDLE_SECONDS)
                    self._idle -= 1
                    if not woken and not self._jobs:
                        self._threads -= 1
                        return
                loop, future, job = self._jobs.popleft()
            if future.cancelled():
                continue
            try:
                result, error = job(), None
            except BaseException as exc:
                result, error = None, exc
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(as_failure(error))
