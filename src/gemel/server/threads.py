"""Sync functions in worker threads: bounded in number, never keeping the process from ending; and what they run on the loop.

The threads are daemons: a function that never returns can't be stopped.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import queue
import select
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar, cast

from gemel.errors import GemelError, as_failure
from gemel.loops import PerLoop, on_fork
from gemel.protocol.records import Call

ValueT = TypeVar("ValueT")

THREAD_NAME = "gemel-tool"
#: An idle thread ends after so many seconds.
IDLE_SECONDS = 10.0

_TAKEN = object()


class _Waker:
    """Resumes tasks of the running event loop from threads, as its `call_soon_threadsafe` does.

    That writes to a socket, from which loops of asyncio read twice. Where it can, this uses an eventfd, which is closed with
    the loop.
    """

    def __init__(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._descriptor: int | None = None
        self._calls: deque[_ThreadCall] = deque()
        if sys.platform == "linux" and isinstance(loop, asyncio.SelectorEventLoop):
            with suppress(OSError):  # no more descriptors
                self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                contextvars.Context().run(loop.add_reader, self._descriptor, self._resume_tasks)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def resume(self, call: _ThreadCall) -> None:
        """Let the task of a call go on, from the thread."""
        if self._descriptor is None:
            with suppress(RuntimeError):  # the loop is closed meanwhile
                self._loop.call_soon_threadsafe(call.resume_task)
            return
        self._calls.append(call)
        os.eventfd_write(self._descriptor, 1)

    def _resume_tasks(self) -> None:
        descriptor, calls = cast(int, self._descriptor), self._calls
        del self  # an error that is kept may keep this frame
        os.eventfd_read(descriptor)
        try:
            while calls:
                calls.popleft().resume_task()
        finally:
            if calls:  # the task was interrupted by Ctrl-C
                os.eventfd_write(descriptor, 1)


_wakers = PerLoop(_Waker)


class _ThreadCall(asyncio.Future[Any]):
    """A function that a thread calls, for the one task that awaits this.

    The thread resumes the task itself, one turn of the event loop sooner than a callback of the future would.

    Args:
        function: What is called, with the context variables of now.
        arguments: Its arguments by name.
        served: The call that it is a part of, whose params it keeps until it returns; None for none.
    """

    __slots__ = (
        "_arguments",
        "_context",
        "_error",
        "_function",
        "_handed_over",
        "_resume",
        "_served",
        "_variables",
        "_waker",
        "leave_queue",
    )

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any], served: Call | None) -> None:
        super().__init__()
        self._function = function
        self._arguments = arguments
        self._served = served
        #: While this waits for a thread: forgets it. Returns False if a thread has it already.
        self.leave_queue: Callable[[_ThreadCall], bool] | None = None
        self._variables = contextvars.copy_context()
        self._handed_over = False
        self._error: BaseException | None = None
        #: Resumes the task, once it waits.
        self._resume: Callable[[Any], object] | None = None
        self._waker: _Waker | None = None

    def hand_over(self, to: Callable[[_ThreadCall], None]) -> _ThreadCall:
        """Give this to a thread, which does `run()` and then `resume()`. It may be done when this returns: then no task waits."""
        to(self)
        self._handed_over = True
        return self

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: contextvars.Context | None = None) -> None:
        """Called by the task, once it waits."""
        self._resume, self._context = fn, context
        self._waker = _wakers.of(self.get_loop()) or _wakers.here()

    def cancel(self, msg: Any | None = None) -> bool:
        """Called by the task that is cancelled. Returns False if the function has returned."""
        served = self._served
        if served is not None:
            served.hold()  # before the thread can see that nobody waits
        if not super().cancel(msg):
            if served is not None:
                served.release()
            return False
        if self.leave_queue is not None and self.leave_queue(self) and served is not None:
            served.release()
        self.get_loop().call_soon(self.resume_task)
        return True

    def run(self) -> None:
        """Call the function in this thread, unless nobody waits any more."""
        if self.cancelled():
            return
        result, error = _outcome(self._variables, self._function, self._arguments)
        self._error = None if error is None else as_failure(error)
        del error
        with suppress(asyncio.InvalidStateError):  # cancelled meanwhile
            self.set_result(result)

    def result_or_error(self, result: Any) -> Any:
        """Raise what the function raised, which is not kept here: its traceback leads to this."""
        error, self._error = self._error, None
        if error is None:
            return result
        try:
            raise error
        finally:
            del error

    def resume(self) -> None:
        """Let the task go on, from the thread. While this is being handed over, it does not wait."""
        loop, waker, self._waker = self.get_loop(), self._waker, None  # an error that is kept may keep this
        if self.cancelled():
            if self._served is not None:
                try:
                    loop.call_soon_threadsafe(self._served.release)
                except RuntimeError:  # the loop is closed: nothing else uses the call
                    self._served.release()
            return
        if not self._handed_over or loop.is_closed():
            return
        if waker is not None:
            waker.resume(self)
            return
        with suppress(RuntimeError):  # the loop is closed meanwhile
            loop.call_soon_threadsafe(self.resume_task)

    def resume_task(self) -> None:
        """Let the task go on, from the loop, if it waits."""
        self._waker = None
        if self._resume is not None:
            assert self._context is not None
            self._context.run(self._resume, self)


def _outcome(
    variables: contextvars.Context, function: Callable[..., Any], arguments: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """Call a function. The traceback of its error refers to this frame, so nothing here refers to the error."""
    try:
        return variables.run(function, **arguments), None
    except BaseException as exc:
        return None, exc


class _Inbox:
    """The next call of one thread, which waits for it by a lock or by an eventfd.

    Who releases a lock holds the interpreter meanwhile, so that the thread that is woken has to wait again. Who writes to an
    eventfd lets go of it, which is dearer while other threads wait for it, too.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_ThreadCall] = queue.SimpleQueue()
        self._by_event = False
        self._descriptor: int | None = None
        if sys.platform == "linux":
            with suppress(OSError):  # no more descriptors
                self._descriptor = os.eventfd(0)
                self._event = select.poll()
                self._event.register(self._descriptor, select.POLLIN)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """The thread ends. An error that is kept may keep its last frame, and so this."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def open(self, *, alone: bool) -> None:
        """The thread waits from now on; `alone` if no other thread calls a function."""
        self._by_event = alone and self._descriptor is not None

    def put(self, call: _ThreadCall) -> None:
        self._calls.put(call)
        if self._by_event:
            os.eventfd_write(cast(int, self._descriptor), 1)

    def get(self, timeout: float | None = None) -> _ThreadCall:
        """Wait for the call. Raises `queue.Empty` after `timeout` seconds."""
        if self._by_event:
            if not self._event.poll(None if timeout is None else timeout * 1000):
                raise queue.Empty
            os.eventfd_read(cast(int, self._descriptor))
            return self._calls.get_nowait()
        return self._calls.get(timeout=timeout)


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
        #: The threads that wait for a call. The one that waits last is given the next: the others can end.
        self._idle: list[_Inbox] = []
        self._waiting: OrderedDict[_ThreadCall, None] = OrderedDict()

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
        call = _ThreadCall(function, arguments, served)
        return call.result_or_error(await call.hand_over(self._hand_over))

    def _hand_over(self, call: _ThreadCall) -> None:
        with self._lock:
            if self._idle:
                inbox = self._idle.pop()
            elif self._threads < self._limit:
                inbox = _Inbox()
                threading.Thread(target=self._work, args=(inbox,), name=THREAD_NAME, daemon=True).start()
                self._threads += 1
            else:
                call.leave_queue = self._forget
                self._waiting[call] = None
                return
        inbox.put(call)  # without the lock, which the thread takes when it has called the function

    def _forget(self, call: _ThreadCall) -> bool:
        """Take a call that nobody waits for out of the queue. Returns False if it is not in it any more."""
        with self._lock:
            return self._waiting.pop(call, _TAKEN) is None

    def _work(self, inbox: _Inbox) -> None:
        call: _ThreadCall | None = inbox.get()
        while call is not None:
            call.run()
            following = self._next(inbox)
            call.resume()  # last: it wakes the event loop, which then waits for this thread to let go of the interpreter
            call = following  # the one before may be large, and the next may be long in coming
            if call is None:
                call = self._wait(inbox)

    def _next(self, inbox: _Inbox) -> _ThreadCall | None:
        """The next call that waits for a thread. If there is none, this thread can be given one."""
        with self._lock:
            if self._waiting:
                return self._waiting.popitem(last=False)[0]
            self._idle.append(inbox)
            inbox.open(alone=len(self._idle) == self._threads)
            return None

    def _wait(self, inbox: _Inbox) -> _ThreadCall | None:
        """Wait for the next call of this thread. Returns None if there was none for `IDLE_SECONDS`."""
        try:
            return inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    self._threads -= 1
                    inbox.close()
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
        calls: queue.SimpleQueue[_ThreadCall | None] = queue.SimpleQueue()

        @functools.wraps(function)
        async def callback(*arguments: Any, **named: Any) -> Any:
            call = _ThreadCall(functools.partial(function, *arguments), named, None)
            return call.result_or_error(await call.hand_over(calls.put))

        future = self._start(make(callback))
        future.add_done_callback(lambda _: calls.put(None))
        while (call := calls.get()) is not None:
            call.run()
            call.resume()
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
