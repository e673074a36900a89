"""The one client that a bridge has to the next server: its life, its requests, and what that server says and asks by itself.

Knows which call a question or a log message belongs to, or that nobody can tell. Must not know how the server that faces
the callers is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import ReferenceType, WeakSet, ref

import msgspec
from msgspec import Raw, structs

from hinge.client.callbacks import Answers
from hinge.client.client import Client
from hinge.client.requests import Ask, Requests
from hinge.client.url_elicitation import FINISHED, UrlElicitationRequired
from hinge.errors import CallError, CallTimeout, DefinitionError, HingeError, InternalError
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.eras.stateless import STATELESS
from hinge.protocol.revisions.adapt import shape
from hinge.proxy.relay import Relay, ask_session, current, require_answerable
from hinge.proxy.translation import mode_of
from hinge.schema.input_required import InputRequiredResult
from hinge.schema.lifecycle import ClientCapabilities, Elicitation, RootsCapability, Sampling
from hinge.schema.methods import method_in
from hinge.schema.notifications import SEVERITY, LoggingLevel, LogParams
from hinge.server.context import Context
from hinge.session import Session
from hinge.timeouts import PausableTimeout

logger = logging.getLogger("hinge")

#: What a handshake server is told: whether a caller can be asked shows only when it is asked.
EVERYTHING = ClientCapabilities(
    roots=RootsCapability(list_changed=True),
    sampling=Sampling(tools={}),
    elicitation=Elicitation(form={}, url={}),
)
_required = msgspec.json.Decoder(InputRequiredResult)


class Asked(Exception):
    """A stateless server needs input before it goes on: what it asks is for the caller's next round."""

    def __init__(self, required: InputRequiredResult, own: dict[str, Any]) -> None:
        super().__init__("input required")
        self.required = required
        #: Answers that the client itself has, by key.
        self.own = own


