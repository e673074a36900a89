"""Tasks as callers of a client see them: the handle of a tool call that runs at the server, and `client.tasks`.

`gemel.extensions.tasks.client` implements them, and is imported when it is first used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import UnionType
from typing import Any, Generic, Literal, TypeAlias

import msgspec

from gemel.schema.tools import CallToolResult, DataT

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task, as the server gave it last.

    Attributes:
        id: The id, with which the task can be found again.
        status: The state.
        message: What is being done, for people.
        created_at: When it was made, as ISO 8601.
        updated_at: When it changed last, as ISO 8601.
        ttl: Seconds from `created_at` for which the server keeps it; None for no limit.
        poll_interval: Seconds to wait between two requests; None if the server has no wish.
    """

    id: str
    status: TaskStatus
    message: str | None = None
    created_at: str = ""
    updated_at: str = ""
    ttl: float | None = None
    poll_interval: float | None = None

    @property
    def ended(self) -> bool:
        """Whether the state never changes again."""
        return self.status in ("completed", "failed", "cancelled")


#: Called with each new state of a task; sync or async.
OnStatus: TypeAlias = Callable[[TaskInfo], Any]


class ToolTask(ABC, Generic[DataT]):
    """A tool call that runs as a task: `task = await client.call_tool("report", task=True)`.

    What the tool asks meanwhile goes to the callbacks of the client while `wait` or `result` runs.
    """

    @property
    @abstractmethod
    def id(self) -> str | None:
        """The id, for `client.tasks.resume`; None if the server answered at once, without a task."""

    @property
    @abstractmethod
    def info(self) -> TaskInfo:
        """The state, as it was known last."""

    @property
    def status(self) -> TaskStatus:
        """The state, as it was known last."""
        return self.info.status

    @abstractmethod
    async def refresh(self) -> TaskInfo:
        """Ask the server for the state.

        Returns:
            The state.

        Raises:
            PeerError: The server does not know the task, or not any more.
        """

    @abstractmethod
    async def wait(self, *, total: float | None = None, on_status: OnStatus | None = None) -> TaskInfo:
        """Wait until the task has ended, and answer what it asks.

        Args:
            total: Seconds to wait; None for no limit.
            on_status: Called with each new state.

        Returns:
            The last state.

        Raises:
            CallTimeout: It did not end in time. It goes on, and can be waited for again.
            CallError: The server can't be asked.
        """

    @abstractmethod
    async def result(self, *, total: float | None = None, on_status: OnStatus | None = None) -> CallToolResult[DataT]:
        """Wait for the result.

        Args:
            total: Seconds to wait; None for no limit.
            on_status: Called with each new state.

        Returns:
            The result, as `call_tool` returns it.

        Raises:
            ToolCallError: The tool reported an error.
            PeerError: The task failed, or was cancelled.
            CallTimeout: It did not end in time. It goes on, and can be waited for again.
            CallError: The server can't be asked.
        """

    @abstractmethod
    async def cancel(self) -> None:
        """Ask the server to cancel the task, which may have ended before.

        Raises:
            CallError: The server can't be asked.
        """


class ClientTasks(ABC):
    """`client.tasks`: tasks at the server, by their ids."""

    @abstractmethod
    async def start(
        self,
        name: str,
        arguments: object,
        *,
        returns: type[DataT] | UnionType | None,
        raise_on_error: bool,
        ttl: float | None,
        options: object,
    ) -> ToolTask[DataT]:
        """Call a tool as a task; see `Client.call_tool`.

        Args:
            name: The name of the tool.
            arguments: The arguments, by name.
            returns: The type of `data` of the result.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError.
            ttl: Seconds for which the server is to keep the task; only servers of 2025-11-25 are told.
            options: See `CallOptions`.

        Returns:
            The task.
        """

    @abstractmethod
    async def resume(
        self,
        task_id: str,
        *,
        tool: str = "",
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
    ) -> ToolTask[DataT]:
        """Find a task again, for example after this program was restarted.

        Args:
            task_id: Its id.
            tool: The name of the tool, to check its result.
            returns: The type of `data` of the result.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError.

        Returns:
            The task.

        Raises:
            PeerError: The server does not know the task, or not any more.
        """

    @abstractmethod
    async def get(self, task_id: str) -> TaskInfo:
        """Get the state of a task.

        Args:
            task_id: Its id.

        Returns:
            The state.

        Raises:
            PeerError: The server does not know the task, or not any more.
        """

    @abstractmethod
    async def list(self) -> list[TaskInfo]:
        """List the tasks of this caller. Only servers of 2025-11-25 that know who is calling have lists.

        Returns:
            Their states.

        Raises:
            NotSent: The server has no lists.
        """

    @abstractmethod
    async def cancel(self, task_id: str) -> None:
        """Ask the server to cancel a task.

        Args:
            task_id: Its id.

        Raises:
            PeerError: The server does not know the task; or it had ended before, in revision 2025-11-25.
            NotSent: The server cancels no tasks.
        """
