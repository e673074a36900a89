"""One call that is proxied: notifications to its caller, and requests of the upstream server to it, in the era of the caller."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gemel.errors import (
    CallError,
    InternalError,
    InvalidParams,
    MethodNotFound,
    MissingClientCapability,
    PeerError,
    ProtocolError,
)
from gemel.protocol.eras.base import Era
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.revisions.adapt import TooNew
from gemel.proxy.translation import RESULT_TYPES, Json, client_request_params, mode_of, required_capabilities, translate
from gemel.schema.input_required import InputRequest
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.notifications import LogParams, ProgressParams
from gemel.server.context import Context, caller_key, served_call
from gemel.server.elicitation.elicit import require
from gemel.session import Session
from gemel.timeouts import PausableTimeout

logger = logging.getLogger("gemel")

#: How many notifications to one caller are queued; of more, the oldest are dropped.
_QUEUE_SIZE = 1000

#: The call that the running task belongs to.
current_call: ContextVar[ProxiedCall] = ContextVar("gemel_proxied_call")


class PendingRequest:
    """A request of the upstream server that waits for the next round of the caller."""

    __slots__ = ("answer", "method", "params")

    def __init__(self, method: str, params: Any) -> None:
        self.method = method
        self.params = params
        self.answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()


class ProxiedCall:
    """One call. `away` is True between two rounds of a stateless caller."""

    def __init__(self, ctx: Context[Any], *, single_user: bool = False) -> None:
        #: The latest round of the caller.
        self.ctx = ctx
        self.away = False
        self.over = False
        #: The session with the upstream server when the call began.
        self.session: Session | None = None
        #: Identifies the caller; see `caller_key`.
        self.caller = "single user" if single_user else caller_key(ctx)
        #: Requests of the upstream server that the next round has to answer.
        self.pending: dict[str, PendingRequest] = {}
        #: The request to the upstream server, if it outlives a round.
        self.task: asyncio.Task[Raw] | None = None
        #: The time limit for the upstream server, paused while the caller serves requests.
        self.limit: PausableTimeout | None = None
        self._woken: asyncio.Future[None] | None = None
        self._notifications: deque[Callable[[Context[Any]], Awaitable[None]]] = deque(maxlen=_QUEUE_SIZE)
        self._sender: asyncio.Task[None] | None = None
        self._request_by_era: dict[Era, Callable[[str, bytes, str], Awaitable[Json]]] = {
            HANDSHAKE: self._request_at_once,
            STATELESS: self._request_in_round,
        }

    @property
    def accepts_requests(self) -> bool:
        """Whether requests can be sent to the caller during this call."""
        call = served_call(self.ctx).call
        return not self.over and call.era.may_request_input(call.method)

    # ---------------------------------------------------------------- notifications

    def progress(self, params: ProgressParams) -> None:
        """Forward progress with the token of the caller, if it sent one."""
        self._enqueue(lambda ctx: ctx.report_progress(params.progress, params.total, params.message))

    def log(self, params: LogParams) -> None:
        """Forward a log message, if the caller wants its level."""
        self._enqueue(lambda ctx: ctx.log(params.level, params.data, logger=params.logger))

    def _enqueue(self, notification: Callable[[Context[Any]], Awaitable[None]]) -> None:
        if self.over:
            return
        self._notifications.append(notification)
        if not self.away:
            self._start_sender()

    def _start_sender(self) -> None:
        if self._sender is None and self._notifications:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())

    def resume(self, ctx: Context[Any]) -> None:
        """Start a round of the caller: send what was queued while it was away."""
        self.ctx, self.away = ctx, False
        self._start_sender()

    async def _send_all(self) -> None:
        try:
            while self._notifications:
                await self._notifications.popleft()(self.ctx)
        finally:
            self._sender = None

    async def flush(self) -> None:
        """Wait until all notifications are sent: none may follow the response."""
        while self._sender is not None:
            await asyncio.wait([self._sender])

    # ---------------------------------------------------------------- requests to the caller

    async def request(self, method: str, text: bytes, source: str) -> Json:
        """Send a request of the upstream server, in revision `source`, to the caller; return the result.

        Raises ProtocolError for the upstream server: MethodNotFound or InvalidParams if the caller did not declare it.
        """
        ctx = self.ctx
        require_declared(ctx.client_capabilities, method, text)
        limit = self.limit
        if limit is not None:
            limit.pause()
        try:
            return await self._request_by_era[served_call(ctx).call.era](method, text, source)
        finally:
            if limit is not None:
                limit.resume()

    async def _request_at_once(self, method: str, text: bytes, source: str) -> Json:
        """Send a request to the caller and wait for the response."""
        return await request_client(served_call(self.ctx).session, method, text, source, self.ctx)

    async def _request_in_round(self, method: str, text: bytes, source: str) -> Json:
        """Put a request into the next round of the caller, and wait for the response."""
        revision = self.ctx.protocol_version
        params = client_request_params(method, text, source, revision, secrets.token_urlsafe(16))
        key = f"{method.partition('/')[0]}-{secrets.token_hex(4)}"
        request = self.pending[key] = PendingRequest(method, params)
        self.wake()
        try:
            answer = await request.answer
        finally:
            self.pending.pop(key, None)
        return translate(answer, RESULT_TYPES[method], revision, source)

    async def wait(self) -> bool:
        """Wait until the call is finished (True) or the caller has to serve requests (False)."""
        assert self.task is not None
        while not self.task.done() and not self.pending:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        return self.task.done()

    def wake(self) -> None:
        """Wake up `wait`."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def input_requests(self) -> dict[str, InputRequest]:
        """The requests for this round of the caller."""
        return {key: InputRequest(method=one.method, params=one.params) for key, one in self.pending.items()}

    def accept_responses(self, responses: Mapping[str, Raw]) -> None:
        """Take the responses of a round. Unknown keys are ignored; what is missing is requested again."""
        for key, value in responses.items():
            request = self.pending.pop(key, None)
            if request is not None and not request.answer.done():
                request.answer.set_result(value)

    def adopt(self, pending: Mapping[str, PendingRequest]) -> None:
        """Take over the requests of a finished call of the same caller."""
        self.pending.update(pending)
        self.wake()

    def stop(self) -> None:
        """Cancel the request to the upstream server."""
        self.over = True
        if self.task is not None:
            self.task.cancel()


