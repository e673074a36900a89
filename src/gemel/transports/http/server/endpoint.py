"""The MCP endpoint: who may call, and which era a message belongs to.

The checks of the head are in `protocol/http/headers.py`; `stateless.py` and `session_store.py` serve what passes here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from gemel import jsonrpc
from gemel.channel import Serve
from gemel.errors import ProtocolError
from gemel.http1.asgi import Scope
from gemel.jsonrpc import Failure, Response
from gemel.protocol.connection import LIVENESS_RESERVE
from gemel.protocol.eras import detect
from gemel.protocol.eras.base import Era
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.http.headers import Head, HeadRules, judge_head
from gemel.protocol.http.media_types import takes_page
from gemel.protocol.http.origin import Guard
from gemel.protocol.http.request import Principal, Refusal
from gemel.protocol.records import Inbound, Origin, Outgoing
from gemel.transports.http.server.exchange import Exchange, bad_request, overloaded
from gemel.transports.http.server.open_exchanges import OpenExchanges
from gemel.transports.http.server.options import Authenticate, Caller, HttpSettings
from gemel.transports.http.server.session_store import SessionStore, method_of
from gemel.transports.http.server.stateless import serve_stateless

logger = logging.getLogger("gemel")

_ServePost: TypeAlias = Callable[[Exchange, Head, Origin, Inbound | bytes], Awaitable[None]]

_TOO_MANY_REQUESTS = overloaded("Too many requests at once: try again later")

#: A body of so many bytes that is there already is taken as it is, without the limits of those that arrive slowly.
_AT_ONCE = 4096
#: Maximum number of different refusals of foreign hosts and origins that are logged; callers choose their text.
_LOGGED = 64


class Admission:
    """Who may call: Host and Origin checks that are logged, and authentication. One for each app.

    Attributes:
        open: Whether everybody may call.
    """

    def __init__(self, authenticate: Authenticate | None) -> None:
        self._authenticate = authenticate
        self.open = authenticate is None
        self._logged: set[str] = set()

    async def admit(self, exchange: Exchange, head: Head) -> Origin | None:
        """Refuse a request that is barred, and authenticate its caller. Returns None if it was refused."""
        origin = self.recognize(exchange, head)
        return origin if type(origin) is Origin else await origin

    def recognize(self, exchange: Exchange, head: Head) -> Origin | Awaitable[Origin | None]:
        """The same, without waiting for a caller who is known already."""
        if head.barred is None:
            if self._authenticate is None:
                return Origin(head, None, exchange.raw.scope)
            scope = exchange.raw.scope
            verdict = self._authenticate(scope, head.headers)
            if type(verdict) is Principal:
                return _origin_of(verdict, head, scope)
            return self._judge(exchange, head, verdict)
        self.log(head.barred)
        return exchange.refuse(head.barred)

    async def _judge(self, exchange: Exchange, head: Head, verdict: Caller | Awaitable[Caller]) -> Origin | None:
        if isinstance(verdict, Awaitable):
            exchange.owner = visitor = _Visitor(exchange.raw.task)
            try:
                caller = await verdict
            except asyncio.CancelledError:
                if not visitor.left:
                    raise
                exchange.raw.task.uncancel()
                return None
            finally:
                exchange.owner = None
        else:
            caller = verdict
        if isinstance(caller, Refusal):
            await exchange.refuse(caller)
            return None
        if isinstance(caller, Principal):
            return _origin_of(caller, head, exchange.raw.scope)
        _check_name(caller)
        exchange.raw.scope["gemel.principal"] = caller
        return Origin(head, caller, exchange.raw.scope)

    def log(self, refusal: Refusal) -> None:
        """Tell the operator, once for each text, which option would let the caller in."""
        if refusal.status != 431 and refusal.text not in self._logged and len(self._logged) < _LOGGED:
            self._logged.add(refusal.text)
            logger.warning("a request was refused: %s", refusal.text)


class _Visitor:
    """Whoever sends a request, while it is found out who that is: that ends when the client leaves."""

    accepts = 0

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.left = False

    def disconnected(self, reason: str) -> None:
        """Nobody waits for the answer any more."""
        self.left = True
        self._task.cancel()

    def stop(self, reason: str) -> None:
        """The request may still be answered."""

    def expired(self) -> None:
        """There is no authorization yet."""

    def unfinished(self, reason: str) -> Outgoing | None:
        """The endpoint answers."""
        return None

    def opening(self) -> bytes:
        """There is no stream."""
        return b""


def _origin_of(caller: Principal, head: Head, scope: Scope) -> Origin:
    name = caller.name
    _check_name(name)
    scope["gemel.principal"] = name  # for the access log
    return Origin(head, name, scope, frozenset(caller.scopes), caller)


def _check_name(name: object) -> None:
    """Refuse False and the like: they let nobody in."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"authenticate returned {type(name).__name__}: use a name, Principal, Refusal, or None")


