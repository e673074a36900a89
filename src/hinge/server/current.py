"""Which call is being served here: found by a context variable, for code that has no Context at hand.

Kept only in processes that have imported this module (`from hinge import current_context` or `LogToClient` does): all
others pay one look at a variable per call.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from contextvars import ContextVar
from typing import Any

from hinge.errors import HingeError
from hinge.schema.notifications import LoggingLevel
from hinge.server.context import Context
from hinge.server.middleware.chain import CallNext
from hinge.server.tracking import tracking

logger = logging.getLogger("hinge")

#: No more log messages than this wait to be sent, per call.
_MOST_WAITING = 1000


class Running:
    """A call that is being served, and the log messages that wait to leave before its answer (LOG-06)."""

    def __init__(self, ctx: Context[Any]) -> None:
        self.ctx = ctx
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[LoggingLevel, Any, str]] = deque()
        self._left_out = 0
        self._sender: asyncio.Task[None] | None = None
        self._over = False

    def say(self, level: LoggingLevel, data: Any, name: str) -> None:
        """Send a log message soon, from any thread; never waits."""
        if self._over:
            return
        if len(self._waiting) >= _MOST_WAITING:
            self._left_out += 1
            return
        self._waiting.append((level, data, name))
        if len(self._waiting) == 1:
            self._loop.call_soon_threadsafe(self._rouse)

    def _rouse(self) -> None:
        if self._waiting and not self._over and (self._sender is None or self._sender.done()):
            # In a context of its own: what is logged while sending belongs to no call, so it can't come back here.
            self._sender = self._loop.create_task(self._send(), context=contextvars.Context())

    async def _send(self) -> None:
        while self._waiting or self._left_out:
            if self._waiting:
                level, data, name = self._waiting[0]
                await self.ctx.log(level, data, logger=name)
                self._waiting.popleft()
            else:
                left_out, self._left_out = self._left_out, 0
                await self.ctx.log("warning", f"{left_out} log messages were left out", logger="hinge")

    async def end(self) -> None:
        """What waits leaves first; then nothing more."""
        self._rouse()
        sender, limit = self._sender, self.ctx.session.connection.limits.teardown
        if sender is not None and not sender.done():
            _, late = await asyncio.wait([sender], timeout=limit)
            for one in late:
                one.cancel()
        self._over = True
        self._waiting.clear()


running: ContextVar[Running] = ContextVar("hinge_running")


def current_context() -> Context[Any]:
    """The Context of the call that is being served here: in a handler, what it calls, its tasks and threads.

    To be imported where modules import: calls that began before the import are not known. Raises HingeError elsewhere.
    """
    found = running.get(None)
    if found is None:
        raise HingeError(
            "No call is being served here: current_context() works in handlers and what they call, and has to be imported "
            "before the call began"
        )
    return found.ctx


async def _tracked(ctx: Context[Any], chain: CallNext) -> Any:
    now = Running(ctx)
    token = running.set(now)
    try:
        return await chain(ctx)
    finally:
        running.reset(token)
        await now.end()


tracking.serve = _tracked
