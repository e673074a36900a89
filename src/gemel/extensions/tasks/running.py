"""One run of a task in this process: what its handler asks, remembers and reports, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, NoReturn
from weakref import ReferenceType

import msgspec
from msgspec import UNSET

from gemel.channel import ChannelKind
from gemel.errors import (
    BackendError,
    ChannelClosed,
    ConnectionLost,
    DefinitionError,
    ErrorObject,
    GemelError,
    MissingClientCapability,
    NotFinished,
    Overloaded,
    ProtocolError,
    ToolError,
    internal_error,
    shorten,
)
from gemel.extensions.tasks.stored_tasks import (
    MESSAGE_LENGTH,
    Event,
    Journal,
    StoredAnswer,
    StoredInput,
    TaskGone,
    TaskRecord,
    TaskStore,
    keep_trying,
)
from gemel.protocol.limits import FIXED_LIMITS
from gemel.protocol.records import Call, Outgoing
from gemel.protocol.states import CallState
from gemel.schema.base import RESERVED, Result
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.notifications import ProgressParams
from gemel.server.elicitation.elicit import ClientInput, InputRefused, KeyedElicitation, RunningStep, StepCall
from gemel.session import Session
from gemel.timeouts import wait_shared
from gemel.values.encoding import ordered_text

logger = logging.getLogger("gemel")

#: Names the task in the `_meta` of messages that belong to it (Tasks, "Related Task Metadata").
RELATED = RESERVED + "related-task"

#: Seconds between two looks at the record of a task that waits for input, in case that a change was not reported.
_LOOK_AGAIN = 5.0
#: Seconds between two stored status messages.
_MESSAGE_PAUSE = 0.25


class _TaskNotification(msgspec.Struct):
    params: dict[str, Any] = msgspec.field(default_factory=dict)


_progress = msgspec.json.Decoder(ProgressParams)
_notification = msgspec.json.Decoder(_TaskNotification)


class TaskChannel:
    """The channel of a task that runs: nobody reads it. Progress becomes the status message of the task.

    A client of the handshake era whose session is open here gets the notifications, too.
    """

    kind: ChannelKind = "background"

    def __init__(self, running: RunningTask) -> None:
        self.running = running

    async def send(self, message: Outgoing, /) -> None:
        """Take one message of the handler. Raises ChannelClosed for a request."""
        if message.pending is not None or message.method is None:
            raise ChannelClosed("the client of a task is not connected to it")
        params = _notification.decode(message.data).params
        if message.method == "notifications/progress":
            self.running.report(msgspec.convert(params, ProgressParams))
        await self.running.forward(message.method, params)

    async def close(self) -> None:
        """Do nothing."""

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        """There is no stream."""
        return False

    def set_revision(self, revision: str, /) -> None:
        """Do nothing."""


class RunningTask:
    """A task that this process runs.

    Args:
        record: Its record; the run has begun.
        store: Where it is stored.
        journal: Its journal, which is loaded.
        input_bytes: The bytes that all its requests for input and their answers may have.
        changed: Called after each change of the record.
        session: The session that the call came from, if it is to get notifications.
        has_token: Whether the client asked for progress.
        waiting: `TaskEngine.waiting`.
    """

    def __init__(
        self,
        record: TaskRecord,
        store: TaskStore,
        journal: Journal,
        *,
        input_bytes: int,
        changed: Callable[[str], None],
        session: ReferenceType[Session] | None,
        has_token: bool,
        waiting: Callable[[str], AbstractAsyncContextManager[None]],
    ) -> None:
        self.record = record
        self.journal = journal
        self._store = store
        self._input_bytes = input_bytes
        self._changed = changed
        self._session = session
        self._has_token = has_token
        self._idle = waiting
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.Future[StoredAnswer]] = {}
        self._refreshing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._message: str | None = None
        self._messages: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[Any]] = set()
        self._handler: asyncio.Task[Any] | None = None
        #: The call of the handler, once it runs.
        self.call: Call | None = None
        #: Why the run has to end without a result: the task was cancelled, or another run has begun.
        self.stopped = ""
        #: Why something could not be recorded: then the run does not count.
        self.lost: BackendError | None = None
        #: The scopes of the steps that run, and whether the run ends when they are recorded, to go on in another process.
        self._steps: set[str] = set()
        self._released = False
        #: Whether this process leaves the task to others, and whether another run has begun.
        self._leaves = False
        self._overtaken = False

    # ---------------------------------------------------------------- the run

    async def run(self, handler: Callable[[], Awaitable[Any]]) -> Any:
        """Run the handler of the task until it ends, or its time is over. Raises TaskGone if the run has to end before."""
        self._handler = asyncio.current_task()
        watching = self._loop.create_task(self._watch())
        limit = asyncio.timeout(max(self.record.expires - time.time(), 0))
        try:
            async with limit:
                return await handler()
        except asyncio.CancelledError:
            if not self.stopped:
                raise
            if self._handler is not None:
                self._handler.uncancel()
            raise TaskGone(self.stopped) from None
        except TimeoutError:
            if not limit.expired():
                raise
            raise TaskGone("the time of the task is over") from None
        finally:
            self._handler = None
            if self.call is not None and self.call.state is CallState.RUNNING:
                self.call.state = CallState.DROPPED
            ending = {watching, *self._closing, *([self._messages] if self._messages is not None else [])}
            for task in ending:
                task.cancel()
            await asyncio.wait(ending)

    def poke(self) -> None:
        """Look at the record soon, from any thread: it may have been changed."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake.set)

    async def _watch(self) -> None:
        """Look at the record whenever it may have been changed by others."""
        while True:
            again = _LOOK_AGAIN if self._store.backend.shared else None
            with suppress(TimeoutError):
                async with asyncio.timeout(again):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.refresh()
            except TaskGone as exc:
                self.stop(str(exc))
            except GemelError as exc:
                logger.warning("The task %s could not be looked at: %s", self.record.id, exc)

    def stop(self, reason: str) -> None:
        """End the handler without a result."""
        if self.stopped or self._handler is None:
            return
        self.stopped = reason
        if self.call is not None and self.call.state is CallState.RUNNING:
            self.call.state = CallState.CANCELLED
        self._handler.cancel()

    def release(self) -> bool:
        """End the run after the steps that are running. Returns whether there are any; else the caller cancels the run."""
        self._leaves = self._store.backend.shared
        self._released = self._busy() and self._handler is not None and not self._handler.cancelling()
        return self._released

    def is_repeated(self, error: BaseException | None) -> bool:
        """Whether the handler, which has ended this way, is called again by another run."""
        left = self._leaves and not self.stopped and isinstance(error, asyncio.CancelledError)
        return left or self._overtaken or self.lost is not None

    def _busy(self) -> bool:
        """Whether a step runs that does not wait for input."""
        return any(not any(key.startswith(scope) for key in self._waiting) for scope in self._steps)

    def _end_if_released(self) -> None:
        if self._released and self._handler is not None and not self._busy():
            self._handler.cancel()

    async def step(self, key: str, call: StepCall, step: RunningStep) -> bytes:
        """Call the function of a step and record its result, which is returned as JSON text."""
        if self._released:
            await asyncio.Future[None]()  # until the run is cancelled
        self._steps.add(step.scope)
        try:
            if not call.retry:
                await self._record("begun", key)
            try:
                _, text = await call.run(step)
            except Exception as exc:
                if not call.retry:
                    text = shorten(f"{call.name} failed: {exc}", MESSAGE_LENGTH).encode("utf-8", "replace")
                    await self._to_the_end(self._record("failed", key, text))
                raise
            await self._to_the_end(self._record("done", key, text))
        finally:
            self._steps.discard(step.scope)
            self._end_if_released()
        return text

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Store what was done, though the run is cancelled: no other run may have begun yet. A second time, it is given up."""
        if not self._store.backend.shared:
            return await work
        storing = self._loop.create_task(work)
        try:
            await wait_shared(storing)
        except asyncio.CancelledError:
            await asyncio.wait([storing])
            raise
        finally:
            storing.cancel()

    async def _record(self, event: Event, key: str, text: bytes = b"") -> None:
        try:
            await self._append(event, key, text)
        except BackendError as exc:
            self.lost = exc
            raise

    async def _append(self, event: Event, key: str, text: bytes, error: ErrorObject | None = None) -> None:
        try:
            await self.journal.append(event, key, text, error)
        except TaskGone:
            self._overtaken = True
            raise

    async def refresh(self) -> None:
        """Take what others changed in the record: answers, or its end. Raises TaskGone."""
        async with self._refreshing:
            record = await self._store.get(self.record.id)
            if record is None:
                raise TaskGone("the task is gone")
            self._check_run(record)
            record.run = self.record.run  # the number of an earlier run is there if the store has lost its last writes
            self.record = record
            if record.status == "cancelled":
                raise TaskGone("the task was cancelled")
            if record.answers:
                await self._take(record.answers)
        for key in list(self._waiting):
            if (answer := self.journal.answers.get(key)) is not None:
                future = self._waiting.pop(key)
                if not future.done():
                    future.set_result(answer)

    def _check_run(self, record: TaskRecord) -> None:
        """Raise TaskGone if another run has begun."""
        if record.run > self.record.run:
            self._overtaken = True
            raise TaskGone("the task runs elsewhere")

    async def _take(self, answers: dict[str, StoredAnswer]) -> None:
        """Move answers from the record to the journal."""
        for key, answer in answers.items():
            if key not in self.journal.answers:
                await self._append("answer", key, answer.result, answer.error)

        def taken(record: TaskRecord) -> bool:
            for key in answers:
                record.answers.pop(key, None)
            return True

        await self._change(taken, silent=True)

    async def _change(self, edit: Callable[[TaskRecord], bool], *, silent: bool = False) -> None:
        """Change the record, as long as this run is the latest. Raises TaskGone."""

        def mine(record: TaskRecord) -> bool:
            self._check_run(record)
            if record.ended:
                raise TaskGone("the task has ended")
            record.run = self.record.run
            return edit(record)

        self.record = await self._store.change(self.record.id, mine)
        if not silent:
            self._changed(self.record.id)

    # ---------------------------------------------------------------- input

    async def ask(self, inputs: dict[str, StoredInput]) -> None:
        """Store requests for input that are new. Raises GemelError if they are too many or too large."""
        size = sum(len(item.params) for item in inputs.values())

        def add(record: TaskRecord) -> bool:
            new = {key: item for key, item in inputs.items() if key not in record.inputs and key not in record.answers}
            if not new:
                return False
            if len(record.inputs) + len(new) > FIXED_LIMITS.task_inputs:
                raise GemelError(f"A task requests at most {FIXED_LIMITS.task_inputs} inputs at once")
            if record.input_bytes + size > self._input_bytes:
                raise GemelError(f"The input of a task has at most {self._input_bytes} bytes together")
            record.inputs.update(new)
            record.input_bytes += size
            record.move("input_required")
            return True

        try:
            await keep_trying(lambda: self._change(add))
        except (BackendError, Overloaded) as exc:
            self.lost = BackendError(f"The input that a task requests can't be stored: {exc}")
            raise self.lost from exc

    async def answer(self, key: str) -> StoredAnswer:
        """Wait for the answer to a request for input that was stored."""
        answer = self.journal.answers.get(key)
        if answer is not None:
            return answer
        future: asyncio.Future[StoredAnswer] = self._loop.create_future()
        self._waiting[key] = future
        self._end_if_released()
        self.poke()
        try:
            async with self._idle(self.record.id):
                return await future
        except asyncio.CancelledError:
            if not self.stopped and self._handler is not None:  # the handler does not want it any more
                self._start(self._withdraw(key))
            raise
        finally:
            self._waiting.pop(key, None)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _withdraw(self, key: str) -> None:
        def remove(record: TaskRecord) -> bool:
            if record.inputs.pop(key, None) is None:
                return False
            if not record.inputs:
                record.move("working")
            return True

        with suppress(TaskGone):
            await self._change(remove)

    # ---------------------------------------------------------------- reports

    def report(self, progress: ProgressParams) -> None:
        """Show progress as the status message."""
        amount = f"{progress.progress:g}" if progress.total is None else f"{progress.progress:g}/{progress.total:g}"
        text = amount if not progress.message else f"{amount}: {progress.message}"
        self._message = shorten(text, MESSAGE_LENGTH)
        if self._messages is None or self._messages.done():
            self._messages = self._loop.create_task(self._store_messages())

    async def _store_messages(self) -> None:
        while (message := self._message) is not None:
            self._message = None

            def show(record: TaskRecord, message: str = message) -> bool:
                record.message = message
                return True

            try:
                await self._change(show)
            except GemelError as exc:
                logger.debug("A status message is not stored: %s", exc)
            await asyncio.sleep(_MESSAGE_PAUSE)

    async def forward(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification of the handler to the session that the call came from, if that is open in this process."""
        session = None if self._session is None else self._session()
        if session is None or session.connection.closed is not None:
            return
        if method == "notifications/progress" and not self._has_token:
            return
        meta = {**params.get("_meta", {}), RELATED: {"taskId": self.record.id}}
        with suppress(ChannelClosed, ConnectionLost):
            await session.notify(method, {**params, "_meta": meta})

    # ---------------------------------------------------------------- the end

    async def complete(self, result: bytes, *, failed: bool) -> None:
        """Store the result and the final state. Raises TaskGone, and Overloaded if there is no room for it."""
        await self._to_the_end(self._complete(result, failed=failed))

    async def _complete(self, result: bytes, *, failed: bool) -> None:
        parts = await keep_trying(lambda: self._store.store_result(self.record, result))

        def end(record: TaskRecord) -> bool:
            record.move("completed")
            record.result_parts, record.failed = parts, failed
            record.inputs, record.answers = {}, {}
            return True

        await self._end(end)

    async def fail(self, error: ErrorObject) -> None:
        """Store an error as the final state. Raises TaskGone."""
        await self._to_the_end(self._end(lambda record: record.end_with(error)))

    async def _end(self, edit: Callable[[TaskRecord], bool]) -> None:
        try:
            await keep_trying(lambda: self._change(edit))
        except TaskGone:
            self._changed(self.record.id)  # an earlier attempt may have stored it
            raise


