"""The server's half of the first revision's transport, HTTP+SSE: an event stream out, a POST for each message in.

Deprecated, and off unless asked for (HSSE-01…HSSE-05, VER-22). A session lives as long as its stream and belongs to who
opened it. Who comes in was decided at the door; what messages mean is the conversation's business.
"""

from __future__ import annotations

import asyncio
from secrets import token_urlsafe
from urllib.parse import parse_qs, quote

from hinge import jsonrpc
from hinge.channel import ChannelKind, Serve
from hinge.errors import ChannelClosed, DefinitionError, ProtocolError, UnsupportedVersion
from hinge.http1.asgi import RETRY_LATER, Scope
from hinge.jsonrpc import Request, Unreadable
from hinge.protocol.calls import Inbound, Origin, Outgoing
from hinge.protocol.eras import detect
from hinge.protocol.http import headers as http
from hinge.protocol.http import sse
from hinge.protocol.http.headers import Headers, Refusal
from hinge.protocol.http.media_types import TAKES_EVENTS, check_content_type
from hinge.schema.revisions import HANDSHAKE_REVISIONS
from hinge.transports.duplex import Pump
from hinge.transports.http.server.exchange import LEFT, STOPPING, Exchange
from hinge.transports.http.server.options import HttpSettings
from hinge.transports.http.server.streams import Reader

_NO_SESSION = Refusal(404, "Session not found: its stream has ended or never was. Open a new one with GET")
_FULL = Refusal(503, "Too many sessions are open here: try again later", RETRY_LATER)
_BUSY = Refusal(503, "Too many messages wait for initialize to be answered: try again later", RETRY_LATER)


class SseRoutes:
    """The two endpoints of the old transport on one app: `path` gives streams, `path/messages` takes messages.

    Raises DefinitionError for a path where it can't live.
    """

    __slots__ = ("_messages", "_options", "_path", "_serve", "_sessions", "_stopping")

    def __init__(self, path: str, serve: Serve, options: HttpSettings) -> None:
        self._path = path.rstrip("/")
        if not self._path.startswith("/") or self._path == options.path.rstrip("/"):
            raise DefinitionError(f"sse_path={path!r} must begin with a slash and not be the endpoint {options.path!r}")
        self._messages = self._path + "/messages"
        self._serve = serve
        self._options = options
        self._sessions: dict[str, SseSession] = {}
        self._stopping = False

    def serves(self, path: str) -> bool:
        """Whether a path is one of the two; a slash at its end, which some clients write, is no difference."""
        return path.rstrip("/") in (self._path, self._messages)

    async def handle(self, scope: Scope, exchange: Exchange, headers: Headers, origin: Origin) -> None:
        """A request that passed the door."""
        path = str(scope["path"]).removeprefix(scope.get("root_path", "")).rstrip("/")
        takes = ("GET",) if path == self._path else ("POST",)
        refusal = http.check_method(scope["method"], takes)
        if refusal is not None:
            await exchange.refuse(refusal)
        elif takes == ("GET",):
            await self._open(scope, exchange, origin)
        else:
            await self._message(scope, exchange, headers, origin)

    # ---------------------------------------------------------------- the stream

    async def _open(self, scope: Scope, exchange: Exchange, origin: Origin) -> None:
        """A new session; the request lasts as long as it (HSSE-02)."""
        if self._stopping or len(self._sessions) >= self._options.limits.sessions:
            await exchange.refuse(STOPPING if self._stopping else _FULL)
            return
        session_id = token_urlsafe(32)
        reader = Reader(exchange, self._options.limits.stream_bytes, takes=TAKES_EVENTS)
        session = SseSession(self._options, reader, origin)
        self._sessions[session_id] = session
        try:
            session.begin(self._serve(session))
            address = f"{scope.get('root_path', '')}{self._messages}?session_id={session_id}"
            reader.feed(sse.encode(quote(address, safe="/?=-_.~").encode(), event="endpoint"))
            await reader.run()
        finally:
            del self._sessions[session_id]
            await session.end(LEFT)

    # ---------------------------------------------------------------- the messages

    async def _message(self, scope: Scope, exchange: Exchange, headers: Headers, origin: Origin) -> None:
        """One message for a session (HSSE-03); whatever answers it goes on the session's stream (HSSE-04)."""
        session = self._find(scope, origin)
        refusal = check_content_type(headers) or (_NO_SESSION if session is None else None)
        if refusal is not None:
            await exchange.refuse(refusal)
            return
        body = await exchange.read(headers)
        if body is None:
            return
        if isinstance(body, Refusal):
            await exchange.refuse(body)
            return
        assert session is not None
        if session.reason is not None or session.ending:
            await exchange.refuse(_NO_SESSION)
        elif session.full:
            await exchange.refuse(_BUSY)
        else:
            await self._take(session, exchange, body, origin)

    def _find(self, scope: Scope, origin: Origin) -> SseSession | None:
        """The session that the query names, if it belongs to who asks; nobody learns which of the two was wrong."""
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        session = self._sessions.get(query.get("session_id", [""])[0])
        return session if session is not None and session.principal == origin.principal else None

    async def _take(self, session: SseSession, exchange: Exchange, body: bytes, origin: Origin) -> None:
        try:
            inbound = None if jsonrpc.is_batch(body) else detect.read(body)
        except ProtocolError as exc:
            request_id = exc.request_id if isinstance(exc, Unreadable) else None
            await exchange.reply(400, jsonrpc.encode_failure(request_id, exc.error))
            return
        if inbound is not None and inbound.claims:
            session.refuse_claim(inbound)
        else:
            session.take(body, origin)
        await exchange.empty(202)

    # ---------------------------------------------------------------- the end

    def drain(self) -> None:
        """The server stops: calls may still finish, then the streams end."""
        self._stopping = True
        for session in list(self._sessions.values()):
            session.end_input("the server is stopping")


