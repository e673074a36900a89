"""Calls of stateless clients, in rounds. The upstream server may be of either era.

A stateless server returns its input requests and its request state; the state is encrypted inside of ours. If its session is for
this call alone, the session is kept for the next round: it may be a process, which alone can read its state. A handshake server
waits for responses in the middle of a request: the request keeps running between the rounds. Both are parked. Their number and
their time are limited; each is found only by the encrypted state, and continued once.

See https://modelcontextprotocol.io/specification/draft/basic/utilities/mrtr.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from gemel.errors import CallError, InternalError, InvalidParams, Overloaded
from gemel.protocol.eras.base import Era
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.proxy.call import ProxiedCall, parse_responses
from gemel.proxy.sessions import UpstreamSessions
from gemel.proxy.translation import client_request_params, required_urls
from gemel.proxy.upstream import CallerInputRequired, Upstream, UpstreamRequest
from gemel.schema.elicitation import ElicitResult
from gemel.schema.input_required import InputRequest, InputRequiredResult
from gemel.server.context import Context, served_call
from gemel.server.elicitation.elicit import Declined, require
from gemel.shares import Shares
from gemel.values.encoding import plain_value


class _RoundState(msgspec.Struct, array_like=True):
    """The request state: the token of what is parked, and the state of the upstream server with our responses."""

    token: bytes = b""
    state: str | None = None
    own: dict[str, Any] = {}
    #: Whether pages had to be opened before the request could be sent.
    pages: bool = False
    #: Whether a stateless server has asked for a further round.
    is_further: bool = False


_ENDED = "Invalid requestState: its call has ended, start it again"
_decoder = msgspec.msgpack.Decoder(_RoundState)


class UpstreamResult(NamedTuple):
    """What the upstream server answered, or what the next round has to answer."""

    upstream: Upstream
    result: Raw | InputRequiredResult


_ServeRound: TypeAlias = Callable[
    [Upstream, Context[Any], UpstreamRequest, _RoundState, dict[str, Raw]], Awaitable[Raw | InputRequiredResult]
]


class _Parked(NamedTuple):
    """A request that waits for the next round of its caller, or the session of one that a stateless server has answered."""

    call: ProxiedCall | None
    upstream: Upstream
    timer: asyncio.TimerHandle
    #: Whose share it takes.
    holder: Hashable


class Rounds:
    """The calls of stateless clients. `ttl` is in seconds; `most` is the maximum of parked requests."""

    def __init__(self, sessions: UpstreamSessions, *, ttl: float, most: int) -> None:
        self._sessions = sessions
        self._ttl = ttl
        self._most = most
        self._parked: dict[bytes, _Parked] = {}
        self._shares: Shares[bytes] = Shares()
        self._tasks: set[asyncio.Task[Raw]] = set()
        self._by_upstream_era: dict[Era, _ServeRound] = {HANDSHAKE: self._begin_round, STATELESS: self._forward_round}

    async def serve(
        self, ctx: Context[Any], params: Any, make_request: Callable[[Upstream], Awaitable[UpstreamRequest]]
    ) -> UpstreamResult:
        """Serve one round: return the result, or input requests. Raises CallError, InvalidParams, Declined."""
        state = _RoundState()
        if params.request_state is not UNSET:
            state = _decoder.decode(await served_call(ctx).request_states.decode(params.request_state, _binding(ctx)))
        answers = parse_responses(params.input_responses)
        # In the session that it was begun in. Other processes may be able to read the state of a stateless server, too.
        parked = self._unpark(state.token) if state.token else None
        if parked is None and state.token and not state.is_further:
            raise InvalidParams(_ENDED)
        if parked is not None and parked.call is not None:
            return UpstreamResult(parked.upstream, await self._serve_round(parked.upstream, ctx, parked.call, answers))
        async with self._sessions.used_by(ctx) if parked is None else self._again(parked.upstream) as upstream:
            request = await make_request(upstream)
            serve = self._by_upstream_era[ERAS[upstream.client.era]]
            return UpstreamResult(upstream, await serve(upstream, ctx, request, state, answers))

    @asynccontextmanager
    async def _again(self, upstream: Upstream) -> AsyncIterator[Upstream]:
        """Use a session that was kept for this round."""
        try:
            yield upstream
        finally:
            self._sessions.release(upstream)

    async def _encrypt(self, ctx: Context[Any], state: _RoundState) -> str:
        return await served_call(ctx).request_states.encode(msgspec.msgpack.encode(state), _binding(ctx))

    # ---------------------------------------------------------------- stateless upstream server

    async def _forward_round(
        self,
        upstream: Upstream,
        ctx: Context[Any],
        sent: UpstreamRequest,
        state: _RoundState,
        answers: dict[str, Raw],
    ) -> Raw | InputRequiredResult:
        params = dict(sent.params)
        if state.is_further:
            given = {**answers, **state.own}
            params |= {"inputResponses": given} if given else {}
            params |= {"requestState": state.state} if state.state is not None else {}
        call = upstream.call(ctx)
        try:
            return await upstream.request(call, sent._replace(params=params))
        except CallerInputRequired as exc:
            opaque = exc.required.request_state
            round_state = _RoundState(
                state=None if opaque is UNSET else opaque, own=plain_value(exc.own), is_further=True
            )
            if self._sessions.is_for_one_request(ctx):
                self._sessions.hold(upstream)
                encrypted = await self._park(ctx, upstream, None, round_state)
            else:
                encrypted = await self._encrypt(ctx, round_state)
            return InputRequiredResult(input_requests=exc.required.input_requests, request_state=encrypted)
        finally:
            await call.flush()

    # ---------------------------------------------------------------- handshake upstream server

    async def _begin_round(
        self,
        upstream: Upstream,
        ctx: Context[Any],
        sent: UpstreamRequest,
        state: _RoundState,
        answers: dict[str, Raw],
    ) -> Raw | InputRequiredResult:
        if state.pages:
            _require_consent(answers)
            answers = {}
        elif state.is_further:
            raise InvalidParams(_ENDED)
        return await self._serve_round(upstream, ctx, self._begin(upstream, ctx, sent), answers)

    async def _serve_round(
        self, upstream: Upstream, ctx: Context[Any], call: ProxiedCall, answers: dict[str, Raw]
    ) -> Raw | InputRequiredResult:
        call.resume(ctx)
        call.accept_responses(answers)
        try:
            over = await call.wait()
        except BaseException:
            call.stop()
            raise
        await call.flush()
        if not over:
            call.away = True
            state = await self._park(ctx, upstream, call, _RoundState())
            return InputRequiredResult(input_requests=call.input_requests(), request_state=state)
        assert call.task is not None
        try:
            return call.task.result()
        except asyncio.CancelledError:
            raise InternalError("The server is stopping") from None
        except CallError as exc:
            pages = required_urls(exc)
            if not pages:
                raise
            return await self._request_pages(upstream, ctx, pages)

    def _begin(self, upstream: Upstream, ctx: Context[Any], sent: UpstreamRequest) -> ProxiedCall:
        call = upstream.call(ctx)
        call.task = task = asyncio.get_running_loop().create_task(upstream.request(call, sent))
        self._tasks.add(task)
        self._sessions.hold(upstream)

        def done(task: asyncio.Task[Raw]) -> None:
            self._tasks.discard(task)
            self._sessions.release(upstream)
            if not task.cancelled():
                task.exception()  # marks it as retrieved: there may be no further round
            call.wake()

        task.add_done_callback(done)
        return call

    # ---------------------------------------------------------------- between rounds

    async def _park(self, ctx: Context[Any], upstream: Upstream, call: ProxiedCall | None, state: _RoundState) -> str:
        """Keep a call, or else a session that is in use, for the next round. Return its request state, with a token added."""
        holder = served_call(ctx).call.origin.holder
        token = state.token = secrets.token_bytes(16)
        try:
            if len(self._parked) >= self._most and not self._gives_way(holder):
                raise Overloaded(f"Too many calls wait for their clients: the limit is {self._most}")
            encrypted = await self._encrypt(ctx, state)
        except BaseException:
            self._leave(upstream, call)
            raise
        timer = asyncio.get_running_loop().call_later(self._ttl, self._expire, token)
        self._parked[token] = _Parked(call, upstream, timer, holder)
        self._shares.add(holder, token)
        return encrypted

    def _gives_way(self, newcomer: Hashable) -> bool:
        """Cancel the oldest parked request of whoever has most of them, if that leaves no fewer than the newcomer has."""
        token = next(iter(self._shares.giving_way(newcomer)), None)
        if token is None or self._shares.held(self._parked[token].holder) <= self._shares.held(newcomer) + 1:
            return False
        self._expire(token)
        return True

    def _unpark(self, token: bytes) -> _Parked | None:
        parked = self._parked.pop(token, None)
        if parked is not None:
            parked.timer.cancel()
            self._shares.discard(parked.holder, token)
        return parked

    def _expire(self, token: bytes) -> None:
        """End what is parked: there was no further round."""
        parked = self._unpark(token)
        if parked is not None:
            self._leave(parked.upstream, parked.call)

    def _leave(self, upstream: Upstream, call: ProxiedCall | None) -> None:
        """End a call, or the use of a session."""
        if call is None:
            self._sessions.release(upstream)
        else:
            call.stop()

    def drop(self, upstream: Upstream) -> None:
        """Cancel what is parked of a session that ends."""
        for token in [token for token, parked in self._parked.items() if parked.upstream is upstream]:
            self._expire(token)

    async def _request_pages(
        self, upstream: Upstream, ctx: Context[Any], pages: list[dict[str, Any]]
    ) -> InputRequiredResult:
        """Request that the user opens pages; the next round sends the request again."""
        require(ctx.client_capabilities, {"elicitation": {"url": {}}})
        source, target = upstream.client.protocol_version, ctx.protocol_version
        asked: dict[str, InputRequest] = {}
        for number, page in enumerate(pages):
            text = msgspec.json.encode({"mode": "url", **page})
            params = client_request_params("elicitation/create", text, source, target, "")
            asked[f"page-{number}"] = InputRequest(method="elicitation/create", params=params)
        return InputRequiredResult(
            input_requests=asked, request_state=await self._encrypt(ctx, _RoundState(pages=True))
        )

    async def close(self) -> None:
        """Cancel all that is parked."""
        for token in list(self._parked):
            self._expire(token)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _require_consent(answers: Mapping[str, Raw]) -> None:
    for text in answers.values():
        try:
            result = msgspec.json.decode(text, type=ElicitResult)
        except msgspec.MsgspecError as exc:
            raise InvalidParams(f"inputResponses: invalid response: {exc}") from None
        if result.action != "accept":
            raise Declined(result.action, "to open a page that the server requires")


def _binding(ctx: Context[Any]) -> bytes:
    """What the request state is bound to: principal, method and params."""
    params = msgspec.json.decode(ctx.params)
    for member in ("_meta", "inputResponses", "requestState"):
        params.pop(member, None)
    text = msgspec.json.encode(["proxy", served_call(ctx).call.origin.owner, ctx.method, params], order="deterministic")
    return hashlib.sha256(text).digest()