class Endpoint:
    """The MCP endpoint of one app on one event loop."""

    def __init__(
        self,
        serve: Serve,
        options: HttpSettings,
        admission: Admission,
        sessions: SessionStore,
        requests: OpenExchanges,
    ) -> None:
        self._options = options
        self._admission = admission
        self._rules = head_rules(options, HANDSHAKE.http_methods if holds_sessions(options) else STATELESS.http_methods)
        self._at_once = min(_AT_ONCE, options.limits.body)
        self._eras = detect.parse_eras(options.eras)
        self._by_era: dict[Era, _ServePost] = {
            HANDSHAKE: sessions.post,
            STATELESS: partial(serve_stateless, serve, requests),
        }
        self._sessions = sessions
        self._requests = requests

    def handle(self, exchange: Exchange) -> Awaitable[None]:
        """Serve one request."""
        method: str = exchange.raw.scope["method"]
        return self._post(exchange) if method == "POST" else self._get_or_delete(exchange, method)

    # ---------------------------------------------------------------- POST

    async def _post(self, exchange: Exchange) -> None:
        """Serve one message, or a batch of the revision that has batches."""
        raw = exchange.raw
        head = judge_head("POST", raw.scope["headers"], self._rules, raw.form)
        if head.barred is None and self._admission.open:
            origin = Origin(head, None, raw.scope)
        else:
            caller = self._admission.recognize(exchange, head)
            known = caller if type(caller) is Origin else await caller
            if known is None:
                return
            origin = known
        beyond = self._requests.running - self._options.requests
        if beyond > 0 and (beyond > LIVENESS_RESERVE or not _is_short(head)):
            await exchange.refuse(_TOO_MANY_REQUESTS)
            return
        if head.refusal is not None:
            await exchange.refuse(head.refusal)
            return
        body: bytes | bytearray | Refusal | None = raw.body if raw.complete else None
        if type(body) is not bytes or len(body) > self._at_once:
            body = await exchange.read()
            if type(body) is Refusal:
                await exchange.refuse(body)
            if type(body) is not bytes:
                return
        inbound: Inbound | bytes
        try:
            message = jsonrpc.decode(body)
            if type(message) is Response or type(message) is Failure:
                inbound, era = message, detect.era_of_answer(self._eras)
            else:
                inbound = call = detect.classify(message, self._eras, head.version)
                era = call.era
        except ProtocolError as exc:
            if not jsonrpc.is_batch(body):
                await self._refuse_unreadable(exc, exchange, head, origin, body)
                return
            inbound, era = body, detect.era_of_batch(head.version, self._eras)
        if beyond > 0 and method_of(inbound) != era.liveness_method:
            await exchange.refuse(_TOO_MANY_REQUESTS, inbound)
            return
        await self._by_era[era](exchange, head, origin, inbound)

    async def _refuse_unreadable(
        self, exc: ProtocolError, exchange: Exchange, head: Head, origin: Origin, body: bytes
    ) -> None:
        """Refuse what is not a message. A malformed response fails the request of the server that it is for."""
        request_id = jsonrpc.id_of(exc, body)
        meant_for_session = head.session_id is not None and jsonrpc.meant_as(body) == "response"
        if meant_for_session and await self._sessions.fail_request(head, origin, body, request_id):
            request_id = None  # the id is one of the server's own
        await exchange.refuse(bad_request(exc), request_id=request_id)

    # ---------------------------------------------------------------- GET and DELETE

    async def _get_or_delete(self, exchange: Exchange, method: str) -> None:
        """Serve a request without a message: for an HTTP session, or refused."""
        head = judge_head(method, exchange.raw.scope["headers"], self._rules)
        exchange.shows_page = method == "GET" and head.barred is None and takes_page(head.raw.get(b"accept"))
        origin = await self._admission.admit(exchange, head)
        if origin is None:
            return
        refusal = head.refusal or head.handshake_refusal
        if refusal is not None:
            await exchange.refuse(refusal)
        elif method == "DELETE":
            await self._sessions.delete(exchange, head, origin)
        else:
            await self._sessions.listen(exchange, head, origin)


def holds_sessions(options: HttpSettings) -> bool:
    """Whether clients of the handshake era get HTTP sessions."""
    return options.sessions and HANDSHAKE in detect.parse_eras(options.eras)


def head_rules(options: HttpSettings, methods: tuple[str, ...], *, any_accept: bool = False) -> HeadRules:
    """Make the rules for the heads of requests to one path."""
    return HeadRules(
        options.guard or Guard.for_bind(options.bind, options.allowed_hosts, options.allowed_origins),
        methods,
        tuple(revision for era in detect.parse_eras(options.eras)[::-1] for revision in era.revisions[::-1]),
        holds_sessions(options),
        any_accept,
        options.headers,
        options.header_bytes,
        options.limits.body,
    )


def _is_short(head: Head) -> bool:
    """Whether the body is said to have less than 10,000 bytes, as those of checks whether the server is alive have."""
    return 0 < len(head.raw.get(b"content-length", b"")) < 5
