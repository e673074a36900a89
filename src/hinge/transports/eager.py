"""Eager tasks: a coroutine begins at once, in the stack of its caller, but as a task of its own.

Most handlers never wait, and are over before an event loop would have begun them. From Python 3.12 on, asyncio has such tasks.
Before, a task that has served one coroutine waits here for the next one, which begins in its name; if that has to wait, the
task takes it over.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, TypeAlias

Serving: TypeAlias = Coroutine[Any, Any, None]


class EagerTasks:
    """Starts coroutines eagerly, each in a context of its own."""

    __slots__ = ("_closed", "_idle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: _Worker | None = None
        self._closed = False

    if sys.version_info >= (3, 12):

        def start(self, serving: Serving, name: str, context: Context) -> None:
            """Run a coroutine up to the first time that it waits. It must keep a reference to its task while it runs."""
            asyncio.Task(serving, loop=self._loop, name=name, context=context, eager_start=True)

    else:

        def start(self, serving: Serving, name: str, context: Context) -> None:
            """Run a coroutine up to the first time that it waits. It must keep a reference to its task while it runs."""
            worker, self._idle = self._idle, None
            if worker is None or worker.wake.done():
                worker = _Worker(self)
                worker.task = self._loop.create_task(worker.run(serving), name=name, context=context)
                return
            tasks, loop = _current_tasks, self._loop
            outer = tasks.get(loop)
            tasks[loop] = worker.task
            try:
                awaited = context.run(serving.send, None)
            except BaseException as exc:
                if type(exc) is StopIteration and worker.is_reusable():
                    self._idle = worker
                else:
                    worker.stop()
                    self._report(exc)
            else:
                worker.task.set_name(name)
                worker.begun = _Begun(serving, context, awaited)
                worker.stop()
            finally:
                if outer is None:
                    del tasks[loop]
                else:
                    tasks[loop] = outer

    def _report(self, exc: BaseException) -> None:
        """Do with what a coroutine raised what a task does."""
        if isinstance(exc, KeyboardInterrupt | SystemExit):
            raise exc
        if not isinstance(exc, StopIteration | asyncio.CancelledError):
            self._loop.call_exception_handler({"message": "a call failed outside of its handler", "exception": exc})

    def wait_in(self, worker: _Worker) -> bool:
        """Let a task that is free wait for the next coroutine. Returns False if it is not needed."""
        if self._closed or self._idle is not None:
            return False
        self._idle = worker
        return True

    async def close(self) -> None:
        """End the task that waits for the next coroutine."""
        self._closed = True
        worker, self._idle = self._idle, None
        if worker is not None:
            worker.stop()
            await asyncio.wait([worker.task])


if sys.version_info < (3, 12):
    _current_tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[Any]] = vars(asyncio.tasks)["_current_tasks"]

#: The references to the task of a worker that is asked whether it can be used again. One more is somebody's who keeps the task.
_REFERENCES = 5


class _Begun:
    """A coroutine that waits for the first time, for a future or only for its next turn (None)."""

    __slots__ = ("awaited", "context", "serving")

    def __init__(self, serving: Serving, context: Context, awaited: Any) -> None:
        self.serving = serving
        self.context = context
        self.awaited = awaited

    @coroutine
    def finish(self, cancelled: asyncio.CancelledError | None) -> Generator[Any, Any, None]:
        """Run the rest of it, as `await` does but in its own context. `cancelled` is raised there first."""
        serving, context, awaited = self.serving, self.context, self.awaited
        throws = cancelled is not None and (awaited is None or not awaited.cancel(*cancelled.args))
        raised: BaseException | None = cancelled if throws else None
        while True:
            sent = None
            if raised is None:
                if awaited is not None:
                    awaited._asyncio_future_blocking = True  # the mark of a future that `await` waits for
                try:
                    sent = yield awaited
                except BaseException as exc:
                    raised = exc
            try:
                if raised is None:
                    awaited = context.run(serving.send, sent)
                else:
                    thrown, raised = raised, None
                    awaited = context.run(serving.throw, thrown)
            except StopIteration:
                return


class _Worker:
    """A task that serves one coroutine after the other."""

    __slots__ = ("_tasks", "begun", "task", "wake")

    task: asyncio.Task[None]
    #: Done when there is something to do.
    wake: asyncio.Future[None]

    def __init__(self, tasks: EagerTasks) -> None:
        self._tasks = tasks
        #: What began in the name of the task, and has to wait.
        self.begun: _Begun | None = None

    async def run(self, first: Serving) -> None:
        """Serve `first`, then take over what began in the name of this task, as long as it is needed."""
        await first
        while self.is_reusable() and self._tasks.wait_in(self):
            self.wake = asyncio.get_running_loop().create_future()
            cancelled: asyncio.CancelledError | None = None
            try:
                await self.wake
            except asyncio.CancelledError as exc:
                if self.begun is None:
                    raise
                cancelled = exc
            begun, self.begun = self.begun, None
            if begun is None:
                return
            await begun.finish(cancelled)

    def stop(self) -> None:
        """Continue: with what has begun, or to the end."""
        if not self.wake.done():
            self.wake.set_result(None)

    def is_reusable(self) -> bool:
        """Whether the last coroutine left nothing behind that tells its task from that of the next one."""
        task = self.task
        return sys.getrefcount(task) <= _REFERENCES and not task.cancelling() and not task._callbacks
