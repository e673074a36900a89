"""MCP over HTTP as an ASGI 3 app, both eras on one endpoint: who comes in, and how the app starts and stops.

It knows paths, HTTP methods and hooks. It must not know what a message means, features or handlers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Unpack

from hinge.channel import Serve
from hinge.errors import DefinitionError, wire_error
from hinge.http1.asgi import RETRY_LATER, Receive, Scope, Send
from hinge.http1.server.carrier import AsgiCarrier, Carrier
from hinge.jsonrpc import encode_failure
from hinge.options import check_option, options_of, resolve
from hinge.protocol.calls import Origin
from hinge.protocol.eras.base import EraName
from hinge.protocol.eras.detect import parse_eras
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.http import headers as http
from hinge.protocol.http.headers import Headers, Principal, Refusal
from hinge.protocol.http.origin import Guard
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.transports.http.server.endpoint import Routes
from hinge.transports.http.server.exchange import Exchange
from hinge.transports.http.server.lifecycle import Clock, StopSignals
from hinge.transports.http.server.options import (
    FROM_SERVER,
    Authenticate,
    Hook,
    HttpAppOptions,
    HttpOptions,
    HttpSettings,
)
from hinge.transports.http.server.routes import AsgiApp, Beside, BesideRequest
from hinge.transports.http.server.session_store import SessionTable

if TYPE_CHECKING:
    from hinge.transports.http.server.legacy_sse import SseRoutes

logger = logging.getLogger("hinge")

#: So many different refusals at the door are told to the operator.
_TOLD = 64


class HttpApp:
    """An ASGI 3 app that serves one MCP endpoint; mount it anywhere or run it alone.

    Mounted, it needs nothing from its parent: it starts with its first request, and hears of SIGTERM by itself. One app
    runs on one event loop at a time.
    """

    def __init__(
        self,
        serve: Serve,
        path: str = "/mcp",
        *,
        limits: Limits = DEFAULT_LIMITS,
        eras: tuple[EraName, ...] = ("2025", "2026"),
        on_start: Hook | None = None,
        on_drain: Hook | None = None,
        on_stop: Hook | None = None,
        **options: Unpack[HttpAppOptions],
    ) -> None:
        """Make an app; `server.http_app()` does it for a server.

        Args:
            serve: starts a session over a channel.
            path: the endpoint, when the app isn't mounted below a path by another one.
            limits: bounds on what clients can make it hold or wait for.
            eras: the protocol eras that are served.
            on_start: run before the first request is served; its failure is the app's.
            on_drain: run as soon as a stop is asked for, while calls may still finish.
            on_stop: run when all calls are over.
            options: see `HttpAppOptions`.

        Raises:
            DefinitionError: for an unknown option or a value that it doesn't take.
        """
        check_option("path", path, options_of(HttpOptions)["path"].check)
        resolved: Any = resolve(HttpAppOptions, options, "HTTP", FROM_SERVER)
        self.options = HttpSettings(path=path, limits=limits, eras=eras, **resolved)
        self._on_start, self._on_drain, self._on_stop = on_start, on_drain, on_stop
        #: Answer `GET /livez` and `GET /readyz`; for servers that run nothing but this app.
        self.health = False
        #: Whether to hear of SIGTERM by itself; whoever runs the app and calls `stop` says no.
        self.watch_signals = True
        self._serve = serve
        self._guard = self.options.guard or Guard.for_bind(
            self.options.bind, self.options.allowed_hosts, self.options.allowed_origins
        )
        self._methods = http.SESSION_METHODS if self.holds_sessions else http.MODERN_METHODS
        self._old = self._old_transport()  # another one for each loop; here it tells a wrong path at once
        taken = {self.options.path, self.options.sse_path, "/livez", "/readyz"} - {None}
        self._beside = (
            Beside(self.options.routes, frozenset(map(str, taken))) if self.options.routes is not None else None
        )
        self._told: set[str] = set()
        self._signals = StopSignals(self._stop_soon)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Future[None] | None = None
        self._started = False
        self._stopping: asyncio.Task[None] | None = None

    def _old_transport(self) -> SseRoutes | None:
        path = self.options.sse_path
        if path is None:
            return None
        if not self.holds_sessions:
            raise DefinitionError(
                "sse_path needs sessions, which need the handshake era and one process: leave it away"
            )
        from hinge.transports.http.server.legacy_sse import SseRoutes

        return SseRoutes(path, self._serve, self.options)

    @property
    def holds_sessions(self) -> bool:
        """Whether handshake clients get sessions, which live in this process."""
        return self.options.sessions and HANDSHAKE in parse_eras(self.options.eras)

    # ---------------------------------------------------------------- requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's one entry."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        task = None if self._loop is None else asyncio.current_task(self._loop)
        if task is None:
            self._enter()
            task = asyncio.current_task()
            assert task is not None
        await self.serve(AsgiCarrier(scope, receive, send, task))

    async def serve(self, carrier: Carrier) -> None:
        """One request; in the loop in which the app has started, or `__call__` has been called."""
        scope = carrier.scope
        if self._beside is not None:
            found = self._beside.find(scope)
            if found is not None:
                await self._aside(*found, carrier)
                return
        exchange = Exchange(carrier, self._clock, self.options)
        self._clock.begin(exchange)
        try:
            if not self._started:
                await self.start()
            if scope["path"] == self.options.path or self._is_mount_point(scope):
                await self._endpoint(scope, exchange)
            else:
                await self._elsewhere(scope, exchange)
        except Exception as exc:
            await self._failed(exchange, exc)
        finally:
            exchange.close()

    def _endpoint(self, scope: Scope, exchange: Exchange, old: SseRoutes | None = None) -> Awaitable[None]:
        """The order of the decision table: who is at the door, who is it, what does it want (4.B, C-148).

        Behind the same door lies the `old` transport.
        """
        headers, options = http.read_headers(scope["headers"]), self.options
        refusal = self._refusal(headers)
        if refusal is not None:
            return exchange.refuse(refusal)
        if options.authenticate is not None:
            return self._authenticated(options.authenticate, scope, exchange, headers, old)
        return self._routed(exchange, Origin(headers, None, scope), headers, old)

    def _refusal(self, headers: Headers) -> Refusal | None:
        """What the door says, if it doesn't let this request in."""
        raw = headers.raw
        if len(raw) > self.options.headers or len(b"".join(raw.values())) > self.options.header_bytes:
            return Refusal(431, "The headers of this request are too many or too large")
        refusal = self._guard.check(headers)
        if refusal is not None:
            self._tell_operator(refusal)
        return refusal

    async def _aside(self, app: AsgiApp, scope: Scope, carrier: Carrier) -> None:
        """A request for an app beside the endpoint, behind the same door."""
        request = BesideRequest(carrier)
        self._clock.begin(request)
        try:
            if not self._started:
                await self.start()
            refusal = self._refusal(http.read_headers(scope["headers"]))
            if refusal is not None:
                await request.refuse(refusal)
            else:
                await request.run(app, scope)
        finally:
            self._clock.end(request)

    async def _authenticated(
        self, ask: Authenticate, scope: Scope, exchange: Exchange, headers: Headers, old: SseRoutes | None
    ) -> None:
        known = await ask(scope, headers)
        if isinstance(known, Refusal):
            await exchange.refuse(known)
            return
        name, scopes = known if isinstance(known, Principal) else (known, frozenset[str]())
        await self._routed(exchange, Origin(headers, name, scope, frozenset(scopes)), headers, old)

    def _routed(self, exchange: Exchange, origin: Origin, headers: Headers, old: SseRoutes | None) -> Awaitable[None]:
        scope = origin.transport
        method: str = scope["method"]
        if old is not None:
            return old.handle(scope, exchange, headers, origin)
        if method == "POST":
            if self._clock.running > self.options.requests:
                return exchange.refuse(Refusal(503, "Too many requests at once: try again later", RETRY_LATER))
            return self._routes.post(exchange, headers, origin)
        if method not in self._methods:
            return exchange.refuse(http.check_method(method, self._methods) or Refusal(405, "Not here"))
        if method == "GET":
            return self._routes.get(exchange, headers, origin)
        return self._routes.delete(exchange, headers, origin)

    def _tell_operator(self, refusal: Refusal) -> None:
        """Say once what to do if the caller should come in; not for ever, since callers choose their names."""
        if refusal.text not in self._told and len(self._told) < _TOLD:
            self._told.add(refusal.text)
            logger.warning("a request was refused: %s", refusal.text)

    async def _failed(self, exchange: Exchange, exc: Exception) -> None:
        error = wire_error(exc, "an HTTP request")
        if exchange.streaming:
            exchange.cut()
        elif not exchange.over:
            await exchange.reply(500, encode_failure(None, error.error))

    # ---------------------------------------------------------------- paths

    @staticmethod
    def _is_mount_point(scope: Scope) -> bool:
        """Whether another app has led here by a path of its own: nothing is left of the path then.

        Frameworks differ: some take what they matched off `path`, newer ones leave it and say it in `root_path`.
        """
        root = scope.get("root_path", "")
        path: str = scope["path"]
        return bool(root) and path.removeprefix(root) in ("", "/")

    async def _elsewhere(self, scope: Scope, exchange: Exchange) -> None:
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        if path == self.options.path:
            await self._endpoint(scope, exchange)
        elif self._old is not None and self._old.serves(path):
            await self._endpoint(scope, exchange, self._old)
        elif self.health and path in ("/livez", "/readyz"):
            draining = path == "/readyz" and self._stopping is not None
            await exchange.reply(503 if draining else 200, b'"stopping"' if draining else b'"ok"')
        else:
            await exchange.refuse(Refusal(404, f"Nothing is served here; the MCP endpoint is {self.options.path}"))

    # ---------------------------------------------------------------- start and stop

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "lifespan":
            raise RuntimeError(f"This app serves http, not {scope['type']}")
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    if self._stopping is not None:
                        self._enter()
                    await self.start()
                except Exception as exc:
                    logger.error("the server can't start", exc_info=exc)
                    await send({"type": "lifespan.startup.failed", "message": str(exc)})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _enter(self) -> None:
        """Begin on this loop, with nothing in flight."""
        loop = asyncio.get_running_loop()
        limits = self.options.limits
        period = min(limits.keep_alive / 4, limits.session_idle / 4, self.options.body_wait / 4)
        sessions = SessionTable(loop, self.options)
        self._loop = loop
        self._ready = None
        self._started = False
        self._stopping = None
        self._sessions = sessions
        self._clock = Clock(loop, period, self._beat, lambda: len(sessions) > 0)
        self._routes = Routes(self._serve, self.options, sessions, self._clock)
        self._old = self._old_transport()
        self._beat(0.0)

    def _beat(self, now: float) -> None:
        if self._loop is None:
            return
        # Again and again, since some servers install their handlers late, over ours.
        if self.watch_signals and self._stopping is None:
            self._signals.arm(self._loop)
        self._sessions.expire(now)

    async def start(self) -> None:
        """Run `on_start` once; others wait for the first. A failure is raised to all; the next one tries again."""
        if asyncio.get_running_loop() is not self._loop:
            self._enter()
        if self._ready is not None:
            await asyncio.shield(self._ready)
            return
        self._ready = ready = asyncio.get_running_loop().create_future()
        try:
            if self._on_start is not None:
                await self._on_start()
        except BaseException as exc:
            self._ready = None
            if not ready.done():
                ready.set_exception(RuntimeError("the server could not start"))
                ready.exception()  # looked at: nobody else may wait for it
            raise exc
        self._started = True
        ready.set_result(None)

    def _stop_soon(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())

    async def stop(self) -> None:
        """Take no new work, end streams, let calls finish within `limits.drain`, cancel the rest. Twice is fine."""
        if asyncio.get_running_loop() is not self._loop:
            return
        self._stop_soon()
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        loop, limits = asyncio.get_running_loop(), self.options.limits
        self._signals.disarm()
        self._routes.stopping = True
        end = loop.time() + limits.drain
        self._sessions.drain()
        if self._old is not None:
            self._old.drain()
        for request in self._clock.everyone():
            request.drain()
        await self._run_hook("on_drain", self._on_drain, limits.drain)
        await self._quiet(end)
        for request in self._clock.everyone():
            request.stop("the server is stopping")
        self._sessions.cancel_all("the server is stopping")
        await self._quiet(loop.time() + 0.2)
        for request in self._clock.everyone():
            request.cut()
        await self._sessions.close("the server has stopped")
        self._clock.stop()
        if self._ready is not None and self._ready.done() and self._ready.exception() is None:
            await self._run_hook("on_stop", self._on_stop, limits.teardown)

    async def _run_hook(self, name: str, hook: Hook | None, limit: float) -> None:
        if hook is None:
            return
        try:
            async with asyncio.timeout(limit):
                await hook()
        except Exception:
            logger.exception("%s failed", name)

    async def _quiet(self, end: float) -> None:
        """Wait until nothing runs any more."""
        loop = asyncio.get_running_loop()
        while (self._clock.running or self._sessions.busy) and loop.time() < end:  # noqa: ASYNC110 - counted, not signalled
            await asyncio.sleep(min(0.02, max(0.0, end - loop.time())))
