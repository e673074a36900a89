"""Tasks in the handshake era: the experimental form of revision 2025-11-25, which no revision will continue.

This code is maintained, but gets no new features.

https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gemel.backends.base import Backend
from gemel.backends.keys import make_key
from gemel.errors import InvalidParams, MethodNotFound
from gemel.extensions.tasks.forms import NO_WISH, TaskForm
from gemel.extensions.tasks.running import RELATED
from gemel.extensions.tasks.stored_tasks import StoredCall, TaskRecord
from gemel.extensions.tasks.times import timestamp
from gemel.jsonrpc import ABSENT
from gemel.protocol.connection import Connection
from gemel.protocol.eras.handshake import HANDSHAKE, task_wish
from gemel.schema.base import Implementation, Model, Result
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.revisions import V2025_11
from gemel.server.context import Context
from gemel.server.features.options import TaskSupport


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


class Augmentation(Struct):
    """`params.task`: how long the client wants the task to be kept, in milliseconds; null for no limit."""

    ttl: float | UnsetType | None = UNSET


#: Seconds after which a request that has not confirmed that it is the latest has ended with its process.
_CONFIRMED = 30.0
#: Stored in place of the latest request when it leaves: any other comes after it.
_NOBODY = b"0"


_augmentation = msgspec.json.Decoder(Augmentation)


class TaskNotPossible(MethodNotFound):
    """The tool can't be called in this way: not as a task, or only as one."""

    def __init__(self, message: str) -> None:
        super().__init__("tools/call")
        self.args = (message,)
        self.error = msgspec.structs.replace(self.error, message=message, data=UNSET)


def _requested_ttl(ctx: Context[Any], tool: str, support: TaskSupport | None) -> float | None:
    """See `TaskForm.requested_ttl`. Raises TaskNotPossible ("Tool-Level Negotiation") and InvalidParams."""
    if ctx.protocol_version < V2025_11:
        return None
    text = task_wish(ctx.protocol_version, ctx.params)
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
        return NO_WISH
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


class HandshakeForm(TaskForm):
    """The form of revision 2025-11-25."""

    begins_at_once = True
    shows_results = False

    def capabilities(self, *, listed: bool) -> Mapping[str, Any]:
        lists: dict[str, Any] = {"list": {}} if listed else {}
        return {"tasks": {**lists, "cancel": {}, "requests": {"tools": {"call": {}}}}}

    def requested_ttl(self, ctx: Context[Any], tool: str, support: TaskSupport | None) -> float | None:
        return _requested_ttl(ctx, tool, support)

    def created(self, record: TaskRecord) -> Result:
        return CreateTaskResult(task=task_of(record))

    def store_client(self, stored: StoredCall, connection: Connection) -> bool:
        shaken = connection.handshake
        stored.capabilities = msgspec.json.encode(shaken.capabilities)
        stored.client_info = b"" if shaken.client_info is None else msgspec.json.encode(shaken.client_info)
        return not connection.one_shot

    def restore_client(self, stored: StoredCall, connection: Connection, revision: str) -> None:
        shaken = connection.handshake
        shaken.assume(revision)
        shaken.declared = msgspec.json.decode(stored.capabilities, type=ClientCapabilities)
        if stored.client_info:
            shaken.client_info = msgspec.json.decode(stored.client_info, type=Implementation)

    def may_ask(self, ctx: Context[Any], record: TaskRecord | None) -> None:
        """A client that fell back to this era must not believe that its task is gone."""
        if record is not None and not HANDSHAKE.knows(record.revision):
            text = f"The task was made in revision {record.revision}: ask for it in that revision"
            raise InvalidParams(text, {"taskId": record.id, "revision": record.revision})

    def shown(self, record: TaskRecord, result: Raw | None) -> Task:
        return task_of(record)

    def cancelled(self, record: TaskRecord, *, too_late: bool) -> Task:
        if too_late:
            raise InvalidParams(f"The task can't be cancelled: it is {status_of(record)}")
        return task_of(record)


class Asker:
    """One request `tasks/result`. Of several for a task, in all processes, the latest asks its client for input.

    The clients of the others may be gone: over HTTP a client of the handshake era that lost its connection may come back, so that
    its request goes on.

    Args:
        backend: Where it is stored which one is the latest, as long as that one confirms it.
        task_id: The id of the task.
        publish: Wakes up the others.
    """

    def __init__(self, backend: Backend, task_id: str, publish: Callable[[str], None]) -> None:
        self._backend = backend
        self._task_id = task_id
        self._key = make_key("task-asker", task_id)
        self._publish = publish
        self._arrival = b"%d" % (time.time_ns() << 16 | secrets.randbits(16))

    async def is_latest(self) -> bool:
        """Whether no later request has taken over. Call it more often than every 30 seconds."""
        while True:
            latest = await self._backend.get(self._key)
            if latest is not None and int(latest) > int(self._arrival):
                return False
            if await self._backend.replace(self._key, latest, self._arrival, ttl=_CONFIRMED):
                break  # otherwise another process came between
        if latest != self._arrival:
            self._publish(self._task_id)
        return True

    async def leave(self) -> None:
        """Let an earlier request take over."""
        if await self._backend.replace(self._key, self._arrival, _NOBODY, ttl=_CONFIRMED):
            self._publish(self._task_id)
