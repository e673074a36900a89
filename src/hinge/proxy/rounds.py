"""Calls of stateless clients that have to be asked something: in rounds, though the next server may be of either era.

A stateless server's question goes on to the caller with that server's state sealed inside ours. A handshake server waits
for its answer in the middle of the request; so the request is kept running, parked between the rounds, and never made
twice. What is parked is bounded in number and time, found only by the sealed state, and continued once.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from hinge.errors import CallError, InternalError, InvalidParams, Overloaded
from hinge.proxy.relay import Relay, answers_in
from hinge.proxy.translation import question_for, urls_required
from hinge.proxy.upstream import Asked, Upstream
from hinge.schema.elicitation import ElicitResult
from hinge.schema.input_required import InputRequest, InputRequiredResult
from hinge.server.context import Context
from hinge.server.elicitation.elicit import Declined, require


class _State(msgspec.Struct, array_like=True):
    """What the caller carries: the token of a parked request, or the next server's own state and our answers."""

    token: bytes = b""
    state: str | None = None
    own: dict[str, Any] = {}
    #: Pages that had to be opened before the request could be made.
    pages: bool = False


_decoder = msgspec.msgpack.Decoder(_State)


class Sent(NamedTuple):
    """A request as it goes to the next server."""

    method: str
    params: Mapping[str, Any]
    headers: Mapping[str, str]


class Rounds:
    """The stateless calls of one bridge. `ttl` is in seconds, `most` the number that may wait for their callers."""

    def __init__(self, upstream: Upstream, *, ttl: float, most: int) -> None:
        self._upstream = upstream
        self._ttl = ttl
        self._most = most
        self._parked: dict[bytes, tuple[Relay, asyncio.TimerHandle]] = {}
        self._tasks: set[asyncio.Task[Raw]] = set()

    async def serve(self, ctx: Context[Any], params: Any, sent: Sent) -> Raw | InputRequiredResult:
        """One round of a call: its result, or what the caller is asked. Raises CallError, InvalidParams, Declined."""
        state: _State | None = None
        if params.request_state is not UNSET:
            state = _decoder.decode(ctx._request_states.decode(params.request_state, _bound(ctx)))
        answers = answers_in(params.input_responses)
        if self._upstream.client.era == "2026":
            return await self._pass_on(ctx, sent, state, answers)
        if state is not None and state.pages:
            _require_consent(answers)
            state = None
        return await self._hold(ctx, sent, state, answers)

    def _sealed(self, ctx: Context[Any], state: _State) -> str:
        return ctx._request_states.encode(msgspec.msgpack.encode(state), _bound(ctx))

    # ---------------------------------------------------------------- the next server is stateless, too

    async def _pass_on(
        self, ctx: Context[Any], sent: Sent, state: _State | None, answers: dict[str, Raw]
    ) -> Raw | InputRequiredResult:
        params = dict(sent.params)
        if state is not None:
            given = {**answers, **state.own}
            params |= {"inputResponses": given} if given else {}
            params |= {"requestState": state.state} if state.state is not None else {}
        relay = self._upstream.relay(ctx)
        try:
            return await self._upstream.request(relay, sent.method, params, sent.headers)
        except Asked as exc:
            said = exc.required.request_state
            kept = _State(state=None if said is UNSET else said, own=msgspec.to_builtins(exc.own))
            return InputRequiredResult(
                input_requests=exc.required.input_requests, request_state=self._sealed(ctx, kept)
            )
        finally:
            await relay.told()

    # ---------------------------------------------------------------- the next server waits for its answers

    async def _hold(
        self, ctx: Context[Any], sent: Sent, state: _State | None, answers: dict[str, Raw]
    ) -> Raw | InputRequiredResult:
        relay = self._begin(ctx, sent) if state is None else self._unpark(state.token)
        relay.back(ctx)
        relay.take(answers)
        try:
            over = await relay.round()
        except BaseException:
            relay.stop()
            raise
        await relay.told()
        if not over:
            return self._park(relay)
        assert relay.task is not None
        try:
            return relay.task.result()
        except asyncio.CancelledError:
            raise InternalError("The server is stopping") from None
        except CallError as exc:
            pages = urls_required(exc)
            if not pages:
                raise
            return self._ask_pages(ctx, pages)

    def _begin(self, ctx: Context[Any], sent: Sent) -> Relay:
        relay = self._upstream.relay(ctx)
        asking = self._upstream.request(relay, sent.method, sent.params, sent.headers)
        relay.task = task = asyncio.get_running_loop().create_task(asking)
        self._tasks.add(task)

        def done(task: asyncio.Task[Raw]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # looked at: perhaps nobody comes back for it
            relay.stir()

        task.add_done_callback(done)
        return relay

    def _park(self, relay: Relay) -> InputRequiredResult:
        if len(self._parked) >= self._most:
            relay.stop()
            raise Overloaded(f"Too many calls wait for their callers: {self._most} is the limit here")
        token = secrets.token_bytes(16)
        relay.away = True
        timer = asyncio.get_running_loop().call_later(self._ttl, self._expire, token)
        self._parked[token] = relay, timer
        state = self._sealed(relay.ctx, _State(token=token))
        return InputRequiredResult(input_requests=relay.open_questions(), request_state=state)

    def _unpark(self, token: bytes) -> Relay:
        found = self._parked.pop(token, None)
        if found is None:
            raise InvalidParams("Invalid requestState: the call that it belongs to is over, start it again")
        relay, timer = found
        timer.cancel()
        return relay

    def _expire(self, token: bytes) -> None:
        """The caller didn't come back: the next server needn't wait any longer."""
        self._unpark(token).stop()

    def _ask_pages(self, ctx: Context[Any], pages: list[dict[str, Any]]) -> InputRequiredResult:
        """The request was refused until the user has opened pages: ask for that, then make it."""
        require(ctx.client_capabilities, {"elicitation": {"url": {}}})
        source, target = self._upstream.client.protocol_version, ctx.protocol_version
        asked: dict[str, InputRequest] = {}
        for number, page in enumerate(pages):
            text = msgspec.json.encode({"mode": "url", **page})
            params = question_for("elicitation/create", text, source, target, "")
            asked[f"page-{number}"] = InputRequest(method="elicitation/create", params=params)
        return InputRequiredResult(input_requests=asked, request_state=self._sealed(ctx, _State(pages=True)))

    async def close(self) -> None:
        """The bridge stops: nothing waits for anybody any more."""
        for token in list(self._parked):
            self._expire(token)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _require_consent(answers: Mapping[str, Raw]) -> None:
    for text in answers.values():
        try:
            said = msgspec.json.decode(text, type=ElicitResult)
        except msgspec.MsgspecError as exc:
            raise InvalidParams(f"inputResponses: no valid answer: {exc}") from None
        if said.action != "accept":
            raise Declined(said.action, "to open a page that the server needs")


def _bound(ctx: Context[Any]) -> bytes:
    """What a state is tied to: who asks, which method, which params."""
    params = msgspec.json.decode(ctx.params)
    for member in ("_meta", "inputResponses", "requestState"):
        params.pop(member, None)
    text = msgspec.json.encode(["bridge", ctx.principal, ctx.method, params], order="deterministic")
    return hashlib.sha256(text).digest()