class Upstream:
    """The next server. `declare` is what a handshake server is told that callers can be asked; None for everything."""

    def __init__(self, client: Client, declare: ClientCapabilities | None, *, single_user: bool) -> None:
        if client._link.alive:
            raise DefinitionError("A proxy needs a client that isn't connected yet: it connects it by itself")
        self.client = client
        self._single_user = single_user
        self.own = client._answers
        self._running: dict[Relay, None] = {}
        #: Conversations of handshake clients that are open, to be asked what belongs to no call.
        self.sessions: WeakSet[Session] = WeakSet()
        self._level: LoggingLevel | None = None
        self._on_log = client._on_log
        self._answers_nothing = self.own.capabilities == ClientCapabilities()
        answers = _RelayedAnswers(self)
        client._answers = answers
        client._requests = _RelayedRequests(client._link, answers, client.limits, client._required_pages)
        #: What a handshake server is told on connecting.
        self.declared = _merged(EVERYTHING if declare is None else declare, self.own.capabilities)
        client._link._introduction = structs.replace(client._link._introduction, capabilities=self.declared)
        client._on_log = self._log
        self._on_notification = client._on_notification
        client._on_notification = self._notified
        client._link.on_reopened.append(self._reopened)
        #: Pages that were shown to handshake clients, by the server's name for them, and who was shown them.
        self._pages: dict[str, ReferenceType[Session]] = {}

    @property
    def connected(self) -> bool:
        """Whether it is known what the server offers."""
        return self.client._link.found is not None

    # ---------------------------------------------------------------- asking the server

    def relay(self, ctx: Context[Any]) -> Relay:
        """A call that begins."""
        return Relay(ctx, single_user=self._single_user)

    async def request(self, relay: Relay, method: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> Raw:
        """The server's result for a call. Raises a CallError, and Asked where the caller's next round has to answer."""
        client = self.client
        limit = client.limits.call_total
        relay.session = client._link._session
        mirror = None
        if method == "tools/call" and client.mirrors:
            mirror = (str(_plain(params.get("name"))), _plain(params.get("arguments")) or {})
        with self._serving(relay):
            clock = asyncio.timeout(limit)
            try:
                async with clock:
                    relay.limit = PausableTimeout(clock)
                    found: Raw = await client.request(
                        method,
                        params,
                        result=Raw,
                        idle=None,
                        total=None,
                        cache="bypass",
                        on_progress=relay.progress,
                        headers=headers or None,
                        mirror=mirror,
                    )
                    return found
            except TimeoutError as exc:
                if not clock.expired():
                    raise
                raise CallTimeout(f"{method} got no answer within {limit:g} seconds") from exc
            finally:
                relay.limit = None

    @contextmanager
    def _serving(self, relay: Relay) -> Iterator[None]:
        token = current.set(relay)
        self._running[relay] = None
        try:
            yield
        finally:
            relay.over = True
            del self._running[relay]
            current.reset(token)
            self._leave_questions(relay)

    def _leave_questions(self, relay: Relay) -> None:
        """A call is over while the server still waits for an answer: another call of the same caller asks, or nobody."""
        heirs = [one for one in self._running if one.caller == relay.caller and one.may_ask]
        if heirs and relay.questions:
            heirs[-1].inherit(relay.questions)
            return
        for question in relay.questions.values():
            if not question.answer.done():
                question.answer.set_exception(InternalError("The call that the question belonged to is over"))

    def capabilities_of(self, ctx: Context[Any]) -> Any:
        """What a stateless server is told with a call: what its caller can be asked, and what the client answers itself."""
        if self._answers_nothing:
            meta = ctx.call.meta
            if ctx.call.era is STATELESS and meta is not None:
                return meta.client_capabilities
        declared = (
            ctx.client_capabilities
            if self._answers_nothing
            else _merged(ctx.client_capabilities, self.own.capabilities)
        )
        return shape(declared, self.client.protocol_version)

    def answers_itself(self, method: str, text: bytes | Raw) -> bool:
        """Whether the client was given an answer of its own: then no caller is asked."""
        if self._answers_nothing:
            return False
        own = self.own.capabilities
        if method == "elicitation/create" and own.elicitation is not None:
            return getattr(own.elicitation, mode_of(text), None) is not None
        if method == "sampling/createMessage":
            return own.sampling is not None
        return method == "roots/list" and own.roots is not None

    # ---------------------------------------------------------------- what the server asks and says

    async def ask_caller(self, method: str, text: bytes) -> Any:
        """The answer of whoever is meant. Raises ProtocolError, for the server."""
        relay = self._meant()
        source = self.client.protocol_version
        if relay is not None:
            self._remember_page(method, text, relay.ctx.session)
            return await relay.ask(method, text, source)
        sessions = self._open_sessions()
        if len(sessions) != 1:
            raise InternalError("Nobody is here to be asked" if not sessions else _UNCLEAR)
        require_answerable(sessions[0].connection.handshake.capabilities, method, text)
        return await ask_session(sessions[0], method, text, source)

    def _meant(self, *, to_ask: bool = True) -> Relay | None:
        """The call that the server speaks of. Raises InternalError when it could be one of several callers.

        On HTTP the stream tells; on a pipe it is clear only while one caller is being served.
        """
        relay = current.get(None)
        client = self.client
        # A connection that was opened on the way would make all that comes on it look like this call's.
        sure = client.era == "2026" or (
            client._link.on_http and relay is not None and relay.session is client._link._session
        )
        if relay is not None and relay in self._running and sure:
            return relay
        if len({one.caller for one in self._running}) > 1:
            raise InternalError(_UNCLEAR)
        return next((one for one in reversed(self._running) if one.may_ask or not to_ask), None)

    def _open_sessions(self) -> list[Session]:
        return [one for one in self.sessions if one.connection.closed is None and one.connection.handshake.open]

    def _remember_page(self, method: str, text: bytes, session: Session) -> None:
        """Whoever is shown a page hears when it is finished (ELIC-13)."""
        identity = msgspec.json.decode(text).get("elicitationId") if method == "elicitation/create" else None
        self._shown(identity, session)

    def _shown(self, identity: Any, session: Session) -> None:
        if isinstance(identity, str):
            self._pages[identity] = ref(session)
            while len(self._pages) > _PAGES:
                del self._pages[next(iter(self._pages))]

    async def _notified(self, method: str, params: dict[str, Any]) -> None:
        if self._on_notification is not None:
            said = self._on_notification(method, params)
            if said is not None:
                await said
        shown = self._pages.pop(str(params.get("elicitationId")), None) if method == FINISHED else None
        session = shown() if shown is not None else None
        if session is not None and method_in(method, session.connection.handshake.revision) is not None:
            session.tell(method, params)

    async def _reopened(self, session: Session) -> None:
        """Another conversation with the server: it knows nothing of the level yet."""
        self._level = None

    async def _log(self, params: LogParams) -> None:
        if self._on_log is not None:
            said = self._on_log(params)
            if said is not None:
                await said
        try:
            relay = self._meant(to_ask=False)
        except InternalError:
            logger.debug("a log message of the next server is dropped: it could belong to any of several callers")
            return
        if relay is not None:
            relay.log(params)
            return
        sessions = self._open_sessions()
        if (
            len(sessions) == 1
            and SEVERITY[params.level] >= SEVERITY[sessions[0].connection.handshake.log_level or "debug"]
        ):
            session = sessions[0]
            shaped = shape(params, session.connection.handshake.revision)
            try:
                await session.notify("notifications/message", shaped)
            except HingeError as exc:
                logger.debug("a log message could not be passed on: %s", exc)

    async def want_level(self, level: LoggingLevel | None) -> None:
        """Some caller wants log messages from this level on: a handshake server is told the least that anybody wants."""
        if level is None or self.client.era == "2026" or self.client.server_capabilities.logging is None:
            return
        if self._level is not None and SEVERITY[level] >= SEVERITY[self._level]:
            return
        self._level = level
        try:
            await self.client.set_log_level(level)
        except CallError as exc:
            logger.warning("The server behind this one refuses the log level %s: %s", level, exc)


#: So many pages are remembered until the server says that they are finished.
_PAGES = 1000
_UNCLEAR = "Several callers are being served: it can't be told which of them is asked"


class _RelayedAnswers(Answers):
    """Answers of the callers; those that the client was given of its own come first."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__()
        self._upstream = upstream

    @property
    def capabilities(self) -> ClientCapabilities:
        """What is declared on connecting."""
        return self._upstream.declared

    async def answer(self, method: str, params: Any) -> Any:
        """One question."""
        if self._upstream.answers_itself(method, params):
            return await self._upstream.own.answer(method, params)
        return await self._upstream.ask_caller(method, bytes(params))


class _RelayedRequests(Requests):
    """Requests whose rounds of questions go on in the caller's own rounds, where he has such."""

    async def _next_round(self, ask: Ask, raw: Raw, rounds: int) -> dict[str, Any]:
        relay = current.get(None)
        answers = self._answers
        assert isinstance(answers, _RelayedAnswers)
        upstream = answers._upstream
        if relay is None or relay not in upstream._running or relay.ctx.call.era is HANDSHAKE:
            return await super()._next_round(ask, raw, rounds)
        required = _required.decode(raw)
        own = {
            key: one
            for key, one in (required.input_requests or {}).items()
            if upstream.answers_itself(
                one.method, msgspec.json.encode({} if one.params is msgspec.UNSET else one.params)
            )
        }
        if own and len(own) == len(required.input_requests or {}):
            return await super()._next_round(ask, raw, rounds)
        for key in own:
            assert required.input_requests is not None
            del required.input_requests[key]
        raise Asked(required, await answers.all(own) if own else {})

    async def _after_pages(self, ask: Ask, required: UrlElicitationRequired, left: float | None) -> Raw:
        """Pages that the client can't open itself are the caller's, as the error that names them."""
        answers = self._answers
        assert isinstance(answers, _RelayedAnswers)
        upstream = answers._upstream
        if upstream.answers_itself("elicitation/create", b'{"mode":"url"}'):
            return await super()._after_pages(ask, required, left)
        relay = current.get(None)
        if relay is not None:
            for page in required.elicitations:
                upstream._shown(page.elicitation_id, relay.ctx.session)
        raise required


def _merged(one: ClientCapabilities, other: ClientCapabilities) -> ClientCapabilities:
    """What either can do."""
    return msgspec.convert(_union(msgspec.to_builtins(one), msgspec.to_builtins(other)), ClientCapabilities)


def _union(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one if one is not None else other
    return {key: _union(one.get(key), other.get(key)) for key in {**one, **other}}


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, Raw) else value
