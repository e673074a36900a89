"""Tasks of asyncio: which one is running, and tasks that begin at once, as eager tasks of Python 3.12 do.

Turns of a loop are bounded here: what begins at once keeps others waiting.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from gemel.loops import PerLoop

#: In one turn of a loop tasks begin at once for so many seconds, and so many of them: a test may stop the clock.
LONGEST_TURN = 0.001
MOST_IN_TURN = 100


class Turn:
    """A turn of an event loop, which all that begins at once on it shares; get it from `turn_of`."""

    __slots__ = ("_began", "_beginning", "_ends", "_left")

    def __init__(self) -> None:
        self._began, self._left = 0.0, 0
        #: Whether a task begins at once now, and whether the next turn is waited for.
        self._beginning = self._ends = False

    def has_room(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a task may begin at once now; else it begins in the next turn, as any other.

        Not while another one does: tasks that make tasks would need ever more stack. Not while an exception is being handled,
        which the task would see as its own.
        """
        if self._beginning or sys.exception() is not None:
            return False
        if self._left and monotonic() - self._began < LONGEST_TURN:
            self._left -= 1
            return True
        if not self._ends:
            self._ends = True
            loop.call_soon(self._begin)
        return False

    def _begin(self) -> None:
        self._began, self._left, self._ends = monotonic(), MOST_IN_TURN, False

    def begin(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Make a task that runs in the stack of the caller until it waits for the first time, or ends.

        Args:
            loop: The running event loop, that of this turn.
            work: What the task runs, in a copy of the context variables of now.
            name: Its name.

        Raises:
            SystemExit, KeyboardInterrupt: Raised by `work` before it waited.
        """
        self._beginning = True
        try:
            return _begin(loop, work, name)
        finally:
            self._beginning = False


_turns = PerLoop(Turn)


def turn_of(loop: asyncio.AbstractEventLoop) -> Turn | None:
    """The turns of the running loop; None if no task can begin at once there.

    That is so before Python 3.12 on uvloop's, which shows no next step.
    """
    if sys.version_info < (3, 12) and not isinstance(getattr(loop, "_ready", None), deque):
        return None
    return _turns.here()


if sys.version_info >= (3, 12):
    current_task = asyncio.current_task

    def _begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        if loop.get_task_factory() is not None:
            return loop.create_task(work, name=name)
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