class SseSession(Pump):
    """One session: the pipe that a stream and the POSTs make together."""

    kind: ChannelKind = "socket"

    def __init__(self, options: HttpSettings, reader: Reader, origin: Origin) -> None:
        super().__init__(options.limits, server=True, origin=origin)
        self.principal = origin.principal
        self._reader = reader
        #: So many messages wait for the answer to `initialize` that no more are taken.
        self.full = False

    def take(self, body: bytes, origin: Origin) -> None:
        """Feed what a POST brought."""
        self._origin = origin
        self.feed(body)

    def refuse_claim(self, inbound: Inbound) -> None:
        """A stateless request has no place here: say what has, so that the client shakes hands (table 4.D)."""
        message = inbound.message
        if isinstance(message, Request):
            asked = inbound.meta.protocol_version if inbound.meta is not None else None
            error = UnsupportedVersion(asked if isinstance(asked, str) else "", HANDSHAKE_REVISIONS)
            self._event(jsonrpc.encode_failure(message.id, error.error))

    async def send(self, message: Outgoing, /) -> None:
        """Put a message on the stream; wait while its reader is slow. Raises ChannelClosed when nobody reads any more."""
        if self.reason is not None or self._reader.done:
            raise ChannelClosed(self.reason or LEFT)
        self._event(message.data)
        await self._reader.room()
        # Nothing above need have waited, and a handler that only sends would starve all others.
        await asyncio.sleep(0)

    def _event(self, data: bytes) -> None:
        self._reader.feed(sse.encode(data, event="message"))

    async def close(self) -> None:
        """End the session from the inside."""
        self.end_conversation("the channel was closed")
        self._reader.finish()

    async def end(self, reason: str) -> None:
        """The stream is over: handlers stop, clean-up runs (bounded). Twice is fine."""
        self.end_conversation(reason)
        if self._conversation is not None:
            await self._conversation.finish()

    # ---------------------------------------------------------------- what the pump asks for

    def _reply(self, message: Outgoing, *, last: bool) -> None:
        self._event(message.data)

    def _hold(self) -> None:
        self.full = True

    def _release(self) -> None:
        self.full = False

    def _end_output(self) -> None:
        self._reader.finish()