def parse_responses(responses: Raw) -> dict[str, Raw]:
    """Return the responses of a round as JSON text by key. Raises InvalidParams."""
    text = bytes(responses)
    if text in (b"", b"null"):
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Raw])
    except msgspec.MsgspecError:
        raise InvalidParams("inputResponses must be an object") from None


def require_declared(declared: ClientCapabilities, method: str, text: bytes) -> None:
    """Refuse a request that the client did not declare, as the client would."""
    if method not in RESULT_TYPES:
        raise MethodNotFound(method)
    try:
        require(declared, required_capabilities(method, Raw(text) if text else UNSET))
    except MissingClientCapability as exc:
        if method == "elicitation/create" and declared.elicitation is not None:
            raise InvalidParams(f"This client did not declare elicitation mode {mode_of(text)!r}") from exc
        if method == "sampling/createMessage" and declared.sampling is not None:
            raise InvalidParams("This client did not declare sampling.tools") from exc
        raise MethodNotFound(method) from exc


async def request_client(
    session: Session, method: str, text: bytes, source: str, ctx: Context[Any] | None = None
) -> Json:
    """Send a request to a handshake client; `ctx` is the call that it belongs to, if known. Raises ProtocolError."""
    revision = session.connection.handshake.revision
    limit = session.connection.limits.input_wait
    try:
        params = client_request_params(method, text, source, revision, secrets.token_urlsafe(16))
        answer = await session.request(
            method, params, about=None if ctx is None else served_call(ctx).call, total=limit
        )
    except PeerError as exc:
        raise ProtocolError(exc.message, exc.error.data, code=exc.code) from exc
    except (CallError, TooNew) as exc:
        logger.warning("%s could not be sent to the client: %s", method, exc)
        raise InternalError("The request could not be sent to the client") from exc
    return translate(answer, RESULT_TYPES[method], revision, source)
