"""Input in the stateless era: the call ends with `input_required`, and a retry with the answers runs the handler again.

A retry runs the handler from its top. Answers are found again by what was requested, results of steps by what was called;
both travel in the encrypted `requestState`. See basic/patterns/mrtr of the specification.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gemel.errors import GemelError, InvalidParams, NotFinished, Overloaded
from gemel.jsonrpc import ABSENT
from gemel.protocol.records import Call
from gemel.protocol.states import RUNNING
from gemel.schema.input_required import InputRequest, InputRequiredResult
from gemel.schema.methods import METHODS
from gemel.server.elicitation import request_state
from gemel.server.elicitation.elicit import ClientInput, InputRequired, KeyedElicitation, StepCall, scope_of_step
from gemel.server.elicitation.request_state import RequestStateCodec
from gemel.session import Session
from gemel.timeouts import wait_shared


class _Retry(msgspec.Struct):
    """What a retry brings in its params."""

    input_responses: Raw | UnsetType = msgspec.field(name="inputResponses", default=UNSET)
    request_state: str | None = msgspec.field(name="requestState", default=None)


class _StoredState(msgspec.Struct, array_like=True):
    """What travels in `requestState`: answers and results of steps by key, as JSON text, and the keys that were requested.

    `call_id` tells this call from others with the same params, for the keys of its steps. `large` names the results of steps
    that the backend keeps, by the key of the step.
    """

    answers: dict[str, bytes]
    steps: dict[str, bytes]
    requested: list[str]
    call_id: str = ""
    large: dict[str, str] = {}


_retry_decoder = msgspec.json.Decoder(_Retry)
_state_decoder = msgspec.msgpack.Decoder(_StoredState)


def _hash(data: Any) -> bytes:
    from hashlib import sha256

    return sha256(data).digest()


class _Suspension:
    """A handler that ends because its call has to wait: its task is cancelled, which ends all that it awaits.

    Tasks that are ready to run have their turn before, so that what they request joins the round. A handler that is not
    over `limit` seconds later is cancelled again.
    """

    def __init__(self, task: asyncio.Task[Any], limit: float) -> None:
        self.cancels = 0
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

    def _cancel(self) -> None:
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


class StatelessElicitation(KeyedElicitation):
    """The requests for input of one call over all its rounds."""

    def __init__(self, session: Session, call: Call, codec: RequestStateCodec) -> None:
        super().__init__(session, call)
        self._codec = codec
        self._suspensions: dict[asyncio.Task[Any], _Suspension] = {}
        self._suspended = False
        #: Whether a step ran in this round.
        self._has_run_steps = False
        #: What earlier rounds brought, once it is decrypted.
        self._state = _StoredState({}, {}, [])
        self._loading: asyncio.Task[None] | None = None
        try:
            self._retry: _Retry | None = _retry_decoder.decode(call.params if call.params is not ABSENT else b"{}")
        except msgspec.MsgspecError as exc:
            raise InvalidParams("Invalid request parameters", str(exc)) from None
        if self._retry.request_state is None:
            self._retry = None

    async def load(self) -> None:
        """Decrypt what earlier rounds brought, once. Raises InvalidParams, and Overloaded if that needs a backend that is away."""
        if self._retry is None:
            return
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(self._retry))
        await wait_shared(self._loading)

    async def _load(self, retry: _Retry) -> None:
        assert retry.request_state is not None
        self._state = _state_decoder.decode(await self._codec.decode(retry.request_state, self._binding()))
        self._keep_answers(retry.input_responses)
        self._retry = None

    def _keep_answers(self, responses: Raw | UnsetType) -> None:
        """Keep the answers to what the state says was requested and not answered; others are ignored."""
        if responses is UNSET or bytes(responses) == b"null":
            return
        try:
            answers = msgspec.json.decode(responses, type=dict[str, Raw])
        except msgspec.MsgspecError:
            raise InvalidParams("inputResponses must be an object of answers by key") from None
        for key, value in answers.items():
            if key in self._state.requested and key not in self._state.answers:
                self._state.answers[key] = bytes(value)

    def _binding(self) -> bytes:
        """What a state is bound to: the principal, the method, the params."""
        call = self._call
        params = msgspec.json.decode(call.params if call.params is not ABSENT else b"{}")
        for key in ("_meta", "inputResponses", "requestState"):
            params.pop(key, None)
        text = msgspec.json.encode([call.origin.owner, call.method, params], order="deterministic")
        return _hash(text)

    def add(self, item: ClientInput[Any]) -> None:
        """Enter a request for input into this round, unless an earlier round brought its answer."""
        method = self._call.method
        row = METHODS.get(method)
        if self._call.id is not None and (row is None or not row.may_ask):
            raise GemelError(
                f"{method} can't request input from a stateless client: only tools/call, prompts/get and resources/read can"
            )
        super().add(item)

    async def answer(self, item: ClientInput[Any]) -> Any:
        """The answer of an earlier round; without one the handler is suspended."""
        assert item.key is not None
        await self.load()
        answer = self._state.answers.get(item.key)
        if answer is None:
            await self.suspend(item.task)
        try:
            return msgspec.json.decode(answer, type=item.kind)
        except msgspec.MsgspecError as exc:
            raise InvalidParams(f"inputResponses.{item.key} is no valid answer: {exc}") from None

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
        self._has_run_steps = True
        _, text = await call.run(self._running_step(state.call_id, key))
        if len(text) > self._session.connection.limits.step_bytes:
            state.large[key] = await self._codec.store_result(f"{state.call_id}:{key}", text, call.name)
        else:
            state.steps[key] = text
        self._forget(scope_of_step(key))
        return call.read(text)

    def _forget(self, scope: str) -> None:
        """Forget what was requested in a step that is over: no round will request it again."""
        for table in (self._requested, self._state.answers, self._state.steps, self._state.large):
            for key in [key for key in table if key.startswith(scope)]:
                del table[key]

    async def hand_over(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """End the rounds, because the call goes on in another way: return the answers and results of steps by key."""
        await self.load()
        self._suspended = True
        large = {key: await self._codec.stored_result(name) for key, name in self._state.large.items()}
        return dict(self._state.answers), self._state.steps | large

    # ---------------------------------------------------------------- the end of a round

    async def suspend(self, task: asyncio.Task[Any] | None) -> NoReturn:
        """End the handler: by a cancellation of its task, which ends what it awaits; in a thread by an exception there."""
        if task is None:
            raise InputRequired
        suspension = self._suspensions.get(task)
        if suspension is None:
            suspension = self._suspensions[task] = _Suspension(task, self._session.connection.limits.teardown)
        elif task is asyncio.current_task():
            suspension.repeat()
        await suspension.wait()

    async def settle(self, task: asyncio.Task[Any], error: BaseException | None) -> InputRequiredResult | None:
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
        return await self._result()

    async def _result(self) -> InputRequiredResult:
        forgotten = sorted((self._state.answers.keys() - self._requested.keys()) & set(self._state.requested))
        if forgotten:
            raise GemelError(
                f"{self._call.method}: the input {forgotten[0]!r} was answered, but this round did not request it again: a "
                "handler must request the same in every round; what varies (time, chance, I/O) belongs in ctx.step"
            )
        self._suspended = True
        self._state.requested = list(self._requested)
        requests = {
            key: InputRequest(method=item.method, params=item.params)
            for key, item in self._requested.items()
            if key not in self._state.answers
        }
        return InputRequiredResult(
            result_type="input_required", input_requests=requests, request_state=await self._encode()
        )

    async def _encode(self) -> str:
        """The state of this round. Raises NotFinished if it has done something once and can't be kept, else Overloaded."""

        async def encode() -> str:
            await self._codec.renew_results(self._state.large.values())
            return await self._codec.encode(msgspec.msgpack.encode(self._state), self._binding())

        if not self._has_run_steps:
            return await encode()
        from gemel.backends.patience import store_patiently

        try:
            return await store_patiently(encode, request_state.PATIENCE, "What steps have done")
        except Overloaded as exc:  # not "call again": the steps would run again
            raise NotFinished(f"{self._call.method}: what its steps have done can't be kept: {exc}") from exc

    def check_awaited(self) -> None:
        """A suspended handler need not have awaited everything."""
        if not self._suspended:
            super().check_awaited()
