"""A session with the upstream server: requests to it, and which call its requests and log messages belong to."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, NamedTuple, TypeAlias
from weakref import ReferenceType, WeakSet, ref

import msgspec
from msgspec import Raw, structs

from gemel.client.callbacks import AnswerRequest, Callbacks, answer_all, awaited
from gemel.client.client import Client
from gemel.client.url_elicitation import FINISHED
from gemel.errors import CallError, CallTimeout, GemelError, InternalError
from gemel.protocol.changes import Changed, ChangesLost
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.revisions.adapt import shape
from gemel.proxy.call import ProxiedCall, current_call, request_client, require_declared
from gemel.proxy.subscriptions import UpstreamSubscriptions
from gemel.proxy.translation import mode_of
from gemel.schema.base import RESERVED
from gemel.schema.elicitation import ElicitUrlParams
from gemel.schema.input_required import InputRequiredResult
from gemel.schema.lifecycle import ClientCapabilities, Elicitation, RootsCapability, Sampling
from gemel.schema.methods import method_in
from gemel.schema.notifications import SEVERITY, LoggingLevel, LogParams
from gemel.server.context import Context, served_call
from gemel.session import Session
from gemel.timeouts import PausableTimeout

logger = logging.getLogger("gemel")

#: The extension that is not forwarded: a proxy keeps no tasks, so calls through it are plain.
_TASKS = RESERVED + "tasks"

#: Declared to handshake servers by default: what a caller supports is known only later.
ALL_CAPABILITIES = ClientCapabilities(
    roots=RootsCapability(list_changed=True),
    sampling=Sampling(tools={}),
    elicitation=Elicitation(form={}, url={}),
)


#: Names of what a server offers, by the kind, each with the time at which they were asked for.
Names: TypeAlias = dict[str, tuple[float, set[str]]]


class CallerInputRequired(Exception):
    """A stateless server requires input from the next round of the caller."""

    def __init__(self, required: InputRequiredResult, own: dict[str, Any]) -> None:
        super().__init__("input required")
        self.required = required
        #: Responses of the callbacks of the client, by key.
        self.own = own


class UpstreamRequest(NamedTuple):
    """A request to the upstream server."""

    method: str
    params: Mapping[str, Any]
    headers: Mapping[str, str]


class Upstream:
    """One session with the upstream server, for one caller or several; see `UpstreamSessions`.

    Args:
        client: The client, which is not connected yet.
        own: Its callbacks, which take precedence over callers.
        declare: What is declared to a handshake server; None for everything.
        single_user: Whether all calls are those of one user.
        on_change: Called with each change that the server reports in this session.

    Attributes:
        caller: The only caller that uses it; None if it is for several, or nobody has it yet.
        uses: How many calls and subscriptions use it now.
    """

    def __init__(
        self,
        client: Client,
        own: Callbacks,
        declare: ClientCapabilities | None,
        *,
        single_user: bool,
        on_change: Callable[[Upstream, Changed], None],
    ) -> None:
        self.client = client
        self._single_user = single_user
        self.own = own
        self.caller: Hashable = None
        self.uses = 0
        #: That of the call that it is made for: functions for `auth` and `headers` may ask who calls, even when it ends.
        self.context = copy_context()
        #: Connects it; None when it is connected.
        self.opening: asyncio.Task[None] | None = None
        #: Ends it when it was not used for long.
        self.idle: asyncio.TimerHandle | None = None
        #: Whom it is counted for; see `limits.upstream_sessions_per_caller`.
        self.counted_for: Hashable = None
        self.subscriptions = UpstreamSubscriptions(client, lambda change: on_change(self, change))
        #: How many callers watch each resource.
        self.watching: Counter[str] = Counter()
        #: The names of what the server offers, by the kind, and since when they are known.
        self.names: Names = {}
        self.running: dict[ProxiedCall, None] = {}
        #: Sessions of handshake clients that are open, for requests that belong to no call.
        self.sessions: WeakSet[Session] = WeakSet()
        self._level: LoggingLevel | None = None
        self._has_no_callbacks = self.own.capabilities == ClientCapabilities()
        #: The capabilities that are declared to a handshake server.
        self.declared = _merge(ALL_CAPABILITIES if declare is None else declare, self.own.capabilities)
        client.use_callbacks(_RelayedCallbacks(self))
        #: The sessions that pages were sent to, by elicitation id.
        self._pages: dict[str, ReferenceType[Session]] = {}

    async def close(self) -> None:
        """End the session."""
        await self.subscriptions.stop()
        await self.client.close()

    # ---------------------------------------------------------------- requests to the server

    def call(self, ctx: Context[Any]) -> ProxiedCall:
        """Start a call."""
        return ProxiedCall(ctx, single_user=self._single_user)

    async def request(self, call: ProxiedCall, request: UpstreamRequest) -> Raw:
        """The server's result for a call. Raises a CallError, and Asked where the caller's next round has to answer."""
        client, (method, params, headers) = self.client, request
        limit = client.limits.call_total
        call.session = client.session
        with self._serving(call):
            clock = asyncio.timeout(limit)
            try:
                async with clock:
                    call.limit = PausableTimeout(clock, served_call(call.ctx).timeout)
                    result: Raw = await client.request(
                        method,
                        params,
                        result=Raw,
                        idle=None,
                        total=None,
                        cache="bypass",
                        on_progress=call.progress,
                        headers=headers or None,
                    )
                    return result
            except TimeoutError as exc:
                if not clock.expired():
                    raise
                raise CallTimeout(f"{method} got no response within {limit:g} seconds") from exc
            finally:
                call.limit = None

    @contextmanager
    def _serving(self, call: ProxiedCall) -> Iterator[None]:
        token = current_call.set(call)
        self.running[call] = None
        try:
            yield
        finally:
            call.over = True
            del self.running[call]
            current_call.reset(token)
            self._hand_over_pending(call)

    def _hand_over_pending(self, call: ProxiedCall) -> None:
        """Hand over requests of a finished call to another call of the same caller, or fail them."""
        heirs = [one for one in self.running if one.caller == call.caller and one.accepts_requests]
        if heirs and call.pending:
            heirs[-1].adopt(call.pending)
            return
        for request in call.pending.values():
            if not request.answer.done():
                request.answer.set_exception(InternalError("The call of this request has ended"))

    def capabilities_of(self, ctx: Context[Any]) -> Any:
        """Return the capabilities to declare with a call: those of the caller and of the client's callbacks, except for tasks."""
        if self._has_no_callbacks:
            call = served_call(ctx).call
            raw = call.era.raw_client_capabilities(call.meta)
            if raw is not None:
                return _without_tasks(raw)
        declared = (
            ctx.client_capabilities
            if self._has_no_callbacks
            else _merge(ctx.client_capabilities, self.own.capabilities)
        )
        others = {name: value for name, value in (declared.extensions or {}).items() if name != _TASKS}
        declared = structs.replace(declared, tasks=None, extensions=others or None)
        return shape(declared, self.client.protocol_version)

    def has_callback(self, method: str, text: bytes | Raw) -> bool:
        """Return whether a callback of the client serves a request, so that it is not sent to a caller."""
        if self._has_no_callbacks:
            return False
        own = self.own.capabilities
        if method == "elicitation/create" and own.elicitation is not None:
            return getattr(own.elicitation, mode_of(text), None) is not None
        if method == "sampling/createMessage":
            return own.sampling is not None
        return method == "roots/list" and own.roots is not None

    # ---------------------------------------------------------------- requests and notifications of the server

    async def request_caller(self, method: str, text: bytes) -> Any:
        """Send a request to the caller that it belongs to. Raises ProtocolError, for the server."""
        call = self._find_call()
        source = self.client.protocol_version
        if call is not None:
            self._remember_requested_page(method, text, served_call(call.ctx).session)
            return await call.request(method, text, source)
        sessions = self._open_sessions()
        if len(sessions) != 1:
            raise InternalError("No client is connected to this proxy" if not sessions else _AMBIGUOUS)
        require_declared(sessions[0].connection.handshake.capabilities, method, text)
        return await request_client(sessions[0], method, text, source)

    def _find_call(self, *, for_request: bool = True) -> ProxiedCall | None:
        """Return the call that a message of the server belongs to. Raises InternalError if several callers are possible.

        Over HTTP the stream decides; otherwise it is known only while one caller is being served.
        """
        call = current_call.get(None)
        client = self.client
        # A session that was opened during this call would make all its messages look like those of the call.
        sure = client.era == "2026" or (
            call is not None
            and call.session is not None
            and call.session is client.session
            and call.session.channel.kind == "post"
        )
        if call is not None and call in self.running and sure:
            return call
        if len({one.caller for one in self.running}) > 1:
            raise InternalError(_AMBIGUOUS)
        possible = [one for one in reversed(self.running) if one.accepts_requests or not for_request]
        # Rather one that doesn't wait for its caller yet: calls within one call go on when all of them wait or have ended.
        return min(possible, key=lambda one: len(one.pending), default=None)

    def _open_sessions(self) -> list[Session]:
        return [one for one in self.sessions if one.connection.closed is None and one.connection.handshake.open]

    def _remember_requested_page(self, method: str, text: bytes, session: Session) -> None:
        """Remember who gets a page, to forward the notification that it is complete."""
        identity = msgspec.json.decode(text).get("elicitationId") if method == "elicitation/create" else None
        self.remember_page(identity, session)

    def remember_page(self, identity: object, session: Session) -> None:
        if isinstance(identity, str):
            self._pages[identity] = ref(session)
            while len(self._pages) > _PAGES:
                del self._pages[next(iter(self._pages))]

    async def notified(self, method: str, params: dict[str, Any]) -> None:
        if self.own.on_notification is not None:
            await awaited(self.own.on_notification(method, params))
        remember_page = self._pages.pop(str(params.get("elicitationId")), None) if method == FINISHED else None
        session = remember_page() if remember_page is not None else None
        if session is not None and method_in(method, session.connection.handshake.revision) is not None:
            session.start_sending(session.notify, method, params)

    async def changed(self, change: Changed | ChangesLost) -> None:
        """Handle a change; a new session with a handshake server has no log level yet."""
        if isinstance(change, ChangesLost):
            self._level = None
        if self.own.on_change is not None:
            await awaited(self.own.on_change(change))

    async def log(self, params: LogParams) -> None:
        if self.own.on_log is not None:
            await awaited(self.own.on_log(params))
        try:
            call = self._find_call(for_request=False)
        except InternalError:
            logger.debug("a log message of the upstream server is dropped: it could belong to several callers")
            return
        if call is not None:
            call.log(params)
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
            except GemelError as exc:
                logger.debug("a log message could not be forwarded: %s", exc)

    async def lower_log_level(self, level: LoggingLevel | None) -> None:
        """Set the log level of a handshake server to the lowest that a caller wants."""
        has_method = method_in("logging/setLevel", self.client.protocol_version) is not None
        if level is None or not has_method or self.client.server_capabilities.logging is None:
            return
        if self._level is not None and SEVERITY[level] >= SEVERITY[self._level]:
            return
        self._level = level
        try:
            await self.client.set_log_level(level)
        except CallError as exc:
            logger.warning("The upstream server refuses the log level %s: %s", level, exc)


