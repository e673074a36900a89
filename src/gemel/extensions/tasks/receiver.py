"""Tasks that a server of 2025-11-25 makes at this client: its requests for input, answered later.

https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from gemel.client.callbacks import InvalidAnswer, check_answer
from gemel.client.extensions import ClientMethod
from gemel.client.methods import CallNext, ClientContext
from gemel.errors import ErrorObject, InvalidParams, Overloaded, ProtocolError, shorten
from gemel.extensions.tasks.handshake import Augmentation, Task, related
from gemel.extensions.tasks.stored_tasks import new_id
from gemel.extensions.tasks.times import timestamp
from gemel.loops import PerLoop
from gemel.protocol.revisions.adapt import shape
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.revisions import V2025_11
from gemel.values.encoding import plain_value

logger = logging.getLogger("gemel")

#: Tasks of a server that are kept at once.
MOST: Final = 100
#: Seconds for which a task is kept: by default, at least and at most.
_TTL, _SHORTEST, _LONGEST = 600.0, 1.0, 3600.0
#: Milliseconds that the server should wait between two requests.
_POLL: Final = 1000


class _TaskParams(Struct, rename="camel"):
    task_id: str


class _Received:
    """One task.

    Args:
        ttl: Seconds for which it is kept.
    """

    def __init__(self, ttl: float) -> None:
        self.id = new_id()
        self.ttl = ttl
        self.created = self.updated = time.time()
        self.status = "working"
        self.result: dict[str, Any] = {}
        self.error: ErrorObject | None = None
        self.work: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()

    def end(self, status: str) -> None:
        """Enter a state that never changes again."""
        if not self.ended.is_set():
            self.status, self.updated = status, time.time()
            self.ended.set()

    def shown(self) -> Task:
        """The task as the server sees it."""
        created, updated = timestamp(self.created), timestamp(self.updated)
        ttl = int(self.ttl * 1000)
        return Task(
            task_id=self.id,
            status=self.status,
            created_at=created,
            last_updated_at=updated,
            ttl=ttl,
            poll_interval=_POLL,
        )


class ReceivedTasks:
    """The tasks of the server of one client. They end when it is closed.

    Args:
        capabilities: Gives what the callbacks of the client declare.
    """

    def __init__(self, capabilities: Callable[[], ClientCapabilities]) -> None:
        self._capabilities = capabilities
        #: In each event loop, by id.
        self._by_loop: PerLoop[dict[str, _Received]] = PerLoop(dict)

    @property
    def _tasks(self) -> dict[str, _Received]:
        return self._by_loop.here()

    @property
    def declared(self) -> dict[str, Any] | None:
        """What the client declares: the requests that it has a callback for. It has no list, since no server needs it."""
        capabilities, requests = self._capabilities(), dict[str, Any]()
        if capabilities.sampling is not None:
            requests["sampling"] = {"createMessage": {}}
        if capabilities.elicitation is not None:
            requests["elicitation"] = {"create": {}}
        return {"cancel": {}, "requests": requests} if requests else None

    def requests(self) -> Iterable[ClientMethod]:
        """The requests about tasks."""
        return (
            ClientMethod(name="tasks/get", serve=self._get, params=_TaskParams),
            ClientMethod(name="tasks/result", serve=self._result, params=_TaskParams),
            ClientMethod(name="tasks/cancel", serve=self._cancel, params=_TaskParams),
        )

    async def serve(self, ctx: ClientContext, call_next: CallNext) -> Any:
        """Middleware: a request for input with `task` becomes a task, if this client declared that."""
        augmentation = ctx.params.get("task", UNSET) if ctx.inbound and ctx.request_id is not None else UNSET
        if augmentation is UNSET or ctx.protocol_version < V2025_11 or not self._is_declared(ctx.method):
            return await call_next(ctx)
        try:
            wish = msgspec.convert(augmentation, Augmentation).ttl
        except msgspec.ValidationError as exc:
            raise InvalidParams("Invalid request parameters", f"task: {exc}") from None
        self._forget_expired()
        if len(self._tasks) >= MOST:
            raise Overloaded(f"Too many tasks: {MOST} are the limit of this client", retry_after_ms=1000)
        task = _Received(_TTL if wish is UNSET or wish is None else min(max(wish / 1000, _SHORTEST), _LONGEST))
        params = {name: value for name, value in ctx.params.items() if name != "task"}
        self._tasks[task.id] = task
        task.work = asyncio.create_task(self._run(task, ctx.replace(params=params), call_next))
        return Raw(msgspec.json.encode({"task": task.shown()}))

    def _is_declared(self, method: str) -> bool:
        family, _, name = method.partition("/")
        requests = (self.declared or {}).get("requests", {})
        return name in requests.get(family, {})

    async def close(self) -> None:
        """Cancel all tasks, and forget them."""
        tasks = list(self._tasks.values())
        self._by_loop.forget()
        for task in tasks:
            task.end("cancelled")
            if task.work is not None:
                task.work.cancel()

    async def _run(self, task: _Received, ctx: ClientContext, call_next: CallNext) -> None:
        try:
            async with asyncio.timeout(task.ttl):
                answer = check_answer(ctx.method, await call_next(ctx))
            task.result = plain_value(shape(answer, ctx.protocol_version))
            task.end("completed")
        except ProtocolError as exc:
            task.error = exc.error
        except TimeoutError:
            task.error = ErrorObject(-32603, "The task did not end in time")
        except InvalidAnswer as exc:  # the text is complete: no traceback
            logger.error("%s", exc)
            task.error = ErrorObject(-32603, f"The client's answer to {ctx.method} is not valid, so it was not sent")
        except Exception:
            logger.exception("%s failed", ctx.method)
            task.error = ErrorObject(-32603, "Internal error")
        finally:
            task.end("failed")

    # ---------------------------------------------------------------- requests

    def _forget_expired(self) -> None:
        now = time.time()
        for task in [task for task in self._tasks.values() if task.created + task.ttl <= now]:
            del self._tasks[task.id]

    def _find(self, params: _TaskParams) -> _Received:
        self._forget_expired()
        task = self._tasks.get(params.task_id)
        if task is None:
            raise InvalidParams("Unknown task", {"taskId": shorten(params.task_id)})
        return task

    async def _get(self, ctx: ClientContext, params: _TaskParams) -> Any:
        return self._find(params).shown()

    async def _result(self, ctx: ClientContext, params: _TaskParams) -> Any:
        task = self._find(params)
        await task.ended.wait()
        if task.error is not None:
            raise ProtocolError(task.error.message, task.error.data, code=task.error.code)
        if task.status == "cancelled":
            raise ProtocolError("The task was cancelled", UNSET, code=-32603)
        return related(task.result, task.id)

    async def _cancel(self, ctx: ClientContext, params: _TaskParams) -> Any:
        task = self._find(params)
        if task.ended.is_set():
            raise InvalidParams(f"The task can't be cancelled: it is {task.status}")
        task.end("cancelled")
        if task.work is not None:
            task.work.cancel()
        return task.shown()
