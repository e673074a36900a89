"""Whether a server that says nothing is still there: a socket may be open with nobody behind it.

Knows when to ask for a sign of life and what to make of silence; how to ask is the link's. Whatever comes counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from hinge.errors import CallError, CallTimeout
from hinge.protocol.limits import Limits
from hinge.session import Session

logger = logging.getLogger("hinge")


class Liveness:
    """Looks after one session. `ask(session, within)` is a request that every server answers at once."""

    def __init__(self, session: Session, limits: Limits, ask: Callable[[Session, float], Awaitable[object]]) -> None:
        self._session = session
        self._limits = limits
        self._ask = ask
        self._looking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        #: Only byte streams can be silent and open; they say whether something came.
        self._channel: Any = session.channel if hasattr(session.channel, "heard") else None

    def start(self) -> None:
        """Ask after each silence of `limits.alive` seconds, if that is set."""
        if self._channel is not None and self._limits.alive > 0:
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def doubt(self) -> None:
        """A call got no answer in time: a socket that then stays silent for `limits.silence` seconds is dead."""
        if self._channel is None or self._channel.kind != "socket" or self._limits.silence <= 0:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        """Look no more."""
        tasks = [task for task in (self._looking, self._watching) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _watch(self) -> None:
        while self._session.connection.closed is None:
            self._channel.heard = False
            await asyncio.sleep(self._limits.alive)
            if not self._channel.heard:
                await self._look()

    async def _look(self) -> None:
        within = self._limits.silence or self._limits.alive
        self._channel.heard = False
        try:
            await self._ask(self._session, within)
        except CallTimeout:
            if not self._channel.heard:
                logger.warning("The server gave no sign of life for %g seconds; the connection is given up", within)
                self._channel.abort(f"the server gave no sign of life for {within:g} seconds")
        except CallError as exc:  # an answer, or an end that speaks for itself
            logger.debug("a sign of life of sorts: %s", exc)
