"""What runs tasks: the interface between the extension and an engine."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class TaskRunner(Protocol):
    """What an engine calls, in the process where a task runs. The extension Tasks implements it."""

    async def run(self, task_id: str) -> None:
        """Execute a task to its end, or until it waits for input: `TaskEngine.wake` leads to the next run.

        It is called again, on any process, if the process dies meanwhile, and must find out itself what is done already.
        The engine cancels it when another process may take the task over, or this one stops. An exception means that the run
        could not be carried out, and is repeated later.

        Args:
            task_id: The id.
        """

    def woken(self, task_id: str) -> None:
        """React to `TaskEngine.wake`, by any process, for a task that runs in this one. This must not block.

        Args:
            task_id: The id.
        """

    def release(self, task_id: str) -> bool:
        """React to the end of this process, for a task that runs in it. This must not block.

        Args:
            task_id: The id.

        Returns:
            Whether the run ends by itself soon, because a step is running that is recorded first; else it is cancelled at once.
        """
        ...

    async def progress(self, task_id: str) -> int:
        """Return how many entries the journal of a task has. Asked when a process has died that ran it.

        Args:
            task_id: The id.

        Returns:
            The number, which grows with each step that is recorded.
        """
        ...

    async def fail(self, task_id: str, message: str) -> None:
        """End a task that can't be run as failed, unless it has ended. It may be called again.

        Args:
            task_id: The id.
            message: The reason, for people.
        """


class TaskEngine(Protocol):
    """Decides when and in which process tasks run.

    A task runs in at most one process at a time, except for a moment after a process was stopped for longer than its lease: what
    must not happen twice then is left to the journal of the task, which has one writer.
    """

    async def start(self, runner: TaskRunner) -> None:
        """Begin to run tasks in the running event loop. This succeeds without a connection to the store, too.

        A process may have several event loops, each of which calls this and `close`, and runs tasks as a process of its own.

        Args:
            runner: Executes the tasks.
        """

    async def submit(self, task_id: str) -> None:
        """Accept a task, whose record is stored already.

        It is durable, as far as the store is, before this returns: `TaskRunner.run` is called for it, in any process.

        Args:
            task_id: The id.

        Raises:
            Overloaded: Too many tasks wait.
            BackendError: The store can't be reached.
        """

    async def wake(self, task_id: str) -> None:
        """Run a task again, since an answer or a cancellation has come for it; it is durable before this returns.

        If it runs already, `TaskRunner.woken` is called in the process where it runs, and `TaskRunner.run` once more after that.

        Args:
            task_id: The id.

        Raises:
            Overloaded: Too many tasks wait.
            BackendError: The store can't be reached.
        """

    async def restore(self, task_id: str) -> None:
        """Accept a task again if the store has lost that it has to run, as one can that fails over to a replica.

        Called when somebody asks for a task that has not ended and has not changed for some seconds. This must be cheap for a
        task that is not lost.

        Args:
            task_id: The id.

        Raises:
            Overloaded: Too many tasks wait.
            BackendError: The store can't be reached.
        """

    def waiting(self, task_id: str) -> AbstractAsyncContextManager[None]:
        """Return what is entered while a run waits for input, which needs no room meanwhile; leaving it waits for room.

        Args:
            task_id: The id. It may be entered several times at once.

        Returns:
            An async context manager.
        """
        ...

    async def close(self) -> None:
        """Stop running tasks in the running event loop, and leave them to others at once. The engine can be started again."""
