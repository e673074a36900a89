"""Tasks in the stateless era: the extension `io.modelcontextprotocol/tasks` (SEP-2663).

https://github.com/modelcontextprotocol/modelcontextprotocol/blob/main/docs/seps/2663-tasks-extension.mdx
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, UnsetType

from hinge.errors import MissingClientCapability
from hinge.extensions.tasks.records import TaskRecord
from hinge.extensions.tasks.times import timestamp
from hinge.schema.base import RESERVED, Result
from hinge.server.context import Context
from hinge.server.features.options import TaskSupport

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


def becomes_task(ctx: Context[Any], support: TaskSupport | None) -> bool:
    """Decide whether a call becomes a task. Raises MissingClientCapability for a tool that needs tasks."""
    if support is None:
        return False
    if ctx.client_extension(ID) is not None:
        return True
    if support == "required":
        raise MissingClientCapability(REQUIRED)
    return False


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


def created(record: TaskRecord) -> TaskCreated:
    """The result of a call that became a task."""
    return TaskCreated(
        task_id=record.id,
        status=record.status,
        status_message=record.message,
        created_at=timestamp(record.created),
        last_updated_at=timestamp(record.updated),
        ttl_ms=record.ttl,
        poll_interval_ms=record.poll,
    )


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
