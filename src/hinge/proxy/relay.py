"""One call on its way through a bridge: what its caller is told meanwhile and asked in between, in the caller's era.

Knows the caller's side. Must not know how the next server is reached.
"""

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

from hinge.errors import (
    CallError,
    InternalError,
    InvalidParams,
    MethodNotFound,
    MissingClientCapability,
    PeerError,
    ProtocolError,
)
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.revisions.adapt import TooNew
from hinge.proxy.translation import ANSWERS, Json, mode_of, needed_for, question_for, translate
from hinge.schema.input_required import InputRequest
from hinge.schema.lifecycle import ClientCapabilities
from hinge.schema.methods import METHODS
from hinge.schema.notifications import LogParams, ProgressParams
from hinge.server.context import Context
from hinge.server.elicitation.elicit import require
from hinge.session import Session
from hinge.timeouts import PausableTimeout

logger = logging.getLogger("hinge")

#: What waits to be told to one caller; of more, the oldest are dropped: the newest progress says all.
_WAITING = 1000

#: The call that a task works for, as far as its context says so.
current: ContextVar[Relay] = ContextVar("hinge_relay")


class Question:
    """What the next server asks in the middle of a call, waiting for the caller to come back with the answer."""

    __slots__ = ("answer", "method", "params")

    def __init__(self, method: str, params: Any) -> None:
        self.method = method
        self.params = params
        self.answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()


class Relay:
    """One call. `away` says that its caller is gone to answer questions: between two rounds of a stateless call."""

    def __init__(self, ctx: Context[Any], *, single_user: bool = False) -> None:
        #: The caller's latest round.
        self.ctx = ctx
        self.away = False
        self.over = False
        #: The conversation with the next server when the call began.
        self.session: Session | None = None
        #: Who may be asked the same things: one conversation, one principal, or this one request alone.
        self.caller = "everybody" if single_user else _caller(ctx)
        #: What the next server asks and a later round has to answer.
        self.questions: dict[str, Question] = {}
        #: The request to the next server, where it outlives a round.
        self.task: asyncio.Task[Raw] | None = None
        #: How long the next server may take; it stands still while the caller is asked.
        self.limit: PausableTimeout | None = None
        self._stirred: asyncio.Future[None] | None = None
        self._news: deque[Callable[[Context[Any]], Awaitable[None]]] = deque(maxlen=_WAITING)
        self._teller: asyncio.Task[None] | None = None

    @property
    def may_ask(self) -> bool:
        """Whether the caller can be asked within this call."""
        row = METHODS.get(self.ctx._call.method)
        return not self.over and (self.ctx._call.era is HANDSHAKE or (row is not None and row.may_ask))

    # ---------------------------------------------------------------- telling

    def progress(self, params: ProgressParams) -> None:
        """Progress of the next server, for the caller's own token; nothing if the caller wants none."""
        self._tell(lambda ctx: ctx.report_progress(params.progress, params.total, params.message))

    def log(self, params: LogParams) -> None:
        """A log message of the next server, if the caller wants its level."""
        self._tell(lambda ctx: ctx.log(params.level, params.data, logger=params.logger))

    def _tell(self, news: Callable[[Context[Any]], Awaitable[None]]) -> None:
        if self.over:
            return
        self._news.append(news)
        if not self.away:
            self._begin_telling()

    def _begin_telling(self) -> None:
        if self._teller is None and self._news:
            self._teller = asyncio.get_running_loop().create_task(self._tell_all())

    def back(self, ctx: Context[Any]) -> None:
        """The caller is here with this round, and is told what was said while it was away."""
        self.ctx, self.away = ctx, False
        self._begin_telling()

    async def _tell_all(self) -> None:
        try:
            while self._news:
                await self._news.popleft()(self.ctx)
        finally:
            self._teller = None

    async def told(self) -> None:
        """Wait until everything that was said has left: nothing comes after the answer."""
        while self._teller is not None:
            await asyncio.wait([self._teller])

    # ---------------------------------------------------------------- asking

    async def ask(self, method: str, text: bytes, source: str) -> Json:
        """The caller's answer to a question of the next server, which speaks the revision `source`.

        Raises ProtocolError, for the next server: MethodNotFound or InvalidParams for what the caller can't be asked.
        """
        ctx = self.ctx
        require_answerable(ctx.client_capabilities, method, text)
        limit = self.limit
        if limit is not None:
            limit.pause()
        try:
            if ctx._call.era is HANDSHAKE:
                return await ask_session(ctx._session, method, text, source, ctx)
            return await self._ask_in_a_round(method, text, source)
        finally:
            if limit is not None and limit is self.limit:
                limit.resume()

    async def _ask_in_a_round(self, method: str, text: bytes, source: str) -> Json:
        """Put a question to the caller's next round, and wait for what that brings."""
        revision = self.ctx.protocol_version
        params = question_for(method, text, source, revision, secrets.token_urlsafe(16))
        key = f"{method.partition('/')[0]}-{secrets.token_hex(4)}"
        question = self.questions[key] = Question(method, params)
        self.stir()
        try:
            answer = await question.answer
        finally:
            self.questions.pop(key, None)
        return translate(answer, ANSWERS[method], revision, source)

    async def round(self) -> bool:
        """Wait until the call is over (True) or somebody has to be asked (False)."""
        assert self.task is not None
        while not self.task.done() and not self.questions:
            self._stirred = asyncio.get_running_loop().create_future()
            await self._stirred
        return self.task.done()

    def stir(self) -> None:
        """Something happened that `round` waits for."""
        if self._stirred is not None and not self._stirred.done():
            self._stirred.set_result(None)

    def open_questions(self) -> dict[str, InputRequest]:
        """What the caller is to be asked in this round."""
        return {key: InputRequest(method=one.method, params=one.params) for key, one in self.questions.items()}

    def take(self, responses: Mapping[str, Raw]) -> None:
        """The answers of a round; keys that nobody waits for are ignored, missing ones are asked again."""
        for key, value in responses.items():
            question = self.questions.pop(key, None)
            if question is not None and not question.answer.done():
                question.answer.set_result(value)

    def inherit(self, questions: Mapping[str, Question]) -> None:
        """Ask what another call of the same caller was to ask, and is over."""
        self.questions.update(questions)
        self.stir()

    def stop(self) -> None:
        """Nobody wants the answer any more: the next server is told to stop."""
        self.over = True
        if self.task is not None:
            self.task.cancel()


