"""Detection of dead connections: a socket can be open although the server is gone. Anything that arrives counts as alive."""

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
    """Watches one session. `probe(session, within)` is a request that every server answers at once."""

    def __init__(self, session: Session, limits: Limits, probe: Callable[[Session, float], Awaitable[object]]) -> None:
        self._session = session
        self._limits = limits
        self._probe = probe
        self._looking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        #: Only byte streams can be open without a server; they record whether something arrived.
        self._channel: Any = session.channel if hasattr(session.channel, "heard") else None

    def start(self) -> None:
        """Probe after each `limits.alive` seconds of silence, if that is set."""
        if self._channel is not None and self._limits.alive > 0:
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def doubt(self) -> None:
        """A request got no answer in time: probe a socket, which is dead after `limits.silence` more seconds of silence."""
        if self._channel is None or self._channel.kind != "socket" or self._limits.silence <= 0:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        """Stop watching."""
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
            await self._probe(self._session, within)
        except CallTimeout:
            if not self._channel.heard:
                logger.warning("The server did not respond for %g seconds; the connection is closed", within)
                self._channel.abort(f"the server did not respond for {within:g} seconds")
        except CallError as exc:  # an answer, or the end of the session
            logger.debug("the probe was answered by an error: %s", exc)
