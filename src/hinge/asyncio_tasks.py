"""Tasks of asyncio: which one is running, and tasks that begin at once, as eager tasks of Python 3.12 do."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

#: The loops on which a task begins at once now.
_beginning: set[asyncio.AbstractEventLoop] = set()


def can_begin_at_once(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether tasks of this loop can begin at once: before Python 3.12 only those of asyncio's own loops, not of uvloop's."""
    return sys.version_info >= (3, 12) or isinstance(getattr(loop, "_ready", None), deque)


def begin_at_once(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Make a task that runs in the stack of the caller until it waits for the first time, or ends.

    It begins in the next turn of the loop, as any other task, if it is made by a task that is beginning at once itself: tasks
    that make tasks would need ever more stack.

    Args:
        loop: The running event loop, one that `can_begin_at_once`.
        work: What the task runs, in a copy of the context variables of now.
        name: Its name.

    Raises:
        SystemExit, KeyboardInterrupt: Raised by `work` before it waited.
    """
    if loop in _beginning:
        return loop.create_task(work, name=name)
    _beginning.add(loop)
    try:
        return _begin(loop, work, name)
    finally:
        _beginning.discard(loop)


if sys.version_info >= (3, 12):
    current_task = asyncio.current_task

    def _begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.Task(work, loop=loop, name=name, eager_start=True)

else:
    _tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[Any]] = vars(asyncio.tasks)["_current_tasks"]

    #: The task that runs on an event loop. asyncio's own is a function of Python here, which each call would enter twice.
    current_task: Callable[[asyncio.AbstractEventLoop], asyncio.Task[Any] | None] = _tasks.get

    def _begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Make a task, and take what the loop would do for it in its next turn: its first step."""
        task: asyncio.Task[None] = loop.create_task(work, name=name)
        ready: deque[Any] = getattr(loop, "_ready")  # noqa: B009 - private; vars() would make its attributes slower
        if not ready:  # a loop whose tasks all begin at once
            return task
        step = ready.pop()
        owner: object = getattr(step._callback, "__self__", None)
        if owner is not task:  # another thread was faster
            ready.append(step)
            return task
        caller = _tasks.pop(loop, None)
        try:
            step._run()
        except (SystemExit, KeyboardInterrupt):
            task.exception()  # asyncio need not report it
            raise
        finally:
            if caller is not None:
                _tasks[loop] = caller
        return task
