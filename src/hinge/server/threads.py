"""Sync functions in worker threads: bounded in number, never keeping the process from ending; and what they run on the loop.

The threads are daemons: a function that never returns can't be stopped.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from hinge.errors import HingeError, as_failure

ValueT = TypeVar("ValueT")

THREAD_NAME = "hinge-tool"
#: An idle thread ends after so many seconds.
IDLE_SECONDS = 10.0

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Threads:
    """Up to `limit` threads, started when needed; further calls wait in a queue."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._threads = 0
        #: Threads that wait for a job and have not been given one.
        self._idle = 0
        #: Jobs of threads that were idle, and jobs for which no thread is free.
        self._given: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._waiting: deque[_Job] = deque()

    async def run(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Call `function(**arguments)` in a thread, with the caller's context variables; a cancelled wait drops the result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        job: _Job = (loop, future, lambda: context.run(function, **arguments))
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._given.put(job)
            elif self._threads < self._limit:
                threading.Thread(target=self._work, args=(job,), name=THREAD_NAME, daemon=True).start()
                self._threads += 1
            else:
                self._waiting.append(job)
        return await future

    def _work(self, job: _Job | None) -> None:
        while job is not None:
            loop, future, call = job
            if not future.cancelled():
                _run_job(call, future, loop)
            del job, loop, future, call  # they may be large, and the next job may be long in coming
            job = self._next()

    def _next(self) -> _Job | None:
        """Wait for the next job of this thread. Returns None if there was none for `IDLE_SECONDS`."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._idle += 1
        try:
            return self._given.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                with suppress(queue.Empty):
                    return self._given.get_nowait()  # it arrived while the wait timed out
                self._idle -= 1
                self._threads -= 1
                return None


class LoopCalls:
    """Coroutines that other threads run on an event loop, for one call: the threads wait for their results.

    Args:
        loop: The event loop.
        is_over: Whether the call is over: then nothing more is run.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, is_over: Callable[[], bool]) -> None:
        self._loop = loop
        self._is_over = is_over
        self._waiting: set[Future[Any]] = set()
        self._closed = False

    def run(self, coroutine: Coroutine[Any, Any, ValueT]) -> ValueT:
        """Run a coroutine and wait for its result. Raises HingeError on an event loop, CancelledError if the call is over."""
        return self._start(coroutine).result()

    def run_with_callback(
        self,
        make: Callable[[Callable[..., Awaitable[Any]]], Coroutine[Any, Any, ValueT]],
        function: Callable[..., Any],
    ) -> ValueT:
        """Run `make(callback)` as `run` does; what it calls as `callback` is `function`, run in the thread that waits here."""
        jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

        @functools.wraps(function)
        async def callback(*arguments: Any, **named: Any) -> Any:
            done: asyncio.Future[Any] = self._loop.create_future()
            run = contextvars.copy_context().run
            jobs.put(lambda: _run_job(lambda: run(function, *arguments, **named), done, self._loop))
            return await done

        future = self._start(make(callback))
        future.add_done_callback(lambda _: jobs.put(None))
        while (job := jobs.get()) is not None:
            job()
        return future.result()

    def _start(self, coroutine: Coroutine[Any, Any, ValueT]) -> Future[ValueT]:
        if _on_a_loop():
            coroutine.close()
            raise HingeError("ctx.sync would block the event loop here: await the method of ctx itself")
        if self._closed or self._is_over():
            coroutine.close()
            raise CancelledError
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        self._cancel_if_closed(future)
        return future

    def _cancel_if_closed(self, future: Future[Any]) -> None:
        """The call may have ended in another thread meanwhile."""
        if self._closed:
            future.cancel()

    def close(self) -> None:
        """Cancel what is running: the call is over."""
        self._closed = True
        for future in list(self._waiting):
            future.cancel()


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_job(job: Callable[[], Any], future: asyncio.Future[Any], loop: asyncio.AbstractEventLoop) -> None:
    """Run a job in this thread, and give its result to a future of the event loop."""
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
