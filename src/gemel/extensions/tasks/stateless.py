"""Tasks in the stateless era: the extension `io.modelcontextprotocol/tasks` (SEP-2663).

https://github.com/modelcontextprotocol/modelcontextprotocol/blob/main/docs/seps/2663-tasks-extension.mdx
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, UnsetType

from gemel.errors import MissingClientCapability
from gemel.extensions.tasks.forms import NO_WISH, TaskForm
from gemel.extensions.tasks.stored_tasks import StoredCall, TaskRecord
from gemel.extensions.tasks.times import timestamp
from gemel.protocol.connection import Connection
from gemel.protocol.eras.stateless import STATELESS
from gemel.schema.base import RESERVED, Result
from gemel.server.context import Context
from gemel.server.features.options import TaskSupport

#: The id of the extension.
ID = RESERVED + "tasks"
#: What a client must declare to be sent tasks.
REQUIRED: dict[str, Any] = {"extensions": {ID: {}}}


class TaskCreated(Result, kw_only=True):
    """The result of a call that became a task: the task itself."""

    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int
    status_message: str | None = None
    result_type: str | UnsetType = "task"


def members_of(record: TaskRecord) -> dict[str, Any]:
    """The members of a task that it always has."""
    members: dict[str, Any] = {
        "taskId": record.id,
        "status": record.status,
        "createdAt": timestamp(record.created),
        "lastUpdatedAt": timestamp(record.updated),
        "ttlMs": record.ttl,
        "pollIntervalMs": record.poll,
    }
    if record.message is not None:
        members["statusMessage"] = record.message
    return members


def detailed(record: TaskRecord, result: Raw | None) -> dict[str, Any]:
    """The complete task: with its open requests for input, its result, or its error."""
    members = members_of(record)
    if record.status == "input_required":
        members["inputRequests"] = {
            key: {"method": item.method, **({"params": Raw(item.params)} if item.params else {})}
            for key, item in record.inputs.items()
        }
    if record.status == "completed":
        members["result"] = result
    if record.status == "failed":
        members["error"] = record.error
    return members


class StatelessForm(TaskForm):
    """The official extension."""

    begins_at_once = False
    shows_results = True

    def capabilities(self, *, listed: bool) -> Mapping[str, Any]:
        return REQUIRED

    def requested_ttl(self, ctx: Context[Any], tool: str, support: TaskSupport | None) -> float | None:
        """Clients send no wish: they declare that they can use tasks, with each request."""
        if support is not None and ctx.client_extension(ID) is not None:
            return NO_WISH
        if support == "required":
            raise MissingClientCapability(REQUIRED)
        return None

    def created(self, record: TaskRecord) -> Result:
        return TaskCreated(
            task_id=record.id,
            status=record.status,
            status_message=record.message,
            created_at=timestamp(record.created),
            last_updated_at=timestamp(record.updated),
            ttl_ms=record.ttl,
            poll_interval_ms=record.poll,
        )

    def store_client(self, stored: StoredCall, connection: Connection) -> bool:
        return False

    def restore_client(self, stored: StoredCall, connection: Connection, revision: str) -> None:
        return

    def may_ask(self, ctx: Context[Any], record: TaskRecord | None) -> None:
        """A client that declares the `tasks` of 2025-11-25 may ask for tasks of that form ("Backward Compatibility")."""
        if ctx.client_extension(ID) is not None:
            return
        if ctx.client_capabilities.tasks is None or record is None or STATELESS.knows(record.revision):
            raise MissingClientCapability(REQUIRED)

    def shown(self, record: TaskRecord, result: Raw | None) -> dict[str, Any]:
        return detailed(record, result)

    def cancelled(self, record: TaskRecord, *, too_late: bool) -> None:
        return None
