"""What runs tasks: the interface, and the engine within one process."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from hinge.backends.base import Backend
from hinge.protocol.limits import Limits

logger = logging.getLogger("hinge")

#: Executes a task to its end.
Run: TypeAlias = Callable[[str], Awaitable[None]]


class TaskEngine(Protocol):
    """Decides when and where tasks run. All methods may be called from any process that serves."""

    async def start(self, run: Run) -> None:
        """Begin to run tasks in this process.

        Args:
            run: Executes the task of an id to its end. It may be called again for a task whose process died: the task then
                goes on from its journal.
        """

    async def submit(self, task_id: str) -> None:
        """Accept a task. It is durable before this returns: `run` is called for it at least once.

        Args:
            task_id: The id; the record of the task is stored already.
        """

    async def wake(self, task_id: str) -> None:
        """An answer or a cancellation has come for a task: call `run` for it unless it is running.

        Args:
            task_id: The id.
        """

    async def close(self) -> None:
        """Stop running tasks in this process; those that run are cancelled, and may go on elsewhere."""


class ProcessEngine:
    """Runs tasks in this process: they end with it. For backends that other processes don't share.

    Args:
        most: How many tasks run at once; further ones wait in order.
        teardown: Seconds that cancelled tasks have to end.
    """

    def __init__(self, *, most: int = 1000, teardown: float = 5.0) -> None:
        self._most = most
        self._teardown = teardown
        self._run: Run | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._waiting: deque[str] = deque()

    async def start(self, run: Run) -> None:
        """Begin to run tasks.

        Args:
            run: Executes the task of an id to its end.
        """
        self._run = run
        self._begin()

    async def submit(self, task_id: str) -> None:
        """Run a task, or let it wait for its turn.

        Args:
            task_id: The id.
        """
        self._waiting.append(task_id)
        self._begin()

    async def wake(self, task_id: str) -> None:
        """Do nothing: tasks wait for input while they run.

        Args:
            task_id: The id.
        """

    async def close(self) -> None:
        """Cancel the tasks that run, and wait for a limited time until they have ended."""
        self._run = None
        self._waiting.clear()
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            _, late = await asyncio.wait(running, timeout=self._teardown)
            if late:
                logger.warning("%d tasks did not stop within %g seconds and are abandoned", len(late), self._teardown)

    def _begin(self) -> None:
        while self._run is not None and self._waiting and len(self._running) < self._most:
            task_id = self._waiting.popleft()
            if task_id not in self._running:
                running = asyncio.get_running_loop().create_task(self._execute(self._run, task_id))
                self._running[task_id] = running

    async def _execute(self, run: Run, task_id: str) -> None:
        try:
            await run(task_id)
        except Exception:
            logger.exception("A task could not be run")
        finally:
            self._running.pop(task_id, None)
            self._begin()


def engine_for(backend: Backend, server: str, limits: Limits) -> TaskEngine:
    """Choose what runs the tasks that a backend keeps.

    Args:
        backend: The backend.
        server: The name of the server.
        limits: The limits of the server.

    Returns:
        The engine, not started yet.
    """
    return ProcessEngine(teardown=limits.teardown)
