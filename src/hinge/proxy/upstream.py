"""The one client that a bridge has to the next server: its life, its requests, and what that server says and asks by itself.

Knows which call a question or a log message belongs to, or that nobody can tell. Must not know how the server that faces
the callers is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import ReferenceType, WeakSet, ref

import msgspec
from msgspec import Raw, structs

from hinge.client.callbacks import AnswerRequest, Callbacks, answer_all, awaited
from hinge.client.client import Client
from hinge.client.url_elicitation import FINISHED
from hinge.errors import CallError, CallTimeout, DefinitionError, HingeError, InternalError, NotSent
from hinge.protocol.changes import Changed, ChangesLost
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.eras.stateless import STATELESS
from hinge.protocol.revisions.adapt import shape
from hinge.proxy.relay import Relay, ask_session, current, require_answerable
from hinge.proxy.translation import mode_of
from hinge.schema.elicitation import ElicitUrlParams
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
        if client.connected:
            raise DefinitionError("A proxy needs a client that isn't connected yet: it connects it by itself")
        self.client = client
        self._single_user = single_user
        #: The callbacks that the client was given, which come before the callers.
        self.own = client.callbacks
        self.running: dict[Relay, None] = {}
        #: Sessions of handshake clients that are open, for requests that belong to no call.
        self.sessions: WeakSet[Session] = WeakSet()
        self._level: LoggingLevel | None = None
        self._answers_nothing = self.own.capabilities == ClientCapabilities()
        #: What a handshake server is told on connecting.
        self.declared = _merged(EVERYTHING if declare is None else declare, self.own.capabilities)
        client.use_callbacks(_RelayedCallbacks(self))
        #: Pages that were shown to handshake clients, by the server's name for them, and who was shown them.
        self._pages: dict[str, ReferenceType[Session]] = {}

    @property
    def connected(self) -> bool:
        """Whether it is known what the server offers."""
        try:
            return bool(self.client.discovery)
        except NotSent:
            return False

    # ---------------------------------------------------------------- asking the server

    def relay(self, ctx: Context[Any]) -> Relay:
        """A call that begins."""
        return Relay(ctx, single_user=self._single_user)

    async def request(self, relay: Relay, method: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> Raw:
        """The server's result for a call. Raises a CallError, and Asked where the caller's next round has to answer."""
        client = self.client
        limit = client.limits.call_total
        relay.session = client.session
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
        self.running[relay] = None
        try:
            yield
        finally:
            relay.over = True
            del self.running[relay]
            current.reset(token)
            self._leave_questions(relay)

    def _leave_questions(self, relay: Relay) -> None:
        """A call is over while the server still waits for an answer: another call of the same caller asks, or nobody."""
        heirs = [one for one in self.running if one.caller == relay.caller and one.may_ask]
        if heirs and relay.questions:
            heirs[-1].inherit(relay.questions)
            return
        for question in relay.questions.values():
            if not question.answer.done():
                question.answer.set_exception(InternalError("The call that the question belonged to is over"))

    def capabilities_of(self, ctx: Context[Any]) -> Any:
        """What a stateless server is told with a call: what its caller can be asked, and what the client answers itself."""
        if self._answers_nothing:
            meta = ctx._call.meta
            if ctx._call.era is STATELESS and meta is not None:
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
            self._remember_page(method, text, relay.ctx._session)
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
            relay is not None
            and relay.session is not None
            and relay.session is client.session
            and relay.session.channel.kind == "post"
        )
        if relay is not None and relay in self.running and sure:
            return relay
        if len({one.caller for one in self.running}) > 1:
            raise InternalError(_UNCLEAR)
        return next((one for one in reversed(self.running) if one.may_ask or not to_ask), None)

    def _open_sessions(self) -> list[Session]:
        return [one for one in self.sessions if one.connection.closed is None and one.connection.handshake.open]

    def _remember_page(self, method: str, text: bytes, session: Session) -> None:
        """Whoever is shown a page hears when it is finished."""
        identity = msgspec.json.decode(text).get("elicitationId") if method == "elicitation/create" else None
        self.shown(identity, session)

    def shown(self, identity: Any, session: Session) -> None:
        if isinstance(identity, str):
            self._pages[identity] = ref(session)
            while len(self._pages) > _PAGES:
                del self._pages[next(iter(self._pages))]

    async def notified(self, method: str, params: dict[str, Any]) -> None:
        if self.own.on_notification is not None:
            await awaited(self.own.on_notification(method, params))
        shown = self._pages.pop(str(params.get("elicitationId")), None) if method == FINISHED else None
        session = shown() if shown is not None else None
        if session is not None and method_in(method, session.connection.handshake.revision) is not None:
            session.tell(method, params)

    async def changed(self, change: Changed | ChangesLost) -> None:
        """A change at the server; a new connection to a handshake server has no log level yet."""
        if isinstance(change, ChangesLost):
            self._level = None
        if self.own.on_change is not None:
            await awaited(self.own.on_change(change))

    async def log(self, params: LogParams) -> None:
        if self.own.on_log is not None:
            await awaited(self.own.on_log(params))
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


class _RelayedCallbacks(Callbacks):
    """Pass what the server sends on to the callers; callbacks that the client was given come first."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(on_log=upstream.log, on_change=upstream.changed, on_notification=upstream.notified)
        self._upstream = upstream

    @property
    def capabilities(self) -> ClientCapabilities:
        """What is declared on connecting."""
        return self._upstream.declared

    async def answer(self, method: str, params: bytes) -> Any:
        """Serve one request of the server."""
        if self._upstream.answers_itself(method, params):
            return await self._upstream.own.answer(method, params)
        return await self._upstream.ask_caller(method, params)

    async def answer_inputs(self, required: InputRequiredResult, answer: AnswerRequest) -> Mapping[str, Any]:
        """Answer input requests here, or raise Asked so that the rounds of a stateless caller go on."""
        upstream, relay = self._upstream, current.get(None)
        requests = required.input_requests or {}
        if relay is None or relay not in upstream.running or relay.ctx._call.era is HANDSHAKE:
            return await answer_all(requests, answer)
        own = {
            key: one
            for key, one in requests.items()
            if upstream.answers_itself(
                one.method, msgspec.json.encode({} if one.params is msgspec.UNSET else one.params)
            )
        }
        answers = await answer_all(own, answer)
        if own and len(own) == len(requests):
            return answers
        remaining = {key: one for key, one in requests.items() if key not in own}
        raise Asked(structs.replace(required, input_requests=remaining), answers)

    async def open_urls(self, pages: Sequence[ElicitUrlParams], answer: AnswerRequest) -> bool:
        """Open pages if the client was given a callback for that; otherwise callers get the error that names them."""
        if self._upstream.answers_itself("elicitation/create", b'{"mode":"url"}'):
            return await super().open_urls(pages, answer)
        relay = current.get(None)
        if relay is not None:
            for page in pages:
                self._upstream.shown(page.elicitation_id, relay.ctx._session)
        return False


def _merged(one: ClientCapabilities, other: ClientCapabilities) -> ClientCapabilities:
    """What either can do."""
    return msgspec.convert(_union(msgspec.to_builtins(one), msgspec.to_builtins(other)), ClientCapabilities)


def _union(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one if one is not None else other
    return {key: _union(one.get(key), other.get(key)) for key in {**one, **other}}