class TaskElicitation(KeyedElicitation):
    """The requests for input and the steps of a task, in both eras: the handler waits, and the record says for what."""

    def __init__(self, session: Session, call: Call, running: RunningTask) -> None:
        super().__init__(session, call)
        self._running = running
        #: What was requested and is not stored yet.
        self._new: dict[str, StoredInput] = {}
        #: What the next request for input needs of the client.
        self._unchecked: tuple[ClientCapabilities, Mapping[str, Any]] | None = None

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._running.record.id

    def is_repeated(self, error: BaseException | None) -> bool:
        """Whether another run goes on."""
        return self._running.is_repeated(error)

    def check_capabilities(self, client: ClientCapabilities, need: Mapping[str, Any]) -> None:
        """Leave that to `add`: what was answered before the call became a task, as on a page, needs nothing of the client."""
        self._unchecked = client, need

    def add(self, item: ClientInput[Any]) -> None:
        """Enter a request for input. Raises GemelError for a key that is used already, and MissingClientCapability."""
        super().add(item)
        assert item.key is not None
        unchecked, self._unchecked = self._unchecked, None
        if item.key not in self._running.journal.answers:
            if unchecked is not None:
                try:
                    super().check_capabilities(*unchecked)
                except MissingClientCapability:
                    self._inputs.remove(item)
                    del self._requested[item.key]
                    raise
            params = ordered_text(item.params) if item.params is not UNSET else b""
            self._new[item.key] = StoredInput(item.method, params)

    async def answer(self, item: ClientInput[Any]) -> Any:
        """Store all that was requested so far, and wait for the answer; meanwhile the time limit of the call is paused."""
        assert item.key is not None
        if item.timeout is not None:
            item.timeout.pause()
        try:
            if self._new:
                new, self._new = self._new, {}
                await self._running.ask(new)
            answer = await self._running.answer(item.key)
        finally:
            if item.timeout is not None:
                item.timeout.resume()
        if answer.error is not None:
            raise InputRefused(answer.error, item.method)
        try:
            return msgspec.json.decode(answer.result, type=item.kind)
        except msgspec.MsgspecError as exc:
            raise ToolError(f"The client's answer to {item.method} can't be read: {exc}") from exc

    async def step(self, call: StepCall) -> Any:
        """Run the step, unless the journal has its result."""
        journal = self._running.journal
        key = self._step_key(call)
        text = journal.steps.get(key)
        if text is not None:
            return call.read(text)
        if key in journal.failed:
            raise ToolError(journal.failed[key])
        if not call.retry and key in journal.begun:
            raise NotFinished(f"the process ended while the step {call.name} ran")
        return call.read(await self._running.step(key, call, self._running_step(self._running.record.id, key)))

    async def suspend(self, task: asyncio.Task[Any] | None) -> NoReturn:
        """A task waits; it has no rounds."""
        raise GemelError(f"{self._call.method}: a task can't end with resultType input_required: use ctx.elicit")

    async def settle(self, task: asyncio.Task[Any], error: BaseException | None) -> Result | None:
        """Handlers are not suspended."""
        return None


def error_of(exc: BaseException, call: Call) -> ErrorObject:
    """The error that a task fails with, as its era sends it."""
    if not isinstance(exc, ProtocolError):
        level = logger.error if isinstance(exc, DefinitionError | Overloaded) else logger.exception
        level("The task of %s failed: %s", call.method, exc)
        return internal_error(exc).error
    return call.era.finish_error(exc)[0].error
