"""All HTTP sessions of one app, and the requests of the handshake era: each finds its session by id and owner, or opens one.

Sessions are bounded in number and in idle time. The handshake era is closed: this code is maintained, but gets no new features.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from secrets import token_urlsafe

from gemel.channel import Serve
from gemel.errors import ProtocolError
from gemel.jsonrpc import RequestId
from gemel.protocol.http import sse
from gemel.protocol.http.headers import Head, read_last_event_id
from gemel.protocol.http.media_types import TAKES_JSON
from gemel.protocol.http.request import Owner, Refusal
from gemel.protocol.records import Call, Inbound, Origin
from gemel.shares import Shares
from gemel.transports.http.server.exchange import (
    EVENTS_TYPE,
    STOPPING,
    STOPPING_ANSWER,
    Exchange,
    bad_request,
    overloaded,
)
from gemel.transports.http.server.open_exchanges import OpenExchanges
from gemel.transports.http.server.options import HttpSettings
from gemel.transports.http.server.replay import MemoryReplayStore, ReplayStore
from gemel.transports.http.server.session import HttpSession
from gemel.transports.http.server.stateless import PostChannel

logger = logging.getLogger("gemel")

NOT_FOUND = Refusal(
    404, "Session not found: it has ended or never was. Start over with initialize, without Mcp-Session-Id"
)
NO_ID = Refusal(
    400,
    "Mcp-Session-Id is missing: send the one that came with the answer to initialize. A request of the stateless revisions needs "
    "none: it names its revision in MCP-Protocol-Version and in its _meta",
)
TOO_MANY_SESSIONS = overloaded("Too many of your sessions are in use here: try again later")
_CANCELLED = Refusal(400, "initialize was cancelled")
#: Sessions that are looked at for one that is not in use, so that a flood of handshakes costs little.
_LOOKED_AT = 100


class SessionStore:
    """HTTP sessions in memory, by id and the caller who opened them.

    Args:
        loop: The event loop of the app.
        options: How the app serves.
        serve: Serves a session.
        requests: The requests of the app.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: HttpSettings, serve: Serve, requests: OpenExchanges
    ) -> None:
        self._loop = loop
        self._options = options
        self._serve = serve
        self._requests = requests
        self.by_key: dict[tuple[str, Owner], HttpSession] = {}
        #: The same by holder. The use of a session changes nothing here: its place is found when room is needed.
        self._shares: Shares[HttpSession] = Shares()
        self._replay: ReplayStore = MemoryReplayStore(options.limits)
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self.by_key)

    def begin(self) -> None:
        """The app has started."""

    # ---------------------------------------------------------------- requests

    async def post(self, exchange: Exchange, head: Head, origin: Origin, inbound: Inbound | bytes) -> None:
        """Serve the message of a POST of the handshake era. Without sessions it stands alone."""
        opens = method_of(inbound) == "initialize"
        if head.handshake_refusal is not None:
            await exchange.refuse(head.handshake_refusal, inbound)
        elif self._requests.stopping and _is_new_work(inbound):
            await exchange.refuse(STOPPING_ANSWER, inbound)
        elif not self._options.sessions:
            await PostChannel(self._serve, exchange, head.accepts, False).answer(inbound, origin)
        elif head.session_id is None and opens:
            await self._initialize(exchange, head, origin, inbound)
        else:
            session = await self._session_of(head, origin)
            if isinstance(session, Refusal):
                await exchange.refuse(session, inbound)
            elif opens:  # a gateway, whose other clients may use the session
                await self._initialize(exchange, head, origin, inbound)
            else:
                await session.post(inbound, origin, exchange, head.accepts)

    async def _initialize(self, exchange: Exchange, head: Head, origin: Origin, inbound: Inbound | bytes) -> None:
        """Open a session if the handshake succeeds."""
        session = self._open(token_urlsafe(32), _owner_of(origin), origin.holder)  # 256 random bits in visible ASCII
        reply, before = await session.initialize(inbound, origin, head.accepts)
        if reply is None:
            self.end(session, "the handshake was cancelled")
            await exchange.refuse(_CANCELLED, inbound)
            return
        if reply.error is not None:
            failure = ProtocolError(reply.error.message, code=reply.error.code)
            self.end(session, "the handshake failed", failure)
            await exchange.answer(reply)
            return
        if (refusal := await self.store(session)) is not None:
            self.end(session, "the session could not be stored")
            await exchange.refuse(refusal, inbound)
            return
        headers = ((b"mcp-session-id", session.id.encode()),)
        if head.accepts & TAKES_JSON and not before:
            await exchange.answer(reply, headers)
        else:
            events = b"".join(sse.encode(message.data) for message in (*before, reply))
            await exchange.reply(reply.status, events, headers, EVENTS_TYPE)

    async def listen(self, exchange: Exchange, head: Head, origin: Origin) -> None:
        """Serve a GET: carry the standing stream of its session, or the rest of a stream that broke off."""
        session = await self._session_of(head, origin)
        if isinstance(session, Refusal):
            await exchange.refuse(session)
        elif self._requests.stopping:
            await exchange.refuse(STOPPING)
        else:
            exchange.origin = origin
            session.authorize(origin)
            try:
                await session.listen(exchange, read_last_event_id(head))
            except ProtocolError as exc:
                await exchange.refuse(bad_request(exc))

    async def delete(self, exchange: Exchange, head: Head, origin: Origin) -> None:
        """Serve a DELETE: end the session."""
        session = await self._session_of(head, origin)
        refusal = session if isinstance(session, Refusal) else await self.end_for_client(session)
        await (exchange.empty(204) if refusal is None else exchange.refuse(refusal))

    async def fail_request(self, head: Head, origin: Origin, body: bytes, request_id: RequestId | None) -> bool:
        """Fail the request of the server that a malformed response is for. Returns False if there is none."""
        session = await self._session_of(head, origin)
        return not isinstance(session, Refusal) and await session.fail_request(body, origin, request_id)

    async def _session_of(self, head: Head, origin: Origin) -> HttpSession | Refusal:
        """The session of a request, or its refusal. A wrong id and the id of somebody else's session look the same."""
        return NO_ID if head.session_id is None else self.by_key.get((head.session_id, _owner_of(origin)), NOT_FOUND)

    # ---------------------------------------------------------------- new sessions

    def _open(self, session_id: str, owner: Owner, holder: Hashable) -> HttpSession:
        """Make a session that is not stored yet; it takes the share of its holder."""
        return HttpSession(session_id, owner, holder, self._options, self._serve, self._replay, self._forget)

    async def store(self, session: HttpSession) -> Refusal | None:
        """Store a session whose handshake succeeded. Returns a refusal if there is no room for it."""
        if not self.make_room(session.holder):
            return TOO_MANY_SESSIONS
        self.add(session)
        return None

    def make_room(self, newcomer: Hashable) -> bool:
        """Have room for one more session: if there is none, one of whoever holds most ends.

        One that is in use ends only for another holder, who then has no more than that one.

        Args:
            newcomer: The holder of the new session.

        Returns:
            Whether there is room.
        """
        if len(self.by_key) < self._options.limits.sessions:
            return True
        sessions = self._shares.giving_way(newcomer)[:_LOOKED_AT]
        for session in sessions:
            if session.busy or session.idle_since > session.ordered_at:
                self._order(session)
        unused = [session for session in sessions if not session.busy]
        if unused:
            self._give_way(min(unused, key=lambda session: session.idle_since))
        elif sessions and self._shares.held(sessions[0].holder) > self._shares.held(newcomer) + 1:
            self._give_way(sessions[0])
        else:
            return False
        return True

    def _give_way(self, session: HttpSession) -> None:
        self.end(session, "another session needed its room", TimeoutError())

    def _order(self, session: HttpSession) -> None:
        """Say that of all sessions of its holder this one was used last."""
        session.ordered_at = session.idle_since
        self._shares.add(session.holder, session)

    def add(self, session: HttpSession) -> None:
        """Have a session in memory."""
        self.by_key[session.id, session.owner] = session
        self._order(session)
        self._requests.wake()

    def _forget(self, session: HttpSession) -> None:
        self.by_key.pop((session.id, session.owner), None)
        self._shares.discard(session.holder, session)

    # ---------------------------------------------------------------- the end

    async def end_for_client(self, session: HttpSession) -> Refusal | None:
        """End a session because its client has. Returns a refusal if that fails."""
        self.end(session, "the client ended the session")
        return None

    def end_idle(self, now: float) -> None:
        """End sessions that have been idle for too long; others that are idle need less memory."""
        limit = self._options.limits.session_idle
        for session in [each for each in self.by_key.values() if not each.busy]:
            if now - session.idle_since >= limit:
                self.end(session, f"the session was idle for {limit:g} seconds", TimeoutError())
            else:
                session.trim()

    def end(self, session: HttpSession, reason: str, failure: BaseException | None = None) -> None:
        """End a session, regularly or because of a failure; its clean-up runs in the background, bounded."""
        logger.debug("an HTTP session ends: %s", reason)
        session.end(reason, failure)
        task = self._loop.create_task(session.wait_closed())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def drain(self) -> None:
        """The server stops: end the streams that belong to no call."""
        for session in self.by_key.values():
            session.drain()

    def stop(self, reason: str) -> None:
        """Cancel the calls that still run."""
        for session in self.by_key.values():
            session.stop(reason)

    @property
    def busy(self) -> bool:
        """Whether a call of a session still runs."""
        return any(session.busy for session in self.by_key.values())

    def end_all(self, reason: str) -> None:
        """End all sessions."""
        for session in list(self.by_key.values()):
            self.end(session, reason)

    async def wait_closed(self) -> None:
        """Wait, bounded, for the clean-up of sessions that were ended."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=self._options.limits.teardown)


def _owner_of(origin: Origin) -> Owner:
    return origin.principal if origin.caller is None else origin.owner


def method_of(inbound: Inbound | bytes) -> str | None:
    """The method of a request; None for a message of another kind, and for a batch."""
    return inbound.method if isinstance(inbound, Call) and inbound.id is not None else None


def _is_new_work(inbound: Inbound | bytes) -> bool:
    """Whether a stopping server turns the message away: a request or a batch."""
    return isinstance(inbound, bytes) or method_of(inbound) is not None
