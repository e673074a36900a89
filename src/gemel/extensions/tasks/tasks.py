"""The extension object of a server: `server.add_extension(Tasks())`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, TypeVar
from weakref import ReferenceType, WeakValueDictionary, ref

import msgspec
from msgspec import UNSET, Raw, Struct, field

from gemel.backends import backend_for
from gemel.backends.base import Backend, Event
from gemel.errors import (
    BackendError,
    ChannelClosed,
    ConnectionLost,
    DefinitionError,
    ErrorObject,
    GemelError,
    InvalidParams,
    MethodNotFound,
    NotFinished,
    Overloaded,
    PeerError,
    ProtocolError,
    shorten,
)
from gemel.extensions.base import Extension
from gemel.extensions.tasks import handshake, stateless
from gemel.extensions.tasks.backend_engine import BackendEngine
from gemel.extensions.tasks.bounds import TaskBounds
from gemel.extensions.tasks.engine import TaskEngine
from gemel.extensions.tasks.forms import NO_WISH, TaskForm
from gemel.extensions.tasks.limits import TaskLimits
from gemel.extensions.tasks.running import RunningTask, TaskChannel, TaskElicitation, error_of
from gemel.extensions.tasks.stored_tasks import (
    StoredAnswer,
    StoredCall,
    StoredCaller,
    StoredInput,
    TaskGone,
    TaskRecord,
    TaskStore,
    new_id,
    owner_of,
)
from gemel.loops import Abandoned, PerLoop
from gemel.options import Check, check_values, instance, is_number
from gemel.protocol.changes import Changed, ChangesLost
from gemel.protocol.eras.base import Era, EraName
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.http.headers import judge_parameters
from gemel.protocol.limits import FIXED_LIMITS
from gemel.protocol.records import Call
from gemel.schema.base import Model, PageParams, RequestMeta, Result
from gemel.schema.methods import METHODS
from gemel.schema.revisions import V2025_11
from gemel.schema.tools import CallToolParams, CallToolResult
from gemel.server.context import Context, served_call
from gemel.server.elicitation.rounds import RepeatedElicitation
from gemel.server.extensions import CallTool, Method, Topic
from gemel.server.features.pagination import paginate
from gemel.server.features.tools import RegisteredTool
from gemel.server.features.visibility import require_scopes
from gemel.server.middleware.rate_limit import caller_of
from gemel.server.server import Server
from gemel.session import Session
from gemel.shares import Shares
from gemel.values.encoding import encode_value

logger = logging.getLogger("gemel")

_FORMS: Mapping[Era, TaskForm] = {HANDSHAKE: handshake.HandshakeForm(), STATELESS: stateless.StatelessForm()}

#: The kind of `Changed` for a task; its key is the id.
KIND = "task"
#: Seconds without a change after which somebody who asks for a task has the engine look for it, and tasks that a process
#: remembers to have looked for.
_LOST, _MOST_LOOKED = 5.0, 10_000
_DEFAULT_LIMITS = TaskLimits()
_SECONDS = Check(lambda value: is_number(value) and 0 < value < float("inf"), "use seconds, more than 0")
_OPTIONS = {
    "ttl": _SECONDS,
    "max_ttl": _SECONDS,
    "poll_interval": _SECONDS,
    "limits": instance(TaskLimits, "limits=TaskLimits(…)"),
}


class TaskParams(Model, kw_only=True):
    """Params that name a task."""

    task_id: str = ""


class UpdateParams(Model, kw_only=True):
    """Params of `tasks/update`: answers by the keys of the requests for input."""

    task_id: str = ""
    input_responses: dict[str, Raw] = field(default_factory=dict)


class _CallMeta(Struct):
    meta: RequestMeta | None = field(name="_meta", default=None)


class BeginTask(BaseException):
    """Ends a handler whose call goes on as a task. No Exception, so that `except Exception` passes it."""


#: The call whose handler may let it go on as a task.
_may_begin: ContextVar[Call | None] = ContextVar("gemel_may_begin_task", default=None)

_meta_of = msgspec.json.Decoder(_CallMeta)
ParamsT = TypeVar("ParamsT")


@contextmanager
def _try_again() -> Iterator[None]:
    """A store that can't be reached now is an error with a retry delay. Raises Overloaded in place of BackendError."""
    try:
        yield
    except BackendError as exc:
        if exc.retry_after_ms is None:
            raise
        logger.warning("The store of tasks can't be used: %s", exc)
        raise Overloaded("The store of tasks can't be reached: try again later", exc.retry_after_ms) from exc


