"""All handshake sessions of one HTTP app: found by id and principal, bounded in number and in idle time.

Must not know requests, streams or the protocol.
"""

from __future__ import annotations

import asyncio
import logging
from secrets import token_urlsafe

from hinge.channel import Serve
from hinge.transports.http.server.options import HttpSettings
from hinge.transports.http.server.session import HttpSession

logger = logging.getLogger("hinge")

#: A session whose client never came back after the handshake may be ended after this long when places are short.
NEVER_USED = 60.0


class SessionTable:
    """Sessions by id. The idle ones stand in the order in which they became idle, so that expiring them is cheap."""

    __slots__ = ("_by_id", "_ending", "_idle", "_loop", "_options")

    def __init__(self, loop: asyncio.AbstractEventLoop, options: HttpSettings) -> None:
        self._loop = loop
        self._options = options
        self._by_id: dict[str, HttpSession] = {}
        self._idle: dict[HttpSession, float] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, session_id: str, principal: str | None) -> HttpSession | None:
        """The session, if it lives and belongs to this principal; nobody learns which of the two was wrong (B-032)."""
        session = self._by_id.get(session_id)
        return session if session is not None and session.principal == principal else None

    def make(self, principal: str | None, serve: Serve) -> HttpSession | None:
        """A session that is not in the table yet; None when there is no place left."""
        now = self._loop.time()
        if len(self._by_id) >= self._options.limits.sessions:
            self.expire(now)
        if len(self._by_id) >= self._options.limits.sessions:
            self._reclaim(now)
        if len(self._by_id) >= self._options.limits.sessions:
            return None
        # 256 random bits in visible ASCII (LHTTP-21).
        return HttpSession(token_urlsafe(32), principal, self._options, serve, self.touch)

    def add(self, session: HttpSession) -> None:
        """The handshake succeeded: from now on its id is known."""
        self._by_id[session.id] = session
        self.touch(session)

    def touch(self, session: HttpSession) -> None:
        """The session was used, or became busy or idle, or is over."""
        self._idle.pop(session, None)
        if session.closed:
            self._by_id.pop(session.id, None)
        elif not session.busy and session.id in self._by_id:
            self._idle[session] = self._loop.time()

    def expire(self, now: float) -> None:
        """End what was idle for too long."""
        limit = self._options.limits.session_idle
        while self._idle:
            session, since = next(iter(self._idle.items()))
            if now - since < limit:
                return
            self.end(session, f"the session was idle for {limit:g} seconds")

    def _reclaim(self, now: float) -> None:
        """Places are short: end sessions of clients that shook hands and never came back."""
        unused = [s for s, since in self._idle.items() if not s.revision and now - since >= NEVER_USED]
        for session in unused:
            self.end(session, "the session was never used")

    def end(self, session: HttpSession, reason: str) -> None:
        """End a session; its clean-up goes on by itself, bounded."""
        logger.debug("a session ends: %s", reason)
        session.end(reason)
        self.touch(session)
        task = self._loop.create_task(session.finish())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def drain(self) -> None:
        """The server stops: end what would never end by itself."""
        for session in self._by_id.values():
            session.drain()

    def cancel_all(self, reason: str) -> None:
        """Stop the calls that still run."""
        for session in self._by_id.values():
            session.cancel_all(reason)

    @property
    def busy(self) -> bool:
        """A call of a session still runs."""
        return any(session.busy for session in self._by_id.values())

    async def close(self, reason: str) -> None:
        """End all of them and wait, bounded, for their clean-up."""
        for session in list(self._by_id.values()):
            self.end(session, reason)
        if self._ending:
            await asyncio.wait(self._ending, timeout=self._options.limits.teardown)
