"""What a POST, GET or DELETE on the endpoint means: a channel of its own or one of a session, by the message's era.

The rules of table 4.A, HTTP's half of table 4.B, and the session rules of the handshake revisions. Must not know how
responses are written or sessions are kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from hinge import jsonrpc
from hinge.channel import Serve
from hinge.errors import InternalError, InvalidRequest, ProtocolError, UnsupportedVersion
from hinge.http1.asgi import EVENTS_TYPE, RETRY_LATER, HeaderPairs
from hinge.jsonrpc import Request, RequestId, Unreadable
from hinge.protocol.calls import Batch, Call, Inbound, Origin, Outgoing
from hinge.protocol.eras import detect
from hinge.protocol.eras.base import Era
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.eras.stateless import STATELESS
from hinge.protocol.http import headers as http
from hinge.protocol.http import sse
from hinge.protocol.http.headers import Headers, Refusal
from hinge.protocol.http.media_types import (
    BOTH,
    EITHER,
    TAKES_EVENTS,
    TAKES_JSON,
    accepted,
    check_accept,
    check_content_type,
)
from hinge.transports.http.server.exchange import STOPPING, Exchange
from hinge.transports.http.server.lifecycle import Clock
from hinge.transports.http.server.options import HttpSettings
from hinge.transports.http.server.session import HttpSession
from hinge.transports.http.server.session_store import SessionTable
from hinge.transports.http.server.stateless import Post

_NO_SESSION = "Session not found: it has ended or never was. Start over with initialize, without Mcp-Session-Id"
_NO_SESSION_ID = "Mcp-Session-Id is missing: send the one that came with the answer to initialize"

_ServePost: TypeAlias = Callable[[Exchange, Headers, Origin, Inbound | bytes], Awaitable[None]]


class Routes:
    """The endpoint of one app. `stopping` turns new requests away."""

    __slots__ = ("_by_era", "_clock", "_eras", "_options", "_revisions", "_serve", "_sessions", "stopping")

    def __init__(self, serve: Serve, options: HttpSettings, sessions: SessionTable, clock: Clock) -> None:
        self._serve = serve
        self._options = options
        self._eras = detect.parse_eras(options.eras)
        self._by_era: dict[Era, _ServePost] = {HANDSHAKE: self._handshake, STATELESS: self._modern}
        self._sessions = sessions
        self._clock = clock
        #: All revisions on offer, newest first (T-07).
        self._revisions = [revision for era in self._eras[::-1] for revision in era.revisions[::-1]]
        self.stopping = False

    # ---------------------------------------------------------------- POST

    async def post(self, exchange: Exchange, headers: Headers, origin: Origin) -> None:
        """One message, or a batch of the revision that knows batches."""
        refusal = check_content_type(headers)
        if refusal is not None:
            await exchange.refuse(refusal)
            return
        body = exchange.arrived()
        if body is None:
            body = await exchange.read(headers)
            if body is None:
                return
        if type(body) is Refusal:
            await exchange.refuse(body)
            return
        inbound: Inbound | bytes
        try:
            inbound = body if jsonrpc.is_batch(body) else detect.read(body)
        except ProtocolError as exc:
            await _fail(exchange, exc, exc.request_id if isinstance(exc, Unreadable) else None)
            return
        if type(inbound) is not Inbound:
            era = detect.detect_batch(http.protocol_version(headers), self._eras)
        else:
            era = detect.detect(inbound, None if inbound.claims else http.protocol_version(headers), self._eras)
        await self._by_era[era](exchange, headers, origin, inbound)

    def _modern(
        self, exchange: Exchange, headers: Headers, origin: Origin, inbound: Inbound | bytes
    ) -> Awaitable[None]:
        refusal = check_accept(headers, BOTH)
        if refusal is not None:
            return _fail(exchange, InvalidRequest(refusal.text), _id_of(inbound), refusal.status)
        if self.stopping:
            return self._turn_away(exchange, inbound)
        return Post(exchange, BOTH, True).run(self._serve, inbound, origin)

    async def _turn_away(self, exchange: Exchange, inbound: Inbound | bytes) -> None:
        await _fail(exchange, InternalError(STOPPING.text), _id_of(inbound), 503, RETRY_LATER)

    # ---------------------------------------------------------------- POST of the handshake revisions

    async def _handshake(self, exchange: Exchange, headers: Headers, origin: Origin, inbound: Inbound | bytes) -> None:
        message = None if isinstance(inbound, bytes) else inbound.message
        refusal = check_accept(headers, EITHER)
        if refusal is not None:
            await _fail(exchange, InvalidRequest(refusal.text), _id_of(inbound), refusal.status)
            return
        takes = accepted(headers)
        try:
            self._check_version(headers)
            if self.stopping and isinstance(message, Request | None):
                await self._turn_away(exchange, inbound)
            elif not self._options.sessions:
                await Post(exchange, takes, False).run(self._serve, inbound, origin)
            elif (session_id := http.session_id(headers)) is not None:
                session = self._sessions.find(session_id, origin.principal)
                if session is None:
                    await _fail(exchange, InvalidRequest(_NO_SESSION), _id_of(inbound), 404)
                else:
                    await self._in_session(session, exchange, inbound, origin, takes)
            elif isinstance(message, Request) and message.method == "initialize":
                await self._initialize(exchange, inbound, origin, takes)
            else:
                await _fail(exchange, InvalidRequest(_NO_SESSION_ID), _id_of(inbound))
        except ProtocolError as exc:
            await _fail(exchange, exc, _id_of(inbound))

    def _check_version(self, headers: Headers) -> None:
        """400 for a revision that isn't offered (LHTTP-28, A-6). None is fine: one revision has no such header."""
        version = http.protocol_version(headers)
        if version is not None and not HANDSHAKE.knows(version):
            if version in self._revisions:
                raise InvalidRequest(
                    f"{version} has no sessions and no responses of clients: it takes requests by POST"
                )
            raise UnsupportedVersion(version, self._revisions)

    async def _initialize(self, exchange: Exchange, inbound: Inbound | bytes, origin: Origin, takes: int) -> None:
        """A session comes into being only if its handshake succeeds (B-030)."""
        session = self._sessions.make(origin.principal, self._serve)
        if session is None:
            error = InternalError("Too many sessions are open here: try again later")
            await _fail(exchange, error, _id_of(inbound), 503, RETRY_LATER)
            return
        call = session.conversation.receive(inbound, origin)
        reply = await session.initialize(call) if isinstance(call, Call) else call
        if not isinstance(reply, Outgoing) or reply.error is not None:
            self._sessions.end(session, "the handshake failed")
            if isinstance(reply, Outgoing):
                await exchange.reply(reply.status, reply.data)
            else:
                await _fail(exchange, InvalidRequest("initialize was cancelled"), _id_of(inbound))
            return
        self._sessions.add(session)
        self._clock.wake()
        headers = ((b"mcp-session-id", session.id.encode()),)
        if takes & TAKES_JSON:
            await exchange.reply(reply.status, reply.data, headers)
        else:
            await exchange.reply(reply.status, sse.encode(reply.data), headers, EVENTS_TYPE)

    async def _in_session(
        self, session: HttpSession, exchange: Exchange, inbound: Inbound | bytes, origin: Origin, takes: int
    ) -> None:
        got = session.conversation.receive(inbound, origin)
        self._sessions.touch(session)
        if isinstance(got, Outgoing):
            await exchange.reply(got.status, got.data)
        elif got is None:
            await exchange.empty(202)
        elif isinstance(got, Call) and got.id is None:
            session.notice(got)
            await exchange.empty(202)
        elif isinstance(got, Batch) and not got.replies and all(call.id is None for call in got.calls):
            for call in got.calls:
                session.notice(call)
            await exchange.empty(202)
        else:
            await session.serve(got, exchange, takes)

    # ---------------------------------------------------------------- GET and DELETE

    async def get(self, exchange: Exchange, headers: Headers, origin: Origin) -> None:
        """The standing stream of a session, or the rest of a stream that broke off (LHTTP-12, LHTTP-18)."""
        refusal = check_accept(headers, TAKES_EVENTS)
        if refusal is not None:
            await exchange.refuse(refusal)
            return
        session = await self._named(exchange, headers, origin)
        if session is None:
            return
        if self.stopping:
            await exchange.refuse(STOPPING)
            return
        try:
            after = http.last_event_id(headers)
            if after is None and session.standing.reader is not None:
                await exchange.refuse(Refusal(409, "This session's stream is open already: one GET at a time"))
                return
            await session.listen(exchange, after)
        except ProtocolError as exc:
            await _fail(exchange, exc, None)

    async def delete(self, exchange: Exchange, headers: Headers, origin: Origin) -> None:
        """The client ends its session (LHTTP-26)."""
        session = await self._named(exchange, headers, origin)
        if session is not None:
            self._sessions.end(session, "the client ended the session")
            await exchange.empty(204)

    async def _named(self, exchange: Exchange, headers: Headers, origin: Origin) -> HttpSession | None:
        """The session that the request names; None when it was refused."""
        try:
            self._check_version(headers)
            session_id = http.session_id(headers)
        except ProtocolError as exc:
            await _fail(exchange, exc, None)
            return None
        if session_id is None:
            await exchange.refuse(Refusal(400, _NO_SESSION_ID))
            return None
        session = self._sessions.find(session_id, origin.principal)
        if session is None:
            await exchange.refuse(Refusal(404, _NO_SESSION))
        return session


def _id_of(inbound: Inbound | bytes) -> RequestId | None:
    """The id of a request whose message could be read (ERR-17)."""
    return inbound.message.id if isinstance(inbound, Inbound) and isinstance(inbound.message, Request) else None


async def _fail(
    exchange: Exchange,
    error: ProtocolError,
    request_id: RequestId | None,
    status: int = 400,
    headers: HeaderPairs = (),
) -> None:
    await exchange.reply(status, jsonrpc.encode_failure(request_id, error.error), headers)
