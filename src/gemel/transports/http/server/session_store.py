"""All HTTP sessions of one app: found by id and owner, bounded in number and in idle time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from secrets import token_urlsafe

from gemel.channel import Serve
from gemel.protocol.http.request import Owner, Refusal
from gemel.shares import Shares
from gemel.transports.http.server.exchange import overloaded
from gemel.transports.http.server.options import HttpSettings
from gemel.transports.http.server.replay import MemoryReplayStore, ReplayStore
from gemel.transports.http.server.session import HttpSession

logger = logging.getLogger("gemel")

NOT_FOUND = Refusal(
    404, "Session not found: it has ended or never was. Start over with initialize, without Mcp-Session-Id"
)
NO_ID = Refusal(400, "Mcp-Session-Id is missing: send the one that came with the answer to initialize")
TOO_MANY_SESSIONS = overloaded("Too many of your sessions are in use here: try again later")
#: Sessions that are looked at for one that is not in use, so that a flood of handshakes costs little.
_LOOKED_AT = 100


class SessionStore:
    """HTTP sessions in memory, by id and the caller who opened them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: HttpSettings) -> None:
        self._loop = loop
        self._options = options
        self.by_key: dict[tuple[str, Owner], HttpSession] = {}
        #: The same by holder. The use of a session changes nothing here: its place is found when room is needed.
        self._shares: Shares[HttpSession] = Shares()
        self._replay: ReplayStore = MemoryReplayStore(options.limits)
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self.by_key)

    def begin(self) -> None:
        """The app has started."""

    def make(self, owner: Owner, holder: Hashable, serve: Serve) -> HttpSession:
        """Make a session that is not stored yet.

        Args:
            owner: Who may use it.
            holder: Whose share it takes.
            serve: Serves it.
        """
        # 256 random bits in visible ASCII.
        return self._open(token_urlsafe(32), owner, holder, serve)

    def _open(self, session_id: str, owner: Owner, holder: Hashable, serve: Serve) -> HttpSession:
        return HttpSession(session_id, owner, holder, self._options, serve, self._replay, self._forget)

    def find(self, session_id: str | None, owner: Owner) -> HttpSession | Refusal:
        """The session of a request, or its refusal. A wrong id and the id of somebody else's session look the same."""
        return NO_ID if session_id is None else self.by_key.get((session_id, owner), NOT_FOUND)

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

    def _forget(self, session: HttpSession) -> None:
        self.by_key.pop((session.id, session.owner), None)
        self._shares.discard(session.holder, session)

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
