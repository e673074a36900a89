"""What the two forms of tasks decide differently: one class for each era, chosen by the era of a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from gemel.extensions.tasks.stored_tasks import StoredCall, TaskRecord
from gemel.protocol.connection import Connection
from gemel.schema.base import Result
from gemel.server.context import Context
from gemel.server.features.options import TaskSupport

#: A client that has no wish how long a task is kept.
NO_WISH = float("inf")


class TaskForm(ABC):
    """One form of tasks."""

    #: Whether a call whose handler decides when it becomes a task becomes one at once.
    begins_at_once: bool

    @abstractmethod
    def capabilities(self, *, listed: bool) -> Mapping[str, Any]:
        """What a server announces; `listed`: whether callers are authenticated, so that each can list its tasks."""

    @abstractmethod
    def requested_ttl(self, ctx: Context[Any], tool: str, support: TaskSupport | None) -> float | None:
        """Decide whether a call becomes a task.

        Returns:
            None if it is a plain call; else the milliseconds that the client wants it to be kept, or NO_WISH.

        Raises:
            ProtocolError: The call must be a task, or can't be one, or the request for it is malformed.
        """

    @abstractmethod
    def created(self, record: TaskRecord) -> Result:
        """The result of a call that became a task."""

    @abstractmethod
    def store_client(self, stored: StoredCall, connection: Connection) -> bool:
        """Store what the client declared outside of the request. Returns whether it is told the state of its tasks."""

    @abstractmethod
    def restore_client(self, stored: StoredCall, connection: Connection, revision: str) -> None:
        """Undo `store_client`, on a new connection."""

    @abstractmethod
    def may_ask(self, ctx: Context[Any], record: TaskRecord | None) -> None:
        """Refuse a request for a task of its caller, or for one that is not known.

        Raises:
            MissingClientCapability: It did not declare what it needs.
            InvalidParams: Clients of this form can't use the task, which was made in the other.
        """

    @abstractmethod
    def shown(self, record: TaskRecord, result: Raw | None) -> Any:
        """The answer to `tasks/get`. `result` is that of a completed task, if `shows_results`."""

    #: Whether `tasks/get` shows results.
    shows_results: bool

    @abstractmethod
    def cancelled(self, record: TaskRecord, *, too_late: bool) -> Any:
        """The answer to `tasks/cancel`. Raises InvalidParams where it is an error that the task has ended before."""
