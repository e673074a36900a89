"""Start and stop of an HTTP app: hooks, draining, and the signals that ask for a stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from gemel.channel import Serve
from gemel.errors import DefinitionError
from gemel.signals import ENDING
from gemel.timeouts import wait_shared
from gemel.transports.http.server.endpoint import Admission, Endpoint, holds_sessions
from gemel.transports.http.server.open_exchanges import OpenExchanges
from gemel.transports.http.server.options import Hook, HttpSettings
from gemel.transports.http.server.session_store import SessionStore

if TYPE_CHECKING:
    from gemel.transports.http.server.legacy_sse import LegacyEndpoint
    from gemel.transports.http.server.sharing.session import SharedState

logger = logging.getLogger("gemel")

_REASON = "the server is stopping"
#: When the server stops: seconds for cancelled handlers to end, and for the answers of those that don't.
CANCEL_SECONDS = 0.15
ANSWER_SECONDS = 0.05


class Hooks(NamedTuple):
    """What runs when an app starts and stops."""

    on_start: Hook | None = None
    on_drain: Hook | None = None
    on_stop: Hook | None = None


class Lifecycle:
    """The life of one app on one event loop: `start`, requests, `stop`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        serve: Serve,
        options: HttpSettings,
        admission: Admission,
        hooks: Hooks,
        signals: StopSignals | None,
        shared: SharedState | None = None,
    ) -> None:
        self.loop = loop
        self._limits = options.limits
        self._hooks = hooks
        self.requests = requests = OpenExchanges(loop, options, self._beat, lambda: len(self._sessions) > 0)
        if shared is not None and holds_sessions(options):
            from gemel.transports.http.server.sharing.session_store import SharedSessionStore

            self._sessions: SessionStore = SharedSessionStore(loop, options, serve, requests, shared)
        else:
            self._sessions = SessionStore(loop, options, serve, requests)
        self.endpoint = Endpoint(serve, options, admission, self._sessions, requests)
        self.legacy = make_legacy_endpoint(serve, options, admission)
        self._signals = signals
        self._ready: asyncio.Future[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        #: When it began, in seconds since 1970.
        self.began = time.time()
        #: Whether `start` has succeeded.
        self.started = False
        self._beat(0.0)

    def _beat(self, now: float) -> None:
        # Repeatedly, since some HTTP servers install their own handlers late, over these.
        if self._signals is not None and self._stopping is None:
            self._signals.arm(self.loop)
        self._sessions.end_idle(now)

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping is not None

    async def start(self) -> None:
        """Run `on_start` once; concurrent callers wait for the first. After a failure the next call tries again."""
        if self._ready is not None:
            await wait_shared(self._ready)
            return
        self._ready = ready = self.loop.create_future()
        try:
            if self._hooks.on_start is not None:
                await self._hooks.on_start()
        except BaseException as exc:
            self._ready = None
            if not ready.done():
                ready.set_exception(RuntimeError("the server could not start"))
                ready.exception()  # marks it as retrieved: nobody else may be waiting
            raise exc
        self.started = True
        self._sessions.begin()
        ready.set_result(None)

    def stop_soon(self) -> None:
        """Request a stop."""
        if self._stopping is None:
            self._stopping = self.loop.create_task(self._stop())

    async def stop(self) -> None:
        """Take no new work, end streams, let calls finish within `limits.drain`, cancel the rest. May be called twice."""
        self.stop_soon()
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        limits = self._limits
        if self._signals is not None:
            self._signals.disarm()
        self.requests.stopping = True
        end = self.loop.time() + limits.drain
        self._sessions.drain()
        if self.legacy is not None:
            self.legacy.drain()
        for request in self.requests.everyone():
            request.drain()
        await self._run_hook("on_drain", self._hooks.on_drain, limits.drain)
        await self._wait_until_quiet(end)
        for request in self.requests.everyone():
            request.stop(_REASON)
        self._sessions.stop(_REASON)
        await self._wait_until_quiet(self.loop.time() + CANCEL_SECONDS)
        # Handlers that do not stop are answered for.
        self._sessions.end_all(_REASON)
        for request in self.requests.everyone():
            request.end_unfinished(_REASON)
        await self._wait_until_quiet(self.loop.time() + ANSWER_SECONDS)
        for request in self.requests.everyone():
            request.cut()
        await self._sessions.wait_closed()
        self.requests.close()
        if self.started:
            await self._run_hook("on_stop", self._hooks.on_stop, limits.teardown)

    async def _run_hook(self, name: str, hook: Hook | None, limit: float) -> None:
        if hook is None:
            return
        try:
            async with asyncio.timeout(limit):
                await hook()
        except Exception:
            logger.exception("%s failed", name)

    async def _wait_until_quiet(self, end: float) -> None:
        while (self.requests.running or self._sessions.busy) and self.loop.time() < end:  # noqa: ASYNC110 - counted, not signalled
            await asyncio.sleep(min(0.02, max(0.0, end - self.loop.time())))


def make_legacy_endpoint(serve: Serve, options: HttpSettings, admission: Admission) -> LegacyEndpoint | None:
    """Make the endpoint of HTTP+SSE, if it is enabled.

    Raises:
        DefinitionError: `sse_path` is malformed, or this server has no sessions.
    """
    path = options.sse_path
    if path is None:
        return None
    if not holds_sessions(options):
        raise DefinitionError("sse_path needs sessions, which need the handshake era and one process: leave it out")
    from gemel.transports.http.server.legacy_sse import LegacyEndpoint

    return LegacyEndpoint(path, serve, options, admission)


class StopSignals:
    """Calls `stop` for SIGINT, SIGTERM and Ctrl-Break in front of the handlers of the HTTP server, which still get each signal."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Install the handlers, if the HTTP server has its own: a signal without a handler keeps its default effect.

        Does nothing outside the main thread, where Python allows no handlers.
        """
        if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGTERM)):
            return
        self._loop = loop
        for number in ENDING:
            previous = signal.getsignal(number)
            ours = previous == self._caught
            if ours or not callable(previous) or previous is signal.default_int_handler:
                continue
            self._previous[number] = previous
            signal.signal(number, self._caught)

    def disarm(self) -> None:
        """Remove the handlers, unless others were installed over them meanwhile."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._caught:
                signal.signal(number, previous)
        self._previous.clear()

    def _caught(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous.get(number)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)
        if previous is not None:
            previous(number, frame)
