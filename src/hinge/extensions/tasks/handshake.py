"""Tasks in the handshake era: the experimental form of revision 2025-11-25.

https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from hinge.errors import InvalidParams, MethodNotFound
from hinge.extensions.tasks.records import TaskRecord
from hinge.extensions.tasks.running import RELATED
from hinge.extensions.tasks.times import timestamp
from hinge.jsonrpc import ABSENT
from hinge.schema.base import Model, Result
from hinge.schema.revisions import V2025_11
from hinge.server.context import Context
from hinge.server.features.options import TaskSupport


class Task(Model, kw_only=True):
    """A task as clients of 2025-11-25 see it."""

    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl: int
    poll_interval: int
    status_message: str | None = None


class CreateTaskResult(Result, kw_only=True):
    """The result of a request that became a task."""

    task: Task


class _Augmentation(Struct):
    """`params.task`: how long the client wants the task to be kept, in milliseconds; null for no limit."""

    ttl: float | UnsetType | None = UNSET


class _Params(Struct):
    task: Raw = ABSENT


_params = msgspec.json.Decoder(_Params)
_augmentation = msgspec.json.Decoder(_Augmentation)


class TaskNotPossible(MethodNotFound):
    """The tool can't be called in this way: not as a task, or only as one."""

    def __init__(self, message: str) -> None:
        super().__init__("tools/call")
        self.args = (message,)
        self.error = msgspec.structs.replace(self.error, message=message, data=UNSET)


def requested_ttl(ctx: Context[Any], tool: str, support: TaskSupport | None) -> float | None:
    """Decide whether a call becomes a task.

    Returns:
        None if it is a plain call; else the milliseconds that the client wants it to be kept, infinity for no wish.

    Raises:
        TaskNotPossible: The tool is only for plain calls, or only for tasks ("Tool-Level Negotiation").
        InvalidParams: `task` is malformed.
    """
    if ctx.protocol_version < V2025_11:
        return None
    text = _params.decode(ctx.params).task
    if text is ABSENT:
        if support == "required":
            raise TaskNotPossible(f"Tool {tool!r} must be called as a task")
        return None
    if support is None:
        raise TaskNotPossible(f"Tool {tool!r} can't be called as a task")
    try:
        ttl = _augmentation.decode(text).ttl
    except msgspec.MsgspecError as exc:
        raise InvalidParams("Invalid request parameters", f"task: {exc}") from None
    if ttl is UNSET or ttl is None:
        return float("inf")
    if ttl < 0:
        raise InvalidParams("Invalid request parameters", "task.ttl: expected milliseconds, 0 or more")
    return ttl


def status_of(record: TaskRecord) -> str:
    """The state; a result with `isError` is a failure in this form ("Task Execution Errors")."""
    return "failed" if record.failed else record.status


def task_of(record: TaskRecord) -> Task:
    """The task as clients see it."""
    return Task(
        task_id=record.id,
        status=status_of(record),
        status_message=record.message,
        created_at=timestamp(record.created),
        last_updated_at=timestamp(record.updated),
        ttl=record.ttl,
        poll_interval=record.poll,
    )


def related(result: dict[str, Any], task_id: str) -> dict[str, Any]:
    """A message that belongs to a task, with its id in `_meta` ("Related Task Metadata")."""
    return {**result, "_meta": {**(result.get("_meta") or {}), RELATED: {"taskId": task_id}}}