def _caller(ctx: Context[Any]) -> object:
    if ctx._session.channel.kind != "post":
        return "conversation", id(ctx._session)
    return ("principal", ctx.principal) if ctx.principal is not None else object()


def answers_in(responses: Raw) -> dict[str, Raw]:
    """The answers that a retry brings, as JSON text by key. Raises InvalidParams."""
    text = bytes(responses)
    if text in (b"", b"null"):
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Raw])
    except msgspec.MsgspecError:
        raise InvalidParams("inputResponses must be an object of answers by key") from None


def require_answerable(declared: ClientCapabilities, method: str, text: bytes) -> None:
    """Refuse, in the client's place, what it didn't declare."""
    if method not in ANSWERS:
        raise MethodNotFound(method)
    try:
        require(declared, needed_for(method, Raw(text) if text else UNSET))
    except MissingClientCapability as exc:
        if method == "elicitation/create" and declared.elicitation is not None:
            raise InvalidParams(f"This client did not declare elicitation mode {mode_of(text)!r}") from exc
        if method == "sampling/createMessage" and declared.sampling is not None:
            raise InvalidParams("This client did not declare sampling.tools") from exc
        raise MethodNotFound(method) from exc


async def ask_session(session: Session, method: str, text: bytes, source: str, ctx: Context[Any] | None = None) -> Json:
    """Ask a handshake client; `ctx` is the call that the question belongs to, if it is known. Raises ProtocolError."""
    revision = session.connection.handshake.revision
    limit = session.connection.limits.question
    try:
        params = question_for(method, text, source, revision, secrets.token_urlsafe(16))
        answer = await session.request(method, params, about=None if ctx is None else ctx._call, total=limit)
    except PeerError as exc:
        raise ProtocolError(exc.message, exc.error.data, code=exc.code) from exc
    except (CallError, TooNew) as exc:
        logger.warning("%s could not be asked of the client: %s", method, exc)
        raise InternalError("The client of this server could not be asked") from exc
    return translate(answer, ANSWERS[method], revision, source)
