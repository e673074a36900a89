"""The client's side of tasks, in both forms: handles, polling, answering what tasks ask, and the extension object."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from types import UnionType
from typing import Any, ClassVar, Generic

import msgspec
from msgspec import UNSET

from gemel.client.call_options import OnProgress
from gemel.client.callbacks import awaited
from gemel.client.client import Client
from gemel.client.extensions import ClientExtension, ClientMethod, SentMethod
from gemel.client.methods import ClientContext, ClientMethods
from gemel.client.middleware import ClientMiddleware
from gemel.client.tasks import ClientTasks, OnStatus, TaskInfo, ToolTask
from gemel.client.tools import refused
from gemel.errors import CallTimeout, ErrorObject, InvalidResponse, NotSent, PeerError, shorten
from gemel.extensions.tasks.receiver import ReceivedTasks
from gemel.extensions.tasks.stateless import ID
from gemel.protocol.eras.base import EraName
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.schema.input_required import InputRequest, InputRequiredResult
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.revisions import V2025_11
from gemel.schema.tools import CallToolResult, DataT
from gemel.timeouts import TimeLeft

logger = logging.getLogger("gemel")

#: Seconds between two requests for a state, if the server has no wish; and the bounds of its wish.
_POLL, _SHORTEST, _LONGEST = 1.0, 0.01, 24 * 3600.0

#: Requests for input that one task may have, and the usual length of their keys.
MOST_REQUESTS, _KEY_LENGTH = 1000, 1000

#: The requests, for the header that repeats the id and for repeating them.
SENT = (
    SentMethod(name="tasks/get", name_field="taskId", safe=True),
    SentMethod(name="tasks/update", name_field="taskId", safe=True),
    SentMethod(name="tasks/cancel", name_field="taskId", safe=True),
    SentMethod(name="tasks/result", name_field="taskId", safe=True),
    SentMethod(name="tasks/list", safe=True),
)


class _Task(msgspec.Struct, rename="camel"):
    """A task of either form."""

    task_id: str
    status: str
    created_at: str = ""
    last_updated_at: str = ""
    status_message: str | None = None
    ttl: float | None = None
    ttl_ms: float | None = None
    poll_interval: float | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, InputRequest] = msgspec.field(default_factory=dict)
    result: dict[str, Any] | None = None
    error: ErrorObject | None = None


class _Tasks(msgspec.Struct, rename="camel"):
    tasks: list[_Task]
    next_cursor: str | None = None


def _read(result: object, kind: object) -> Any:
    try:
        return msgspec.convert(result, kind)
    except msgspec.ValidationError as exc:
        raise InvalidResponse(f"The task of the server can't be read: {shorten(str(exc))}") from exc


def _info(task: _Task) -> TaskInfo:
    ttl = task.ttl_ms if task.ttl is None else task.ttl
    poll = task.poll_interval_ms if task.poll_interval is None else task.poll_interval
    info: TaskInfo = _read(
        {
            "id": task.task_id,
            "status": task.status,
            "message": task.status_message,
            "created_at": task.created_at,
            "updated_at": task.last_updated_at,
            "ttl": None if ttl is None else ttl / 1000,
            "poll_interval": None if poll is None else poll / 1000,
        },
        TaskInfo,
    )
    return info


#: Whether the form of tasks in an era is the extension, which each request declares.
_DECLARED_EACH_TIME = {HANDSHAKE: False, STATELESS: True}


class TasksOfClient(ClientTasks):
    """`client.tasks` of a client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._warned = False
        self._tokens = count(1)
        client.know_methods(SENT)

    @property
    def _stateless(self) -> bool:
        return _DECLARED_EACH_TIME[ERAS[self._client.era]]

    async def request(self, method: str, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Send a request that declares the extension, where the era has it."""
        return await self._client.request(method, self._declaring(params), **options)

    def _declaring(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if not self._stateless:
            return dict(params)
        return {**params, "_meta": {**params.get("_meta", {}), **self._client.declare_extension(ID)}}

    async def start(
        self,
        name: str,
        arguments: object,
        *,
        returns: type[DataT] | UnionType | None,
        raise_on_error: bool,
        ttl: float | None,
        options: Any,
    ) -> ToolTask[DataT]:
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        self._check_server()
        if not self._stateless and await self._takes_tasks(name):
            params["task"] = {} if ttl is None else {"ttl": int(ttl * 1000)}
        handle: _Handle[DataT] = _Handle(self, name, returns, raise_on_error)
        if "task" in params:
            # The token stays valid until the task has ended (2025-11-25, "Progress").
            token = f"task-{next(self._tokens)}"
            params["_meta"] = {"progressToken": token}
            handle.receive_progress(self._client, token, options.get("on_progress"))
        try:
            result = await self._client.request_raw("tools/call", self._declaring(params), ("task",), options)
        except PeerError as exc:
            if raise_on_error:
                raise
            handle.outcome = msgspec.to_builtins(refused(exc))
            return handle
        if self._stateless and result.get("resultType") == "task":
            handle.take(_read(result, _Task))
        elif "task" in params:
            handle.take(_read(result.get("task"), _Task))
        else:
            handle.outcome = result
        return handle

    def _check_server(self) -> None:
        """Log a warning, once, that the calls to this server can't be tasks."""
        if not (self._warned or self._server_has_tasks):
            self._warned = True
            logger.warning("%s has no tasks: its tools are called plainly", self._client.callbacks.describe_server())

    @property
    def _server_has_tasks(self) -> bool:
        """Whether the server declared that tool calls may be tasks."""
        client = self._client
        if self._stateless:
            return ID in (client.server_capabilities.extensions or {})
        requests = (client.server_capabilities.tasks or {}).get("requests")
        tools = requests.get("tools") if isinstance(requests, dict) else None
        return client.protocol_version >= V2025_11 and isinstance(tools, dict) and "call" in tools

    async def _takes_tasks(self, name: str) -> bool:
        """Whether the server may be sent this call as a task (2025-11-25, "Tool-Level Negotiation")."""
        client = self._client
        if not self._server_has_tasks:
            return False
        support = [tool.execution or {} for tool in await client.list_tools() if tool.name == name]
        return any(execution.get("taskSupport") in ("optional", "required") for execution in support)

    async def resume(
        self,
        task_id: str,
        *,
        tool: str = "",
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
    ) -> ToolTask[DataT]:
        handle: _Handle[DataT] = _Handle(self, tool, returns, raise_on_error)
        handle.take(await self.fetch(task_id))
        return handle

    async def fetch(self, task_id: str, total: float | None = None) -> _Task:
        """Ask for a task, for at most `total` seconds; by default as long as for any request."""
        limit = {} if total is None else {"total": total}
        task: _Task = _read(await self.request("tasks/get", {"taskId": task_id}, **limit), _Task)
        if task.task_id != task_id:
            raise InvalidResponse(f"The answer to tasks/get is about another task: {shorten(repr(task.task_id))}")
        return task

    async def get(self, task_id: str) -> TaskInfo:
        return _info(await self.fetch(task_id))

    def _require(self, name: str) -> None:
        """Raise NotSent for a method that servers of 2025-11-25 may have, and declare ("Capabilities")."""
        if self._stateless or name not in (self._client.server_capabilities.tasks or {}):
            server = self._client.callbacks.describe_server()
            hint = "; ask for a task by its id" if name == "list" else ""
            raise NotSent(f"tasks/{name} was not sent: {server} does not declare it{hint}")

    async def list(self) -> list[TaskInfo]:
        self._require("list")
        found: list[TaskInfo] = []
        cursor: str | None = None
        for _ in range(self._client.limits.pages):
            page = _read(await self.request("tasks/list", {} if cursor is None else {"cursor": cursor}), _Tasks)
            found += map(_info, page.tasks)
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise InvalidResponse("tasks/list: the pages of the server don't end")

    async def cancel(self, task_id: str) -> None:
        if not self._stateless:
            self._require("cancel")
        await self.request("tasks/cancel", {"taskId": task_id})

    async def follow(self, task: _Task, total: float | None, on_status: OnStatus | None) -> _Task:
        """Wait until a task has ended, and answer what it asks: each request once. Raises CallTimeout."""
        clock = TimeLeft(total)
        asked: set[str] = set()
        told: TaskInfo | None = None
        while True:
            info = _info(task)
            if on_status is not None and info != told:
                await awaited(on_status(info))
            told = info
            if info.ended:
                return task
            try:
                if not (info.status == "input_required" and await self._answer(task, asked, clock)):
                    pause = min(max(_POLL if info.poll_interval is None else info.poll_interval, _SHORTEST), _LONGEST)
                    left = clock.left
                    await asyncio.sleep(pause if left is None else min(pause, left))
                if clock.left == 0:
                    raise CallTimeout("")
                task = await self.fetch(task.task_id, clock.left)
            except CallTimeout as exc:
                if clock.left != 0:
                    raise
                text = f"The task {task.task_id} did not end within {total:g} seconds: it is {info.status}"
                raise CallTimeout(text) from exc

    async def _answer(self, task: _Task, asked: set[str], clock: TimeLeft) -> bool:
        """Answer the requests that are new; in the handshake era the server sends them while `tasks/result` waits."""
        if not self._stateless:
            await self.outcome(task, total=clock.left)
            return True
        new = {key: item for key, item in task.input_requests.items() if key not in asked}
        if not new:
            return False
        asked.update(new)
        if len(asked) > MOST_REQUESTS or sum(map(len, asked)) > MOST_REQUESTS * _KEY_LENGTH:
            raise InvalidResponse(f"The task {task.task_id} has requested more input than {MOST_REQUESTS} times")
        with clock.paused():
            answers = await self._client.answer_inputs(InputRequiredResult(input_requests=new))
        await self.request("tasks/update", {"taskId": task.task_id, "inputResponses": answers})
        return True

    async def outcome(self, task: _Task, **limits: float | None) -> dict[str, Any] | PeerError:
        """The result of a task of the handshake era, or its error. Waits, and lets the server ask."""
        try:
            return await self.request("tasks/result", {"taskId": task.task_id}, **{"idle": None, **limits})
        except PeerError as exc:
            return exc

    async def result(self, task: _Task, total: float | None = None) -> dict[str, Any]:
        """The result of a task that has ended, within `total` seconds or as fast as any request. Raises PeerError."""
        if task.status == "cancelled":
            raise PeerError(ErrorObject(-32603, "The task was cancelled", UNSET))
        if self._stateless:
            if task.error is not None:
                raise PeerError(task.error)
            if task.result is None:
                raise InvalidResponse(f"The task {task.task_id} is {task.status}, and has no result")
            return task.result
        limits = self._client.limits
        outcome = await self.outcome(task, idle=limits.call_idle, total=limits.call_total if total is None else total)
        if isinstance(outcome, PeerError):
            raise outcome
        return outcome

    def finish(
        self, name: str, result: dict[str, Any], returns: object, *, raise_on_error: bool
    ) -> CallToolResult[Any]:
        """A result as `call_tool` returns it. Raises ToolCallError and InvalidResponse."""
        read = _read(result, CallToolResult)
        return self._client.finish_tool_result(name, read, returns=returns, raise_on_error=raise_on_error)


class _Handle(ToolTask[DataT], Generic[DataT]):
    """A tool call that became a task, or was answered at once."""

    def __init__(self, tasks: TasksOfClient, tool: str, returns: object, raise_on_error: bool) -> None:
        self._tasks = tasks
        self._tool = tool
        self._returns = returns
        self._raise_on_error = raise_on_error
        self._task: _Task | None = None
        #: The result of a call that was answered at once.
        self.outcome: dict[str, Any] | None = None
        self._end_progress: Callable[[], object] | None = None

    def receive_progress(self, client: Client, token: str, on_progress: OnProgress | None) -> None:
        """Receive progress until the task has ended, or nobody has this handle any more."""
        client.receive_progress(token, on_progress)
        self._end_progress = weakref.finalize(self, client.end_progress, token)

    def take(self, task: _Task) -> TaskInfo:
        """Keep a state."""
        self._task, info = task, _info(task)
        if info.ended and self._end_progress is not None:
            self._end_progress()
        return info

    @property
    def id(self) -> str | None:
        return None if self._task is None else self._task.task_id

    @property
    def info(self) -> TaskInfo:
        return TaskInfo(id="", status="completed") if self._task is None else _info(self._task)

    async def refresh(self) -> TaskInfo:
        if self._task is None:
            return self.info
        return self.take(await self._tasks.fetch(self._task.task_id))

    async def wait(self, *, total: float | None = None, on_status: OnStatus | None = None) -> TaskInfo:
        if self._task is None:
            return self.info
        return self.take(await self._tasks.follow(self._task, total, on_status))

    async def result(self, *, total: float | None = None, on_status: OnStatus | None = None) -> CallToolResult[DataT]:
        clock = TimeLeft(total)
        await self.wait(total=total, on_status=on_status)
        result = self.outcome if self._task is None else await self._tasks.result(self._task, clock.left)
        assert result is not None
        return self._tasks.finish(self._tool, result, self._returns, raise_on_error=self._raise_on_error)

    async def cancel(self) -> None:
        if self._task is not None and not self.info.ended:
            await self._tasks.cancel(self._task.task_id)


class TasksClient(ClientExtension):
    """The extension Tasks of a client: `Client(url, extensions=[TasksClient])`.

    It is declared with every request, so that a server of the stateless era may answer any call with a task. `call_tool`
    waits for the result of such a task, within its time limit `total`, and returns it like any other.
    `call_tool(…, task=True)` and `client.tasks` need no extension.

    A server of 2025-11-25 may send requests for input as tasks, and fetch the answers of the callbacks later: up to 100 tasks,
    which are kept for 10 minutes unless the server asks for another time, at most an hour.

    Specification: https://modelcontextprotocol.io/extensions/tasks/overview, and basic/utilities/tasks of 2025-11-25.
    """

    id: ClassVar[str] = ID
    eras: ClassVar[Sequence[EraName]] = ("2025", "2026")
    result_types: ClassVar[Sequence[str]] = ("task",)

    def __init__(self) -> None:
        self._client: ClientMethods | None = None
        self._received = ReceivedTasks(self._from_callbacks)

    def _from_callbacks(self) -> ClientCapabilities:
        return self._client.callbacks.capabilities if isinstance(self._client, Client) else ClientCapabilities()

    def declare(self, capabilities: ClientCapabilities, era: EraName) -> ClientCapabilities:
        """Declare the extension, or `tasks` in the handshake era.

        Args:
            capabilities: What the client declares without it.
            era: The era of the server.

        Returns:
            What the client declares with it.
        """
        if _DECLARED_EACH_TIME[ERAS[era]]:
            return super().declare(capabilities, era)
        return msgspec.structs.replace(capabilities, tasks=self._received.declared)

    def requests(self) -> Iterable[ClientMethod]:
        """The requests of handshake servers that it serves.

        Returns:
            Those about tasks that the server made here.
        """
        return self._received.requests()

    def middleware(self) -> Iterable[ClientMiddleware]:
        """The middleware that it adds to the client.

        Returns:
            What makes tasks of requests for input.
        """
        return (self._received.serve,)

    async def close(self) -> None:
        """Cancel the tasks that the server made here."""
        await self._received.close()

    def sends(self) -> Iterable[SentMethod]:
        """The requests that it sends.

        Returns:
            Those of tasks.
        """
        return SENT

    def attach(self, client: ClientMethods) -> None:
        """Keep the client.

        Args:
            client: The client.
        """
        self._client = client

    async def resolve(self, ctx: ClientContext, result: dict[str, Any]) -> Any:
        """Wait for the result of a call that became a task.

        Args:
            ctx: The call.
            result: The task.

        Returns:
            The result of the call.

        Raises:
            InvalidResponse: Another request than a tool call was answered with a task.
            PeerError: The task failed.
        """
        if ctx.method != "tools/call" or not isinstance(self._client, Client):
            raise InvalidResponse(f"{ctx.method} can't be answered with a task")
        tasks = TasksOfClient(self._client)
        return await tasks.result(await tasks.follow(_read(result, _Task), None, None))