def _retried_later(serve: Callable[[Context[Any], ParamsT], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    """The handler of a request that may be repeated."""

    async def handle(ctx: Context[Any], params: ParamsT) -> Any:
        with _try_again():
            return await serve(ctx, params)

    return handle


class Tasks(Extension):
    """The protocol extension Tasks: `server.add_extension(Tasks())`, and then `@server.tool(task=True)`.

    A call of such a tool, by a client that can use tasks, is answered at once with a handle. The client fetches the result
    later, also after it was restarted. The tool itself is written as always: `ctx.elicit` and the like ask the client while
    the task waits, progress becomes the status message, and a cancelled task ends like a cancelled call. Clients that can't
    use tasks make a plain call.

    With a backend that other processes share, tasks survive the end of their process: another one calls the function again,
    and what it called by `ctx.step` is not repeated. In memory they end with the process.

    Specification: https://modelcontextprotocol.io/extensions/tasks/overview, and basic/utilities/tasks of 2025-11-25.

    Args:
        backend: Where tasks are stored: a URL or object as of `Server(backend=…)`; that of the server by default.
        engine: What runs them; by default one that suits the backend.
        ttl: Seconds for which a task is kept after it was made, if the client has no wish.
        max_ttl: The longest such time that a client can ask for, in seconds.
        poll_interval: Seconds that clients should wait before they ask again.
        limits: How many tasks there may be, and how large; see `TaskLimits`.

    Raises:
        DefinitionError: A value is out of range.

    Example:
        ```python
        server.add_extension(Tasks())


        @server.tool(task=True)
        async def report(year: int, ctx: Context) -> str: ...
        ```
    """

    id: ClassVar[str] = stateless.ID
    result_types: ClassVar[Sequence[str]] = ("task",)

    def __init__(
        self,
        *,
        backend: Backend | str | None = None,
        engine: TaskEngine | None = None,
        ttl: float = 24 * 3600.0,
        max_ttl: float = 7 * 24 * 3600.0,
        poll_interval: float = 1.0,
        limits: TaskLimits = _DEFAULT_LIMITS,
    ) -> None:
        check_values(locals(), _OPTIONS)
        self._given_backend = backend
        self._owns_backend = isinstance(backend, str)
        self._given_engine = engine
        self._ttl = min(ttl, max_ttl)
        self._max_ttl = max_ttl
        self._poll = max(int(poll_interval * 1000), 1)
        self._limits = limits
        self._server: Server[Any] | None = None
        self._opened: tuple[TaskStore, TaskEngine, TaskBounds] | None = None
        self._loops = PerLoop(_LoopTasks, abandon=_LoopTasks.abandon)

    # ---------------------------------------------------------------- what the extension adds to a server

    def capabilities(self, era: EraName) -> Mapping[str, Any]:
        """Return what a server announces: the extension, or `tasks` in the handshake era.

        Args:
            era: The era of the client.

        Returns:
            Members of the capabilities. Lists are offered only where callers are authenticated.
        """
        return _FORMS[ERAS[era]].capabilities(listed=self._home.auth is not None)

    def requests(self) -> Iterable[Method]:
        """Return the requests that it serves.

        Returns:
            Those of both forms.
        """
        common: dict[str, Any] = {"since": V2025_11, "open": True, "connection": False}
        both: dict[str, Any] = {"params": TaskParams, "name_field": "task_id", **common}
        old: dict[str, Any] = {"eras": ("2025",), **common}
        return (
            Method(name="tasks/get", serve=_retried_later(self._get), **both),
            Method(name="tasks/cancel", serve=_retried_later(self._cancel), **both),
            Method(
                name="tasks/update",
                serve=_retried_later(self._update),
                params=UpdateParams,
                name_field="task_id",
                eras=("2026",),
                connection=False,
            ),
            Method(name="tasks/result", serve=_retried_later(self._result), params=TaskParams, waits=True, **old),
            Method(name="tasks/list", serve=_retried_later(self._list), params=PageParams, **old),
        )

    def topics(self) -> Iterable[Topic]:
        """Return what clients can subscribe to.

        Returns:
            The state of tasks, by their ids.
        """
        return (
            Topic(key="taskIds", kind=KIND, method="notifications/tasks", accept=self._accept, describe=self._describe),
        )

    def attach(self, server: Server[Any]) -> None:
        """Keep the server.

        Args:
            server: The server that it is added to.

        Raises:
            DefinitionError: It was added to one already, or the URL of the backend is unknown.
        """
        if self._server is not None:
            raise DefinitionError("These Tasks belong to a server already: make others with Tasks()")
        self._server = server

    @property
    def not_shared(self) -> str:
        """The tasks, if they are in the memory of this process."""
        given = self._given_backend or self._home.backend
        shared = given != "memory://" if isinstance(given, str) else given.shared
        return "" if shared else "the tasks"

    @asynccontextmanager
    async def lifespan(self, server: Server[Any]) -> AsyncIterator[None]:
        """Run tasks while the server serves.

        Args:
            server: The server.
        """
        here = self._loops.here()
        here.serves = True
        if self._owns_backend:
            self._store.backend.reopen()
        here.stop = self._store.backend.subscribe(partial(self._on_event, here))
        try:
            await self._engine.start(_Runner(self._execute, here.running, self._store, self._bounds))
            yield
        finally:
            await self._engine.close()
            here.stop()
            here.serves = False
            for telling in list(here.telling.values()):
                telling.cancel()
            if self._owns_backend and not any(other.serves for other in self._loops.all()):
                await self._store.backend.close()

    @property
    def _home(self) -> Server[Any]:
        if self._server is None:
            raise DefinitionError("These Tasks belong to no server yet: write server.add_extension(Tasks())")
        return self._server

    @property
    def _open(self) -> tuple[TaskStore, TaskEngine, TaskBounds]:
        if self._opened is None:
            given = self._given_backend
            home = self._home.backend
            backend = home if given is None else home.part_of(backend_for(given))
            engine = self._given_engine or BackendEngine(backend, grace=self._home.limits.teardown / 2)
            if isinstance(engine, BackendEngine):
                engine.use_backend(home)
            bounds = TaskBounds(self._limits, shared=backend.shared)
            self._opened = TaskStore(backend), engine, bounds
        return self._opened

    @property
    def _store(self) -> TaskStore:
        return self._open[0]

    @property
    def _engine(self) -> TaskEngine:
        return self._open[1]

    @property
    def _bounds(self) -> TaskBounds:
        return self._open[2]

    # ---------------------------------------------------------------- calls that become tasks

    def begin(self, ctx: Context[Any]) -> None:
        """Let the call go on as a task, in a tool with `task_start="handler"`: `tasks.begin(ctx)`.

        The client gets its handle, and the function is called once more from its top, as a task: it finds the answers that
        it got so far, and what it called by `ctx.step` is not repeated. In a task, and in a call of a client that can't use
        tasks, this does nothing.

        Args:
            ctx: The context of the call.
        """
        if _may_begin.get() is served_call(ctx).call:
            raise BeginTask

    async def call_tool(self, ctx: Context[Any], params: CallToolParams, call_next: CallTool) -> Any:
        """Answer a call with a task, where the tool, the client and the revision provide for it.

        Args:
            ctx: The context of the call.
            params: The params of the call.
            call_next: Calls the tool.

        Returns:
            The result of the call, or a task.

        Raises:
            ProtocolError: The call must be a task, or can't be one.
            Overloaded: There are too many tasks.
        """
        if ctx.depth or isinstance(served_call(ctx).session.channel, TaskChannel):
            return await call_next(ctx, params)
        tool = await self._home.catalog.find_tool(ctx, params.name)
        form = _FORMS[served_call(ctx).call.era]
        wish = None if tool is None else form.requested_ttl(ctx, params.name, tool.task_support)
        if tool is None or wish is None:
            return await call_next(ctx, params)
        if tool.task_start == "call" or form.begins_at_once:
            return form.created(await self._create(ctx, params, tool, wish))
        token = _may_begin.set(served_call(ctx).call)
        try:
            return await call_next(ctx, params)
        except BeginTask:
            return form.created(await self._create(ctx, params, tool, wish))
        finally:
            _may_begin.reset(token)

    async def _create(self, ctx: Context[Any], params: CallToolParams, tool: RegisteredTool, wish: float) -> TaskRecord:
        """Store a task and submit it: it is durable when this returns."""
        call, now = served_call(ctx).call, time.time()
        require_scopes(ctx, tool.item.scopes)
        head = call.origin.head
        if tool.header_params and head is not None and call.era.mirrors_requests(over_http=True):
            judge_parameters(head, tool.header_params, msgspec.json.decode(params.arguments))
        if len(params.arguments) > self._limits.argument_bytes:
            raise InvalidParams(f"The arguments of a task have at most {self._limits.argument_bytes} bytes")
        ttl = self._ttl if wish == NO_WISH else min(max(wish / 1000, 1.0), self._max_ttl)
        record = TaskRecord(
            id=new_id(),
            owner=owner_of(call.origin.owner),
            era=call.era.name,
            revision=call.revision,
            tool=params.name,
            created=now,
            updated=now,
            ttl=int(ttl * 1000),
            poll=self._poll,
        )
        caller = caller_of(ctx)
        for task_id in self._bounds.uncertain(caller):
            with _try_again():
                there = await self._store.get(task_id)
            if there is None or there.ended:
                self._bounds.end(task_id)
        gone = self._bounds.add(caller, record.id, record.expires, now, len(params.arguments))
        try:
            await self._delete(gone)
            await self._store_call(ctx, record)
        except BaseException:
            self._bounds.forget(record.id)
            raise
        return record

    async def _delete(self, task_ids: Iterable[str]) -> None:
        """Delete tasks that have ended, to make room for others. If the store fails, they expire."""
        for task_id in task_ids:
            try:
                record = await self._store.get(task_id)
                if record is not None and record.ended:  # it may run in another process
                    await self._store.delete(record)
                    if record.owner:
                        await self._store.delist(record.owner, task_id)
            except GemelError as exc:
                logger.warning("A task that has ended can't be deleted: %s", exc)

    async def _store_call(self, ctx: Context[Any], record: TaskRecord) -> None:
        """Store a new task with its call, and submit it."""
        call, session = served_call(ctx).call, served_call(ctx).session
        stored = StoredCall(params=_without_rounds(ctx.params), caller=StoredCaller.of(call.origin))
        if _FORMS[call.era].store_client(stored, session.connection):
            self._loops.here().sessions[record.id] = session
        elicitation = served_call(ctx).input_requests
        if isinstance(elicitation, RepeatedElicitation):
            stored.answers, stored.steps = await elicitation.hand_over()
        if record.owner:
            with _try_again():
                await self._store.enlist(record.owner, record.id, record.expires, self._limits.tasks_per_caller)
        try:
            with _try_again():
                await self._store.create(record, stored)
            try:
                await self._engine.submit(record.id)
            except BackendError as exc:
                raise NotFinished("the store of tasks failed when it was submitted") from exc
        except BaseException:
            if record.owner:
                await self._store.delist(record.owner, record.id)
            raise

    # ---------------------------------------------------------------- running

    async def _execute(self, task_id: str) -> None:
        """Run a task to its end. What the engine calls, perhaps again after another process has died."""
        here = self._loops.here()
        if task_id in here.running:
            return here.running[task_id].poke()

        def begin(record: TaskRecord) -> bool:
            record.run += 1
            return not record.ended

        try:
            record = await self._store.change(task_id, begin)
            if record.ended:
                return
            stored = await self._store.call_of(record)
        except TaskGone:
            return
        journal = self._store.journal(record, most=self._limits.steps)
        session = here.sessions.get(task_id)
        meta = _meta_of.decode(stored.params).meta or RequestMeta()
        running = here.running[task_id] = RunningTask(
            record,
            self._store,
            journal,
            input_bytes=self._limits.input_bytes,
            changed=self._publish,
            session=None if session is None else ref(session),
            has_token=meta.progress_token is not None,
            waiting=self._engine.waiting,
        )
        try:
            await self._run(running, stored, meta)
        except TaskGone as exc:
            logger.debug("The run of the task %s ended: %s", task_id, exc)
        finally:
            here.running.pop(task_id, None)

    async def _run(self, running: RunningTask, stored: StoredCall, meta: RequestMeta) -> None:
        record, journal = running.record, running.journal
        call = _call_of(record, stored, meta)
        running.call = call
        try:
            await journal.take_over(record.run)
            journal.steps = {**stored.steps, **journal.steps}
            journal.answers = {**{key: StoredAnswer(text) for key, text in stored.answers.items()}, **journal.answers}
            try:
                result = await running.run(lambda: self._serve(running, call, stored))
            except BackendError as exc:
                if running.lost is None:  # it is the tool's own
                    return await running.fail(error_of(exc, call))
                raise
            if running.lost is not None:
                raise running.lost
            await self._complete(running, result)
        except (TaskGone, BackendError):
            raise
        except asyncio.CancelledError:
            if not self._store.backend.shared:  # nobody else goes on with it
                await running.fail(NotFinished("the server stopped").error)
            raise
        except Exception as exc:
            if running.lost is not None:
                raise running.lost from exc
            await running.fail(error_of(exc, call))

    async def _serve(self, running: RunningTask, call: Call, stored: StoredCall) -> Any:
        """Call the tool as the client did, through the middleware of the server."""
        here = self._home.loops.here()
        session = here.serve(TaskChannel(running))
        _FORMS[call.era].restore_client(stored, session.connection, call.revision)
        return await here.go_on(session, call, TaskElicitation(session, call, running))

    async def _complete(self, running: RunningTask, result: object) -> None:
        failed = result.is_error if isinstance(result, CallToolResult) else bool(_member(result, "isError"))
        try:
            text = encode_value(result)
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as exc:
            raise GemelError(f"The result can't be written as JSON: {exc}") from exc
        if len(text) > self._limits.result_bytes:
            size = f"{len(text)} bytes, and {self._limits.result_bytes} are the limit"
            return await running.fail(ErrorObject(-32603, f"The result of the task is too large: it has {size}"))
        await self._delete(self._bounds.complete(running.record.id, len(text)))
        await running.complete(text, failed=failed)

    # ---------------------------------------------------------------- changes

    def _publish(self, task_id: str) -> None:
        """Tell all who are interested in a task that it changed, in all processes."""
        event = Changed(KIND, task_id)
        self._home.notify(event)
        if self._store.backend is not self._home.backend:
            self._store.backend.publish(event)

    def _on_event(self, here: _LoopTasks, event: Event) -> None:
        """Something changed; on any thread."""
        if isinstance(event, ChangesLost):
            ids = [*here.running, *here.waiting]
        else:
            ids = [event.uri] if event.kind == KIND and event.uri is not None else []
        if ids:
            with suppress(RuntimeError):  # the loop is closed
                here.loop.call_soon_threadsafe(self._changed, here, ids)

    def _changed(self, here: _LoopTasks, ids: Iterable[str]) -> None:
        for task_id in ids:
            if (running := here.running.get(task_id)) is not None:
                running.poke()
            for waiter in here.waiting.get(task_id, ()):
                waiter.set()
            session = here.sessions.get(task_id)
            if session is not None and session.connection.closed is None and task_id not in here.telling:
                here.telling[task_id] = here.loop.create_task(self._tell(here, task_id, ref(session)))

    async def _tell(self, here: _LoopTasks, task_id: str, known: ReferenceType[Session]) -> None:
        """`notifications/tasks/status` of the handshake era."""
        try:
            record, session = await self._store.get(task_id), known()
            here.telling.pop(task_id, None)  # a change from now on is told again
            if record is not None and session is not None:
                await session.notify("notifications/tasks/status", handshake.task_of(record))
        except (ChannelClosed, ConnectionLost, GemelError) as exc:
            logger.debug("The state of a task could not be sent: %s", exc)
        finally:
            if here.telling.get(task_id) is asyncio.current_task():
                del here.telling[task_id]

    async def _accept(self, ctx: Context[Any], value: list[str]) -> list[str]:
        """The tasks that a caller may subscribe to."""
        most = self._home.limits.watched
        if len(value) > most:
            raise InvalidParams(f"Too many tasks in one subscription: {most} is the limit here")
        return [task_id for task_id in dict.fromkeys(value) if await self._seen(ctx, task_id) is not None]

    async def _describe(self, ctx: Context[Any], key: str | None) -> dict[str, Any] | None:
        record = await self._seen(ctx, key)
        if record is None:
            return None
        return stateless.detailed(record, await self._store.result_of(record) if record.status == "completed" else None)

    # ---------------------------------------------------------------- requests

    async def _seen(self, ctx: Context[Any], task_id: str | None) -> TaskRecord | None:
        """The task of an id, if it exists for this caller."""
        record = await self._store.get(task_id)
        return None if record is None or record.owner != owner_of(served_call(ctx).call.origin.owner) else record

    async def _found(self, ctx: Context[Any], task_id: str) -> TaskRecord:
        """The same. Raises InvalidParams, and MissingClientCapability for a client that did not declare what it needs."""
        record = await self._seen(ctx, task_id)
        _FORMS[served_call(ctx).call.era].may_ask(ctx, record)
        if record is None:
            raise InvalidParams("Unknown task", {"taskId": shorten(task_id)})
        await self._restore(record)
        return record

    async def _restore(self, record: TaskRecord) -> None:
        """Have a task run that the store has lost from the engine, if it has not changed for some time."""
        looked, now = self._loops.here().looked, time.time()
        if (
            record.ended
            or not self._store.backend.shared
            or now - max(record.updated, looked.get(record.id, 0)) < _LOST
        ):
            return
        looked.pop(record.id, None)
        looked[record.id] = now
        if len(looked) > _MOST_LOOKED:
            del looked[next(iter(looked))]
        try:
            await self._engine.restore(record.id)
        except GemelError as exc:
            logger.warning("It can't be told whether the task %s runs: %s", record.id, exc)

    async def _get(self, ctx: Context[Any], params: TaskParams) -> Any:
        record = await self._found(ctx, params.task_id)
        form = _FORMS[served_call(ctx).call.era]
        try:
            result = (
                await self._store.result_of(record) if form.shows_results and record.status == "completed" else None
            )
            return form.shown(record, result)
        except TaskGone:
            raise InvalidParams("Unknown task", {"taskId": shorten(params.task_id)}) from None

    async def _cancel(self, ctx: Context[Any], params: TaskParams) -> Any:
        record = await self._found(ctx, params.task_id)
        ended = False

        def cancel(record: TaskRecord) -> bool:
            nonlocal ended
            ended = record.ended
            if not ended:
                record.move("cancelled")
                record.message = "The task was cancelled."
                record.inputs, record.answers = {}, {}
            return not ended

        with suppress(TaskGone):
            record = await self._store.change(record.id, cancel)
        if not ended:
            self._publish(record.id)
            if (running := self._loops.here().running.get(record.id)) is not None:
                running.stop("the task was cancelled")
            await self._engine.wake(record.id)
        return _FORMS[served_call(ctx).call.era].cancelled(record, too_late=ended)

    async def _update(self, ctx: Context[Any], params: UpdateParams) -> None:
        record = await self._found(ctx, params.task_id)
        answers: dict[str, StoredAnswer] = {}
        for key, item in record.inputs.items():
            if key in params.input_responses:
                text = bytes(params.input_responses[key])
                _check_answer(item.method, text, key)
                answers[key] = StoredAnswer(text)
        if answers:
            await self._answer(record.id, answers)

    async def _answer(self, task_id: str, answers: dict[str, StoredAnswer]) -> None:
        """Store answers; those to what is not requested any more are ignored. Raises InvalidParams if they are too large."""
        size = sum(len(answer.result) for answer in answers.values())

        def add(record: TaskRecord) -> bool:
            wanted = {key: answer for key, answer in answers.items() if key in record.inputs}
            if not wanted or record.ended:
                return False
            if record.input_bytes + size > self._limits.input_bytes:
                raise InvalidParams(f"The input of a task has at most {self._limits.input_bytes} bytes together")
            record.input_bytes += size
            for key, answer in wanted.items():
                del record.inputs[key]
                record.answers[key] = answer
            if not record.inputs:
                record.move("working")
            return True

        with suppress(TaskGone):
            await self._store.change(task_id, add)
            self._publish(task_id)
            await self._engine.wake(task_id)

    # ---------------------------------------------------------------- the handshake era only

    async def _list(self, ctx: Context[Any], params: PageParams) -> dict[str, Any]:
        owner = owner_of(served_call(ctx).call.origin.owner)
        if not owner:
            raise MethodNotFound(ctx.method)
        names = [{"name": task_id} for task_id in await self._store.ids_of(owner)]
        page, cursor = paginate(names, params.cursor, FIXED_LIMITS.task_page)
        records = [await self._seen(ctx, entry["name"]) for entry in page]
        tasks = [
            handshake.task_of(record) for record in records if record is not None and HANDSHAKE.knows(record.revision)
        ]
        return {"tasks": tasks, **({} if cursor is None else {"nextCursor": cursor})}

    async def _result(self, ctx: Context[Any], params: TaskParams) -> dict[str, Any]:
        """`tasks/result`: wait for the end; meanwhile ask the client what the task asks."""
        record = await self._found(ctx, params.task_id)
        here, holder = self._loops.here(), served_call(ctx).call.origin.holder
        most = self._home.limits.streams
        # Nothing of this gives way to others, so a caller takes at most as much as it leaves to them.
        if here.waiters.held(holder) >= most - len(here.waiters):
            raise Overloaded(
                f"Too many requests wait for tasks: {most} at once is the limit here, half of it for a caller"
            )
        waiting, changed = here.waiting, asyncio.Event()
        waiters = waiting.setdefault(record.id, set())
        waiters.add(changed)
        here.waiters.add(holder, changed)
        asking: dict[str, asyncio.Task[None]] = {}
        asker = handshake.Asker(self._store.backend, record.id, self._publish)
        try:
            while not record.ended:
                if record.inputs and await asker.is_latest():
                    for key, item in record.inputs.items():
                        if key not in asking:
                            asking[key] = asyncio.ensure_future(self._ask(ctx, record.id, key, item))
                else:
                    for task in asking.values():
                        task.cancel()
                again = None if not self._store.backend.shared else 5.0
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(again or 3600.0, max(record.expires - time.time(), 0.001))):
                        await changed.wait()
                changed.clear()
                asking = {key: task for key, task in asking.items() if not task.done()}
                record = await self._found(ctx, record.id)
        finally:
            waiters.discard(changed)
            if not waiters:
                waiting.pop(record.id, None)
            here.waiters.discard(holder, changed)
            for task in asking.values():
                task.cancel()
            if asking:
                await asyncio.gather(*asking.values(), asker.leave(), return_exceptions=True)
        return await self._outcome(record)

    async def _outcome(self, record: TaskRecord) -> dict[str, Any]:
        """The result of a task that has ended. Raises the error that its call would have been answered with."""
        if record.error is not None:
            raise ProtocolError(record.error.message, record.error.data, code=record.error.code)
        if record.status == "cancelled":
            raise ProtocolError("The task was cancelled", UNSET, code=-32603)
        try:
            result = msgspec.json.decode(await self._store.result_of(record), type=dict[str, Any])
        except TaskGone:
            raise InvalidParams("Unknown task", {"taskId": record.id}) from None
        return handshake.related(result, record.id)

    async def _ask(self, ctx: Context[Any], task_id: str, key: str, item: StoredInput) -> None:
        """Send one request for input on the stream of `tasks/result`."""
        try:
            await self._answer(task_id, {key: await self._asked(ctx, task_id, item)})
        except (TimeoutError, GemelError) as exc:  # the client or the store is away: another request asks again
            logger.debug("The task %s could not ask for %s: %s", task_id, key, exc)

    async def _asked(self, ctx: Context[Any], task_id: str, item: StoredInput) -> StoredAnswer:
        params: dict[str, Any] = msgspec.json.decode(item.params) if item.params else {}
        limit = self._home.limits.input_wait
        try:
            call, session = served_call(ctx).call, served_call(ctx).session
            raw = await session.request(item.method, handshake.related(params, task_id), about=call, total=limit)
        except PeerError as exc:
            return StoredAnswer(error=exc.error)
        return StoredAnswer(bytes(raw))


class _LoopTasks:
    """What one event loop knows of tasks."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        #: Whether the lifespan was entered, and what ends the subscription to changes.
        self.serves = False
        self.stop: Callable[[], None] = lambda: None
        self.running: dict[str, RunningTask] = {}
        #: The sessions that calls came from, to tell them the state of their tasks.
        self.sessions: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self.telling: dict[str, asyncio.Task[None]] = {}
        #: Set when tasks that somebody waits for here have changed.
        self.waiting: dict[str, set[asyncio.Event]] = {}
        #: The same by holder.
        self.waiters: Shares[asyncio.Event] = Shares()
        #: When tasks were looked for in the engine that did not change, the latest at the end.
        self.looked: dict[str, float] = {}

    def abandon(self, why: Abandoned) -> None:
        """The event loop runs no more."""
        self.serves = False
        if why == "closed":
            self.stop()


class _Runner:
    """Runs tasks for an engine: a `TaskRunner`."""

    def __init__(
        self,
        run: Callable[[str], Awaitable[None]],
        running: Mapping[str, RunningTask],
        store: TaskStore,
        bounds: TaskBounds,
    ) -> None:
        self._run = run
        self._running = running
        self._store = store
        self._bounds = bounds

    async def run(self, task_id: str) -> None:
        """Run a task."""
        await self._run(task_id)
        self._bounds.end(task_id)
        if not self._store.backend.shared:
            await self._store.delete_run(task_id)

    def woken(self, task_id: str) -> None:
        """Look at the record of a task that runs here."""
        if (running := self._running.get(task_id)) is not None:
            running.poke()

    def release(self, task_id: str) -> bool:
        """End a run, as soon as the steps that run are recorded."""
        running = self._running.get(task_id)
        return running is not None and running.release()

    async def progress(self, task_id: str) -> int:
        """How many steps and answers a task has."""
        record = await self._store.get(task_id)
        if record is None:
            return 0
        journal = self._store.journal(record, most=1)
        await journal.load()
        return journal.progress

    async def fail(self, task_id: str, message: str) -> None:
        """End a task that can't be run."""
        with suppress(TaskGone):
            await self._store.change(task_id, lambda record: record.end_with(ErrorObject(-32603, message)))
        self._bounds.end(task_id)


def _without_rounds(params: Raw) -> bytes:
    """The params of a call without what belongs to one of its requests."""
    members = msgspec.json.decode(params, type=dict[str, Raw])
    for name in ("inputResponses", "requestState", "task"):
        members.pop(name, None)
    return msgspec.json.encode(members)


def _call_of(record: TaskRecord, stored: StoredCall, meta: RequestMeta) -> Call:
    """The call that a task runs. It always has a token, so that progress is reported."""
    era: Era = ERAS[record.era]
    if meta.progress_token is None:
        meta = msgspec.structs.replace(meta, progress_token=record.id)
    return Call(record.id, "tools/call", Raw(stored.params), meta, era, record.revision, stored.caller.origin)


def _check_answer(method: str, text: bytes, key: str) -> None:
    """Raise InvalidParams for what is not an answer to a request of that method; then the request stays open."""
    row = METHODS.get(method)
    kind: Any = Result if row is None or row.result is None else row.result
    try:
        msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as exc:
        raise InvalidParams(f"inputResponses.{shorten(key)} is not a valid answer: {shorten(str(exc))}") from None


def _member(result: object, name: str) -> Any:
    return result.get(name) if isinstance(result, Mapping) else None
