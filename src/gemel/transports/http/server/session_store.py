"""All HTTP sessions of one app: found by id and owner, bounded in number and in idle time."""

from __future__ import annotations

import asyncio
import logging
from secrets import token_urlsafe

from gemel.channel import Serve
from gemel.protocol.http.request import Owner, Refusal
from gemel.transports.http.server.exchange import overloaded
from gemel.transports.http.server.options import HttpSettings
from gemel.transports.http.server.replay import MemoryReplayStore, ReplayStore
from gemel.transports.http.server.session import HttpSession

logger = logging.getLogger("gemel")

NOT_FOUND = Refusal(
    404, "Session not found: it has ended or never was. Start over with initialize, without Mcp-Session-Id"
)
NO_ID = Refusal(400, "Mcp-Session-Id is missing: send the one that came with the answer to initialize")
TOO_MANY_SESSIONS = overloaded("Too many sessions are open here: try again later")
#: Seconds after which a session that was never used after its handshake may be ended to make room for another.
NEVER_USED = 60.0


class SessionStore:
    """HTTP sessions in memory, by id and the caller who opened them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: HttpSettings) -> None:
        self._loop = loop
        self._options = options
        self.by_key: dict[tuple[str, Owner], HttpSession] = {}
        self._replay: ReplayStore = MemoryReplayStore(options.limits)
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self.by_key)

    def begin(self) -> None:
        """The app has started."""

    def make(self, owner: Owner, serve: Serve) -> HttpSession | None:
        """Make a session that is not stored yet; None if there are too many."""
        now, most = self._loop.time(), self._options.limits.sessions
        if len(self.by_key) >= most:
            self.expire(now)
        if len(self.by_key) >= most:
            self._reclaim(now)
        if len(self.by_key) >= most:
            return None
        # 256 random bits in visible ASCII.
        return self._open(token_urlsafe(32), owner, serve)

    def _open(self, session_id: str, owner: Owner, serve: Serve) -> HttpSession:
        return HttpSession(session_id, owner, self._options, serve, self._replay, self._forget)

    def find(self, session_id: str | None, owner: Owner) -> HttpSession | Refusal:
        """The session of a request, or its refusal. A wrong id and the id of somebody else's session look the same."""
        return NO_ID if session_id is None else self.by_key.get((session_id, owner), NOT_FOUND)

    def add(self, session: HttpSession) -> None:
        """Store a session whose handshake succeeded."""
        self.by_key[session.id, session.owner] = session

    def _forget(self, session: HttpSession) -> None:
        self.by_key.pop((session.id, session.owner), None)

    def expire(self, now: float) -> None:
        """End sessions that have been idle for too long; others that are idle need less memory."""
        limit = self._options.limits.session_idle
        for session in [each for each in self.by_key.values() if not each.busy]:
            if now - session.idle_since >= limit:
                self.end(session, f"the session was idle for {limit:g} seconds", TimeoutError())
            else:
                session.trim()

    def _reclaim(self, now: float) -> None:
        """End sessions that were never used after their handshake."""
        for session in list(self.by_key.values()):
            if not session.busy and not session.revision and now - session.idle_since >= NEVER_USED:
                self.end(session, "the session was never used", TimeoutError())

    def end(self, session: HttpSession, reason: str, failure: BaseException | None = None) -> None:
        """End a session, regularly or because of a failure; its clean-up runs in the background, bounded."""
        logger.debug("an HTTP session ends: %s", reason)
        session.end(reason, failure)
        task = self._loop.create_task(session.finish())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def drain(self) -> None:
        """The server stops: end the streams that belong to no call."""
        for session in self.by_key.values():
            session.drain()

    def cancel_all(self, reason: str) -> None:
        """Cancel the calls that still run."""
        for session in self.by_key.values():
            session.cancel_all(reason)

    @property
    def busy(self) -> bool:
        """Whether a call of a session still runs."""
        return any(session.busy for session in self.by_key.values())

    def end_all(self, reason: str) -> None:
        """End all sessions."""
        for session in list(self.by_key.values()):
            self.end(session, reason)

    async def finish(self) -> None:
        """Wait, bounded, for the clean-up of sessions that were ended."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=self._options.limits.teardown)