#: How many pages are remembered until they are complete.
_PAGES = 1000
_AMBIGUOUS = "Several callers are being served, and the request names none of them"


class _RelayedCallbacks(Callbacks):
    """Forwards what the server sends to callers; the callbacks of the client take precedence."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(on_log=upstream.log, on_change=upstream.changed, on_notification=upstream.notified)
        self._upstream = upstream

    @property
    def capabilities(self) -> ClientCapabilities:
        """The declared capabilities."""
        return self._upstream.declared

    async def answer(self, method: str, params: bytes) -> Any:
        """Serve one request of the server."""
        if self._upstream.has_callback(method, params):
            return await self._upstream.own.answer(method, params)
        return await self._upstream.request_caller(method, params)

    async def answer_inputs(self, required: InputRequiredResult, answer: AnswerRequest) -> Mapping[str, Any]:
        """Answer input requests here, or raise Asked so that the rounds of a stateless caller go on."""
        upstream, call = self._upstream, current_call.get(None)
        requests = required.input_requests or {}
        if call is None or call not in upstream.running or served_call(call.ctx).call.era is HANDSHAKE:
            return await answer_all(requests, answer)
        own = {
            key: one
            for key, one in requests.items()
            if upstream.has_callback(one.method, msgspec.json.encode({} if one.params is msgspec.UNSET else one.params))
        }
        answers = await answer_all(own, answer)
        if own and len(own) == len(requests):
            return answers
        remaining = {key: one for key, one in requests.items() if key not in own}
        raise CallerInputRequired(structs.replace(required, input_requests=remaining), answers)

    async def open_urls(self, pages: Sequence[ElicitUrlParams], answer: AnswerRequest) -> bool:
        """Open pages if the client has a callback for that; otherwise callers get the error that names them."""
        if self._upstream.has_callback("elicitation/create", b'{"mode":"url"}'):
            return await super().open_urls(pages, answer)
        call = current_call.get(None)
        if call is not None:
            for page in pages:
                self._upstream.remember_page(page.elicitation_id, served_call(call.ctx).session)
        return False


def _without_tasks(capabilities: Raw) -> Raw:
    """The capabilities of a client as JSON text, without those of tasks."""
    if b'tasks"' not in bytes(capabilities):
        return capabilities
    declared = msgspec.json.decode(capabilities, type=dict[str, Any])
    declared.pop("tasks", None)
    if isinstance(extensions := declared.get("extensions"), dict):
        extensions.pop(_TASKS, None)
    return Raw(msgspec.json.encode(declared))


def _merge(one: ClientCapabilities, other: ClientCapabilities) -> ClientCapabilities:
    """Return the union of capabilities."""
    return msgspec.convert(_merge_json(msgspec.to_builtins(one), msgspec.to_builtins(other)), ClientCapabilities)


def _merge_json(one: object, other: object) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one if one is not None else other
    return {key: _merge_json(one.get(key), other.get(key)) for key in {**one, **other}}
