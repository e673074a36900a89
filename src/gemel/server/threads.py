"""Sync functions in worker threads: bounded in number, never keeping the process from ending; and what they run on the loop.

The threads are daemons: a function that never returns can't be stopped.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import sys
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeAlias, TypeVar

from gemel.errors import GemelError, as_failure
from gemel.loops import on_fork
from gemel.protocol.records import Call

ValueT = TypeVar("ValueT")

THREAD_NAME = "gemel-tool"
#: An idle thread ends after so many seconds.
IDLE_SECONDS = 10.0

_TAKEN = object()


class _ThreadJob:
    """A function that a thread calls, for the one task that waits for its result.

    Args:
        function: What is called, with the context variables of now.
        arguments: Its arguments by name.
        served: The call that it is a part of.
    """

    __slots__ = ("_arguments", "_error", "_function", "_future", "_loop", "_result", "_served", "_variables")

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any], served: Call | None) -> None:
        self._function = function
        self._arguments = arguments
        self._variables = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._result: Any = None
        self._error: BaseException | None = None
        self._served = served

    async def result(self) -> Any:
        """Wait for what the function returns. Raises what it raises."""
        await self._future
        error, self._error = self._error, None  # its traceback leads to this job
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error

    def run(self) -> None:
        """Call the function in this thread, unless the wait for it was cancelled."""
        if not self._future.cancelled():
            self._result, error = _outcome(self._variables, self._function, self._arguments)
            self._error = None if error is None else as_failure(error)
            del error

    def finish(self) -> None:
        """Let the task go on, from the thread."""
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError:  # the loop is closed: nothing else uses the call
            self.release()

    def _finish(self) -> None:
        self.release()
        if not self._future.done():
            self._future.set_result(None)

    def hold(self) -> None:
        """Hold the params of the call until the thread has finished, or `release`."""
        if self._served is not None:
            self._served.hold()

    def release(self) -> None:
        """Hold the params of the call no longer."""
        if self._served is not None:
            self._served.release()


def _outcome(
    variables: contextvars.Context, function: Callable[..., Any], arguments: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """Call a function. The traceback of its error refers to this frame, so nothing here refers to the error."""
    try:
        return variables.run(function, **arguments), None
    except BaseException as exc:
        return None, exc


#: The next job of one thread.
_Inbox: TypeAlias = "queue.SimpleQueue[_ThreadJob]"


class Threads:
    """Up to `limit` threads, started when needed; further calls wait in a queue."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begin()
        on_fork(self._begin)

    def _begin(self) -> None:
        """Begin without threads, which a forked process does not have."""
        self._lock = threading.Lock()
        self._threads = 0
        #: The threads that wait for a job. The one that waits last is given the next: the others can end.
        self._idle: list[_Inbox] = []
        self._waiting: OrderedDict[_ThreadJob, None] = OrderedDict()

    async def run(self, function: Callable[..., Any], arguments: dict[str, Any], served: Call | None = None) -> Any:
        """Call `function(**arguments)` in a thread, with the caller's context variables.

        A wait that is cancelled drops the result; if the function runs already, it holds the call until it returns.

        Args:
            function: What is called.
            arguments: Its arguments by name.
            served: The call that is being served.
        """
        if "anyio" in sys.modules:
            from gemel.server.anyio_threads import reaching_loop

            function = reaching_loop(function)
        job = _ThreadJob(function, arguments, served)
        self._hand_over(job)
        job.hold()  # the loop releases it, later
        try:
            return await job.result()
        except asyncio.CancelledError:
            self._forget(job)
            raise

    def _hand_over(self, job: _ThreadJob) -> None:
        with self._lock:
            if self._idle:
                inbox = self._idle.pop()
            elif self._threads < self._limit:
                inbox = queue.SimpleQueue()
                threading.Thread(target=self._work, args=(inbox,), name=THREAD_NAME, daemon=True).start()
                self._threads += 1
            else:
                self._waiting[job] = None
                return
        inbox.put(job)  # without the lock, which the thread takes when it has called the function

    def _forget(self, job: _ThreadJob) -> None:
        """Take a job that nobody waits for out of the queue, unless a thread has it already."""
        with self._lock:
            taken = self._waiting.pop(job, _TAKEN) is _TAKEN
        if not taken:
            job.release()

    def _work(self, inbox: _Inbox) -> None:
        job: _ThreadJob | None = inbox.get()
        while job is not None:
            job.run()
            following = self._next(inbox)  # first: the task that goes on may have the next job already
            job.finish()
            job = following  # the one before may be large, and the next may be long in coming
            if job is None:
                job = self._wait(inbox)

    def _next(self, inbox: _Inbox) -> _ThreadJob | None:
        """The next job that waits for a thread. If there is none, this thread can be given one."""
        with self._lock:
            if self._waiting:
                return self._waiting.popitem(last=False)[0]
            self._idle.append(inbox)
            return None

    def _wait(self, inbox: _Inbox) -> _ThreadJob | None:
        """Wait for the next job of this thread. Returns None if there was none for `IDLE_SECONDS`."""
        try:
            return inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    self._threads -= 1
                    return None
            return inbox.get()  # it is being handed over


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
        """Run a coroutine and wait for its result. Raises GemelError on an event loop, CancelledError if the call is over."""
        return self._start(coroutine).result()

    def run_with_callback(
        self,
        make: Callable[[Callable[..., Awaitable[Any]]], Coroutine[Any, Any, ValueT]],
        function: Callable[..., Any],
    ) -> ValueT:
        """Run `make(callback)` as `run` does; what it calls as `callback` is `function`, run in the thread that waits here."""
        jobs: queue.SimpleQueue[_ThreadJob | None] = queue.SimpleQueue()

        @functools.wraps(function)
        async def callback(*arguments: object, **named: object) -> Any:
            job = _ThreadJob(functools.partial(function, *arguments), named, None)
            jobs.put(job)
            return await job.result()

        future = self._start(make(callback))
        future.add_done_callback(lambda _: jobs.put(None))
        while (job := jobs.get()) is not None:
            job.run()
            job.finish()
        return future.result()

    def _start(self, coroutine: Coroutine[Any, Any, ValueT]) -> Future[ValueT]:
        if _on_a_loop():
            coroutine.close()
            raise GemelError("ctx.sync would block the event loop here: await the method of ctx itself")
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
