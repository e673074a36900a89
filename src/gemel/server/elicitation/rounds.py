"""Handlers that run again from their top when what they wait for is there: suspending them, their answers and steps.

What a call has so far is a `RoundState`: answers are found again by what was requested, results of steps by what was called.
Where it is kept meanwhile is the matter of a subclass.
"""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from gemel.errors import GemelError, InvalidParams, NotFinished, Overloaded
from gemel.jsonrpc import ABSENT
from gemel.protocol.records import Call
from gemel.protocol.states import RUNNING
from gemel.schema.base import Result
from gemel.schema.input_required import InputRequiredResult
from gemel.server.elicitation import request_state
from gemel.server.elicitation.elicit import ClientInput, InputRequired, KeyedElicitation, StepCall, scope_of_step
from gemel.server.elicitation.request_state import RequestStateCodec
from gemel.session import Session
from gemel.timeouts import wait_shared

KeptT = TypeVar("KeptT")


class RoundState(msgspec.Struct, array_like=True):
    """What is kept between rounds: answers and results of steps by key, as JSON text, and the keys that were requested.

    `call_id` tells this call from others with the same params, for the keys of its steps. `large` names the results of steps
    that the backend keeps, by the key of the step.
    """

    answers: dict[str, bytes] = {}
    steps: dict[str, bytes] = {}
    requested: list[str] = []
    call_id: str = ""
    large: dict[str, str] = {}


StateT = TypeVar("StateT", bound=RoundState)


def _hash(data: Any) -> bytes:
    from hashlib import sha256

    return sha256(data).digest()


