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
from typing import Any, TypeVar

from hinge.errors import HingeError, as_failure

ValueT = TypeVar("ValueT")

THREAD_NAME = "hinge-tool"
#: An idle thread ends after so many seconds.
IDLE_SECONDS = 10.0


class _ThreadCall(asyncio.Future[Any]):
    """A function that a thread calls, for the one task that awaits this.

    It is handed over when the task waits for it: with all that is left to do for the task done, the thread is not held up.
    The thread resumes the task itself, one turn of the event loop sooner than a callback of the future would.

    Args:
        hand_over: Gives the call to a thread, which does `run()` and then `resume()`.
        function: What is called, with the arguments that follow and the context variables of now.
    """

    __slots__ = ("_context", "_hand_over", "_resume", "_run")

    def __init__(
        self, hand_over: Callable[[_ThreadCall], None], function: Callable[..., Any], /, *arguments: Any, **named: Any
    ) -> None:
        super().__init__()
        self._hand_over = hand_over
        self._run = functools.partial(contextvars.copy_context().run, function, *arguments, **named)

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: contextvars.Context | None = None) -> None:
        """Called by the task, once it waits; it may not raise then."""
        self._resume, self._context = fn, context
        try:
            self._hand_over(self)
        except RuntimeError as exc:  # no thread can be started
            self.set_exception(exc)
            self.get_loop().call_soon(fn, self, context=context)

    def cancel(self, msg: Any | None = None) -> bool:
        """Called by the task that is cancelled. Returns False if the function has returned."""
        if not super().cancel(msg):
            return False
        self.get_loop().call_soon(self._resume, self, context=self._context)
        return True

    def run(self) -> None:
        """Call the function in this thread, unless nobody waits any more."""
        if self.cancelled():
            return
        result, error = _outcome(self._run)
        try:
            if error is None:
                self.set_result(result)
            else:
                self.set_exception(as_failure(error))
        except asyncio.InvalidStateError:
            return  # cancelled meanwhile

    def resume(self) -> None:
        """Let the task go on, from the thread."""
        if self.cancelled():
            return
        try:
            self.get_loop().call_soon_threadsafe(self._resume, self, context=self._context)
        except RuntimeError:
            return  # the loop is closed


def _outcome(run: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Call a function. The traceback of its error refers to this frame, so nothing here refers to the error."""
    try:
        return run(), None
    except BaseException as exc:
        return None, exc


class Threads:
    """Up to `limit` threads, started when needed; further calls wait in a queue."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._threads = 0
        #: The queues of the threads that wait for a call. The one that waits last is given the next: the others can end.
        self._idle: list[queue.SimpleQueue[_ThreadCall]] = []
        self._waiting: deque[_ThreadCall] = deque()

    async def run(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Call `function(**arguments)` in a thread, with the caller's context variables; a cancelled wait drops the result."""
        return await _ThreadCall(self._hand_over, function, **arguments)

    def _hand_over(self, call: _ThreadCall) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().put(call)
            elif self._threads < self._limit:
                threading.Thread(target=self._work, args=(call,), name=THREAD_NAME, daemon=True).start()
                self._threads += 1
            else:
                self._waiting.append(call)

    def _work(self, call: _ThreadCall | None) -> None:
        given: queue.SimpleQueue[_ThreadCall] = queue.SimpleQueue()
        while call is not None:
            call.run()
            following = self._next(given)
            call.resume()  # last: it wakes the event loop, which then waits for this thread to let go of the interpreter
            call = following  # the one before may be large, and the next may be long in coming
            if call is None:
                call = self._wait(given)

    def _next(self, given: queue.SimpleQueue[_ThreadCall]) -> _ThreadCall | None:
        """The next call that waits for a thread. If there is none, this thread can be given one."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._idle.append(given)
            return None

    def _wait(self, given: queue.SimpleQueue[_ThreadCall]) -> _ThreadCall | None:
        """Wait for the next call of this thread. Returns None if there was none for `IDLE_SECONDS`."""
        try:
            return given.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                if given not in self._idle:
                    return given.get_nowait()  # it arrived while the wait timed out
                self._idle.remove(given)
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
        calls: queue.SimpleQueue[_ThreadCall | None] = queue.SimpleQueue()

        @functools.wraps(function)
        async def callback(*arguments: Any, **named: Any) -> Any:
            return await _ThreadCall(calls.put, function, *arguments, **named)

        future = self._start(make(callback))
        future.add_done_callback(lambda _: calls.put(None))
        while (call := calls.get()) is not None:
            call.run()
            call.resume()
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
