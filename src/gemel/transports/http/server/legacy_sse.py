"""The server side of HTTP+SSE, the deprecated transport of 2024-11-05: an event stream out, a POST for each message in.

Off by default. A session lives as long as its stream and belongs to the principal that opened it. Maintained, but gets
no new features.
Specification (2024-11-05): Transports, section "HTTP with SSE".
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from secrets import token_urlsafe
from urllib.parse import parse_qs, quote

from gemel import jsonrpc
from gemel.channel import ChannelKind, Serve
from gemel.errors import ChannelClosed, DefinitionError, ProtocolError, UnsupportedVersion
from gemel.jsonrpc import Notification, Request
from gemel.protocol.eras import detect
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.http import sse
from gemel.protocol.http.headers import judge_head
from gemel.protocol.http.request import Refusal
from gemel.protocol.records import Call, Origin, Outgoing
from gemel.schema.base import NOTHING
from gemel.schema.revisions import HANDSHAKE_REVISIONS
from gemel.session import Session
from gemel.shares import Shares
from gemel.transports.duplex import ByteBudget, DuplexChannel
from gemel.transports.http.server.endpoint import Admission, head_rules
from gemel.transports.http.server.exchange import EXPIRED, LEFT, STOPPING, Exchange, overloaded
from gemel.transports.http.server.options import HttpSettings
from gemel.transports.http.server.session import StreamResponse
from gemel.transports.http.server.session_store import TOO_MANY_SESSIONS

_NO_SESSION = Refusal(404, "Session not found: its stream has ended or never was. Open a new one with GET")
_BUSY = overloaded("Too many messages wait for initialize, or for the stream to be read: try again later")

#: Sessions that are looked at for one that serves no call.
_LOOKED_AT = 100


class LegacyEndpoint:
    """The two paths of HTTP+SSE on one app: `path` opens streams, `path/messages` takes messages.

    Raises:
        DefinitionError: The path is malformed or taken.
    """

    def __init__(self, path: str, serve: Serve, options: HttpSettings, admission: Admission) -> None:
        self._path = path.rstrip("/")
        if not self._path.startswith("/") or self._path == options.path.rstrip("/"):
            raise DefinitionError(f"sse_path={path!r} must begin with a slash and not be the endpoint {options.path!r}")
        self._messages = self._path + "/messages"
        self._serve = serve
        self._options = options
        self._admission = admission
        self._stream_rules = head_rules(options, ("GET",), any_accept=True)
        self._message_rules = head_rules(options, ("POST",))
        self._sessions: dict[str, LegacySession] = {}
        #: Those that are not about to end, by holder.
        self._shares: Shares[LegacySession] = Shares()
        #: Bytes of messages that wait for `initialize`, of all sessions.
        self._held = ByteBudget(options.limits.lines, options.limits.sessions)
        self._stopping = False

    def serves(self, path: str) -> bool:
        """Whether a path is one of the two. Some clients add a slash."""
        return path.rstrip("/") in (self._path, self._messages)

    async def handle(self, exchange: Exchange) -> None:
        """Serve one request."""
        scope = exchange.raw.scope
        is_stream = str(scope["path"]).removeprefix(scope.get("root_path", "")).rstrip("/") == self._path
        rules = self._stream_rules if is_stream else self._message_rules
        head = judge_head(scope["method"], scope["headers"], rules)
        origin = await self._admission.admit(exchange, head)
        if origin is None:
            return
        if head.refusal is not None:
            await exchange.refuse(head.refusal)
        elif is_stream:
            await self._open(exchange, origin)
        else:
            await self._message(exchange, origin)

    # ---------------------------------------------------------------- the stream

    async def _open(self, exchange: Exchange, origin: Origin) -> None:
        """Open a session; its first event names the path for messages. The request lasts as long as the session."""
        if self._stopping or not self._make_room(origin.holder):
            await exchange.refuse(STOPPING if self._stopping else TOO_MANY_SESSIONS)
            return
        session_id = token_urlsafe(32)
        response = StreamResponse(exchange, self._options.limits.stream_bytes)
        session = LegacySession(self._options, response, origin, self._held)
        self._sessions[session_id] = session
        self._shares.add(session.holder, session)
        exchange.origin = origin
        response.on_expiry = lambda: session.end_input(EXPIRED)
        try:
            session.begin(self._serve(session))
            address = f"{exchange.raw.scope.get('root_path', '')}{self._messages}?session_id={session_id}"
            response.feed(sse.encode(quote(address, safe="/?=-_.~").encode(), event="endpoint"))
            await response.run()
        finally:
            del self._sessions[session_id]
            self._shares.discard(session.holder, session)
            await session.end(LEFT)

    def _make_room(self, newcomer: Hashable) -> bool:
        """Have room for one more session: whoever has most of them loses one, if that leaves no fewer than the newcomer has."""
        if len(self._shares) < self._options.limits.sessions:
            return True
        theirs = self._shares.giving_way(newcomer)[:_LOOKED_AT]
        if not theirs or self._shares.held(theirs[0].holder) <= self._shares.held(newcomer) + 1:
            return False
        session = next((one for one in theirs if not one.is_busy), theirs[0])
        self._shares.discard(session.holder, session)
        session.end_input("another session needed its room")
        return True

    # ---------------------------------------------------------------- the messages

    async def _message(self, exchange: Exchange, origin: Origin) -> None:
        """Take one message for a session. What answers it goes on the stream of the session."""
        session = self._find(origin)
        if session is None:
            await exchange.refuse(_NO_SESSION)
            return
        body = await exchange.read()
        if body is None:
            return
        if isinstance(body, Refusal):
            await exchange.refuse(body)
            return
        if session.reason is not None or session.ending:
            await exchange.refuse(_NO_SESSION)
        elif not session.has_room(len(body)):
            await exchange.refuse(_BUSY)
        else:
            await self._take(session, exchange, body, origin)

    def _find(self, origin: Origin) -> LegacySession | None:
        """Find the session that the query names. A wrong id and a wrong principal look the same."""
        query = parse_qs(origin.transport.get("query_string", b"").decode("latin-1"))
        session = self._sessions.get(query.get("session_id", [""])[0])
        return session if session is not None and session.owner == origin.owner else None

    async def _take(self, session: LegacySession, exchange: Exchange, body: bytes, origin: Origin) -> None:
        try:
            message = None if jsonrpc.is_batch(body) else jsonrpc.decode(body)
            call = detect.classify(message, (HANDSHAKE,)) if isinstance(message, (Request, Notification)) else None
        except ProtocolError as exc:
            request_id = jsonrpc.id_of(exc, body)
            if jsonrpc.meant_as(body) == "response" and session.fail_request(body, origin):
                request_id = None  # the id is one of the server's own
            await exchange.reply(400, jsonrpc.encode_failure(request_id, exc.error))
            return
        if call is not None and call.meta is not None and call.meta.protocol_version is not NOTHING:
            session.refuse_claim(call)
        else:
            session.take(body, origin, exchange)
        await exchange.empty(202)

    # ---------------------------------------------------------------- the end

    def drain(self) -> None:
        """The server stops: calls may still finish, then the streams end."""
        self._stopping = True
        for session in list(self._sessions.values()):
            session.end_input("the server is stopping")


class LegacySession(DuplexChannel):
    """One session: a duplex channel made of a stream and POSTs."""

    kind: ChannelKind = "socket"

    def __init__(self, options: HttpSettings, response: StreamResponse, origin: Origin, held: ByteBudget) -> None:
        super().__init__(options.limits, server=True, origin=origin)
        self._held = held
        self.owner = origin.owner
        #: Whose share of all sessions it takes.
        self.holder = origin.holder
        self._response = response
        #: Whether too many messages wait for the answer to `initialize`.
        self._holding = False

    def has_room(self, size: int) -> bool:
        """Whether a message of this size is taken now."""
        if self._holding or self._response.full:
            return False
        return not self._held_back or self._held.has_room(self._backlog_bytes, size)

    def take(self, body: bytes, origin: Origin, exchange: Exchange) -> None:
        """Take the message of a POST, which does not wait until it is served."""
        self._origin = origin
        if isinstance(self._session, Session):
            self._session.authorize(origin)
        served, large_body = self.feed(body), exchange.large_body
        task = None if served is None else self._running.get(served)
        if task is not None and served is not None and large_body is not None:
            large_body.hold(task, served)

    def fail_request(self, body: bytes, origin: Origin) -> bool:
        """Fail the request of the server that a malformed response is for. Returns False if there is none."""
        return self._receive(body, origin) is None

    def refuse_claim(self, call: Call) -> None:
        """Refuse a request of the stateless era with the handshake revisions, so that the client falls back."""
        if call.id is not None:
            requested = call.meta.protocol_version if call.meta is not None else None
            error = UnsupportedVersion(requested if isinstance(requested, str) else "", HANDSHAKE_REVISIONS)
            self._event(jsonrpc.encode_failure(call.id, error.error))

    async def send(self, message: Outgoing, /) -> None:
        """Put a message on the stream; wait while the client is slow. Raises ChannelClosed if it left."""
        if self.reason is not None or self._response.done:
            raise ChannelClosed(self.reason or LEFT)
        self._event(message.data)
        await self._response.room()
        # Nothing above need have waited; a handler that only sends must not starve other tasks.
        await asyncio.sleep(0)

    def _event(self, data: bytes) -> None:
        self._response.feed(sse.encode(data, event="message"))

    async def close(self) -> None:
        """End the session from the inside."""
        self.end_session("the channel was closed")
        self._response.end()

    async def end(self, reason: str) -> None:
        """The stream is over: handlers are cancelled, clean-up runs (bounded). May be called twice."""
        self.end_session(reason)
        if self._session is not None:
            await self._session.wait_closed()

    # ---------------------------------------------------------------- DuplexChannel

    def reply(self, message: Outgoing, *, last: bool) -> None:
        self._event(message.data)

    def _count_backlog(self, change: int) -> None:
        super()._count_backlog(change)
        self._held.used += change

    def pause_reading(self) -> None:
        self._holding = True

    def resume_reading(self) -> None:
        self._holding = False

    def end_output(self) -> None:
        self._response.end()