class _Suspension:
    """A handler that ends because its call has to wait: its task is cancelled, which ends all that it awaits.

    Tasks that are ready to run have their turn before, so that what they request joins the round, and steps end before, since
    they must not run twice. A handler that is not over `limit` seconds later is cancelled again.
    """

    def __init__(self, task: asyncio.Task[Any], limit: float, is_at_work: Callable[[], bool]) -> None:
        self.cancels = 0
        self._is_at_work = is_at_work
        self._waiters: list[asyncio.Future[None]] = []
        self._task = task
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle = self._loop.call_soon(self._cancel)
        #: Tasks that are cancelled for other reasons, and those that were cancelled with the handler.
        self._others = _cancelled_tasks() if asyncio.current_task() is not task else set()
        self._ending: set[asyncio.Task[Any]] = set()

    def repeat(self) -> None:
        """The handler caught the cancellation and requests input again."""
        self._next.cancel()
        self._next = self._loop.call_soon(self._cancel)

    async def wait(self) -> NoReturn:
        """Wait for the cancellation, in the handler's task or in one that it awaits."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if asyncio.current_task() is not self._task:
                self._ending |= _cancelled_tasks() - self._others
            raise
        raise AssertionError("a suspended handler is never resumed")

    def work_ended(self) -> None:
        """Go on, if this waited for it."""
        if not self.cancels:
            self.repeat()

    def _cancel(self) -> None:
        if not self.cancels and self._is_at_work():
            return  # whose end calls `work_ended`
        self.cancels += 1
        self._task.cancel()
        self._next = self._loop.call_later(self._limit, self._cancel)

    async def end(self) -> None:
        """The handler is over: its task runs on when what was cancelled with it is over, too.

        `asyncio.gather` ends with the first of its tasks; the others may still clean up.
        """
        self._next.cancel()
        for waiter in self._waiters:
            waiter.cancel()
        for _ in range(self.cancels):
            self._task.uncancel()
        ending = {task for task in self._ending if not task.done() and task is not self._task}
        if ending:
            await asyncio.wait(ending, timeout=self._limit)


def _cancelled_tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task.cancelling()}


class RepeatedElicitation(KeyedElicitation, Generic[StateT]):
    """The requests for input of one call over all its rounds.

    Args:
        session: The session of the call.
        call: The call.
        codec: Keeps results of steps that are too large.
        state: An empty state.
    """

    def __init__(self, session: Session, call: Call, codec: RequestStateCodec, state: StateT) -> None:
        super().__init__(session, call)
        self._codec = codec
        self._suspensions: dict[asyncio.Task[Any], _Suspension] = {}
        self._suspended = False
        #: The result of the round, once it has ended.
        self._ended_with: Result | None = None
        #: Whether a step ran in this round.
        self._has_run_steps = False
        #: What the end of a round waits for: keys of steps that are running, without those that wait for input; other work.
        self._at_work: set[object] = set()
        #: Results of this round that are too large for the state, with the names of their functions, by the key of the step.
        self._large: dict[str, tuple[bytes, str]] = {}
        #: What earlier rounds brought, once it is loaded.
        self._state = state
        self._loading: asyncio.Task[None] | None = None

    @property
    def _state_ttl(self) -> float | None:
        """Seconds that the state of a round is kept; None for as long as one that a client carries."""
        return None

    @property
    def has_ended_round(self) -> bool:
        return self._suspended or any(suspension.cancels for suspension in self._suspensions.values())

    async def load(self) -> None:
        """Load what earlier rounds brought, once. Raises what `_load` raises."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        await wait_shared(self._loading)

    @abstractmethod
    async def _load(self) -> None:
        """Set the state of earlier rounds, with the answers that came since."""

    @abstractmethod
    async def _end_round(self) -> Result:
        """Keep the state; return the result of a round whose handler was suspended."""

    def _binding(self) -> bytes:
        """What a state is bound to: the principal, the method, the params."""
        call = self._call
        params = msgspec.json.decode(call.params if call.params is not ABSENT else b"{}")
        for key in ("_meta", "inputResponses", "requestState"):
            params.pop(key, None)
        text = msgspec.json.encode([self._owner(params), call.method, params], order="deterministic")
        return _hash(text)

    def _owner(self, params: dict[str, Any]) -> Any:
        """Whom a state belongs to. What is taken out of the params does not count as one."""
        return self._call.origin.owner

    async def answer(self, item: ClientInput[Any]) -> Any:
        """The answer of an earlier round; without one the handler is suspended. Raises what `_store_large` raises."""
        assert item.key is not None
        await self.load()
        answer = self._state.answers.get(item.key)
        if answer is None:
            await self._store_large()
            await self.suspend(item.task)
        try:
            return msgspec.json.decode(answer, type=item.kind)
        except msgspec.MsgspecError as exc:
            raise InvalidParams(f"inputResponses.{item.key} is not a valid answer: {exc}") from None

    async def step(self, call: StepCall) -> Any:
        """Run the step in each round that reaches it, until it ends: it is over, then, with all that was requested in it."""
        await self.load()
        key, state = self._step_key(call), self._state
        if key in state.steps:
            return call.read(state.steps[key])
        if key in state.large:
            return call.read(await self._codec.stored_result(state.large[key]))
        if not state.call_id:
            state.call_id = os.urandom(16).hex()
        for suspension in self._suspensions.values():
            if suspension.cancels:
                await suspension.wait()  # the round ends: what begins now would be lost
        self._has_run_steps = True
        with self.at_work(key):
            _, text = await call.run(self._running_step(state.call_id, key))
            if len(text) > self._session.connection.limits.step_bytes:
                self._large[key] = text, call.name
            else:
                state.steps[key] = text
            self._forget(scope_of_step(key))
        return call.read(text)

    @contextmanager
    def at_work(self, what: object = None) -> Iterator[None]:
        work = object() if what is None else what
        self._at_work.add(work)
        try:
            yield
        finally:
            self._at_work.discard(work)
            for suspension in self._suspensions.values():
                suspension.work_ended()

    async def _store_large(self) -> None:
        """Store the large results of steps: another round will need them. Raises what `store_result` raises."""
        while self._large:
            key, (text, function) = next(iter(self._large.items()))
            step = f"{self._state.call_id}:{key}"
            self._state.large[key] = await self._codec.store_result(step, text, function, ttl=self._state_ttl)
            self._large.pop(key, None)

    async def recall(self, key: str) -> bytes | None:
        await self.load()
        return self._state.steps.get(key)

    def remember(self, key: str, value: bytes | None) -> None:
        self._forget(key)
        if value is not None:
            self._state.steps[key] = value
            self._has_run_steps = True

    def _forget(self, scope: str) -> None:
        """Forget what was requested in a step that is over: no round will request it again."""
        for table in (self._requested, self._state.answers, self._state.steps, self._state.large, self._large):
            for key in [key for key in table if key.startswith(scope)]:
                del table[key]

    def is_relayed(self, result: InputRequiredResult) -> bool:
        """Whether this isn't the end of the present round, whose handler was suspended."""
        return self._ended_with is None or result.request_state != getattr(self._ended_with, "request_state", None)

    async def hand_over(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """End the rounds, because the call goes on in another way: return the answers and results of steps by key."""
        await self.load()
        self._suspended = True
        large = {key: await self._codec.stored_result(name) for key, name in self._state.large.items()}
        large |= {key: text for key, (text, _) in self._large.items()}
        return dict(self._state.answers), self._state.steps | large

    # ---------------------------------------------------------------- the end of a round

    async def suspend(self, task: asyncio.Task[Any] | None) -> NoReturn:
        """End the handler: by a cancellation of its task, which ends what it awaits; in a thread by an exception there."""
        if task is None:
            raise InputRequired
        scope = self._scope()
        self._at_work -= {key for key in self._at_work if isinstance(key, str) and scope.startswith(scope_of_step(key))}
        suspension = self._suspensions.get(task)
        if suspension is None:
            teardown = self._session.connection.limits.teardown
            suspension = _Suspension(task, teardown, lambda: bool(self._at_work))
            self._suspensions[task] = suspension
        elif task is asyncio.current_task():
            suspension.repeat()
        else:
            suspension.work_ended()
        await suspension.wait()

    async def settle(self, task: asyncio.Task[Any], error: BaseException | None) -> Result | None:
        """The result of this round, if the handler in this task was suspended, or a sync handler requires input."""
        suspension = self._suspensions.pop(task, None)
        if suspension is not None:
            await suspension.end()
        if not isinstance(error, InputRequired) and (suspension is None or not suspension.cancels):
            return None
        if error is not None and not isinstance(error, asyncio.CancelledError | InputRequired):
            return None
        if self._call.state is not RUNNING or task.cancelling():
            return None
        self._check_repeated()
        self._suspended = True
        self._state.requested = list(self._requested)
        self._ended_with = await self._end_round()
        return self._ended_with

    def _check_repeated(self) -> None:
        """Raise GemelError if an answer of an earlier round was not requested in this one."""
        forgotten = sorted((self._state.answers.keys() - self._requested.keys()) & set(self._state.requested))
        if forgotten:
            raise GemelError(
                f"{self._call.method}: the input {forgotten[0]!r} was answered, but this round did not request it again: a "
                "handler must request the same in every round; what varies (time, chance, I/O) belongs in ctx.step"
            )

    async def _keep(self, keep: Callable[[], Awaitable[KeptT]]) -> KeptT:
        """Keep the state. Raises NotFinished if steps ran in this round and it can't be kept, else Overloaded."""
        await self._store_large()

        async def keep_all() -> KeptT:
            await self._codec.renew_results(self._state.large.values(), ttl=self._state_ttl)
            return await keep()

        if not self._has_run_steps:
            return await keep_all()
        from gemel.backends.patience import store_patiently

        try:
            return await store_patiently(keep_all, request_state.PATIENCE, "What steps have done")
        except Overloaded as exc:  # not "call again": the steps would run again
            raise NotFinished(f"{self._call.method}: what its steps have done can't be kept: {exc}") from exc

    def check_awaited(self) -> None:
        """A suspended handler need not have awaited everything."""
        if not self._suspended:
            super().check_awaited()
