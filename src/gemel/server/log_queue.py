"""The log messages of one call that wait to be sent before its answer."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from gemel.schema.notifications import LoggingLevel

#: No more messages than this wait, per call.
LIMIT = 1000


class LogQueue:
    """Messages that any thread puts in, and one task of the event loop sends in order.

    Args:
        send: `async def send(level, data, *, logger)`.
        loop: The event loop of the call.
        teardown: How long `close` waits, in seconds.
    """

    def __init__(self, send: Callable[..., Awaitable[None]], loop: asyncio.AbstractEventLoop, teardown: float) -> None:
        self._send = send
        self._loop = loop
        self._teardown = teardown
        self._waiting: deque[tuple[LoggingLevel, Any, str]] = deque()
        self._dropped = 0
        self._sender: asyncio.Task[None] | None = None
        self._closed = False

    def put(self, level: LoggingLevel, data: object, name: str) -> None:
        """Send a message of the logger `name` soon; never waits."""
        if self._closed:
            return
        if len(self._waiting) >= LIMIT:
            self._dropped += 1
            return
        self._waiting.append((level, data, name))
        if len(self._waiting) == 1:
            self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._waiting and not self._closed and (self._sender is None or self._sender.done()):
            # In a context of its own: records made while sending belong to no call, so they can't be queued again.
            self._sender = self._loop.create_task(self._send_all(), context=contextvars.Context())

    async def _send_all(self) -> None:
        while self._waiting or self._dropped:
            if self._waiting:
                level, data, name = self._waiting[0]
                await self._send(level, data, logger=name)
                self._waiting.popleft()
            else:
                dropped, self._dropped = self._dropped, 0
                await self._send("warning", f"{dropped} log messages were left out", logger="gemel")

    async def close(self) -> None:
        """Send what waits, for a limited time; then nothing more."""
        self._start()
        if self._sender is not None and not self._sender.done():
            _, late = await asyncio.wait([self._sender], timeout=self._teardown)
            for task in late:
                task.cancel()
        self._closed = True
        self._waiting.clear()
