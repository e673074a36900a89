"""MCP over HTTP as an ASGI 3 app: paths, the lifespan protocol, and failures.

`endpoint.py` serves requests to the endpoint, `lifecycle.py` starts and stops the app.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from gemel.channel import Serve
from gemel.errors import DefinitionError
from gemel.http1.asgi import AsgiApp, Receive, Scope, Send
from gemel.options import accepts, check_option, options_of, resolve
from gemel.protocol.eras.base import EraName
from gemel.protocol.http.headers import judge_site
from gemel.protocol.http.request import Refusal
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.transports.http.server.endpoint import Admission, head_rules, holds_sessions
from gemel.transports.http.server.exchange import AsgiExchange, Exchange, RawExchange
from gemel.transports.http.server.lifecycle import Hooks, Lifecycle, StopSignals, make_legacy_endpoint
from gemel.transports.http.server.options import FROM_SERVER, Auth, Hook, HttpAppOptions, HttpOptions, HttpSettings
from gemel.transports.http.server.routes import RoutedApps, RoutedRequest

if TYPE_CHECKING:
    from gemel.transports.http.server.sharing.session import SharedState
    from gemel.transports.http.server.workers.status import WorkerState

logger = logging.getLogger("gemel")


class HttpApp:
    """An ASGI 3 app that serves one MCP endpoint. Mount it in another app or run it alone.

    A mounted app needs no support from its parent: it starts with its first request and watches SIGTERM itself. An app
    runs on one event loop at a time.

    Attributes:
        options: How the app serves.
        health: Whether to answer `GET /livez`, `/readyz` and `/health`; for servers that run nothing but this app.
        workers: Tells what the workers are doing, if several processes serve the app.
        watch_signals: Whether to stop on SIGTERM and SIGINT. False if the code that runs the app calls `stop`.
    """

    @accepts(HttpAppOptions)
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
        auth: Auth | None = None,
        shared: SharedState | None = None,
        **options: Unpack[HttpAppOptions],
    ) -> None:
        """Make an app; `server.http_app()` does it for a server.

        Args:
            serve: Starts a session over a channel, such as `Server.serve`.
            path: The path of the endpoint, unless another app mounts this one below a path.
            limits: Limits of messages, calls and sessions.
            eras: The protocol eras that are served.
            on_start: Runs before the first request is served. If it fails, the app does not start.
            on_drain: Runs when a stop is requested, while calls may still finish.
            on_stop: Runs after all calls have ended.
            auth: Authorizes callers, in place of the option `authenticate`.
            shared: What the server shares with other processes, which then serve its HTTP sessions, too.
            options: See `HttpAppOptions`.

        Raises:
            DefinitionError: An option is unknown or has a value that it doesn't take.
        """
        check_option("path", path, options_of(HttpOptions)["path"].check)
        resolved: Any = resolve(HttpAppOptions, options, "HTTP", FROM_SERVER)
        if auth is not None:
            if resolved["authenticate"] is not None:
                raise DefinitionError("authenticate= and Server(auth=…) exclude each other: leave one out")
            resolved["authenticate"] = auth.authenticate
            resolved["routes"] = {**auth.routes(path), **(resolved["routes"] or {})}
        self.options = HttpSettings(path=path, limits=limits, eras=eras, auth=auth, **resolved)
        self._hooks = Hooks(on_start, on_drain, on_stop)
        self.health = False
        self.workers: Callable[[], list[WorkerState]] | None = None
        self.watch_signals = True
        self._serve = serve
        self._shared = shared
        self._admission = Admission(self.options.authenticate)
        self._rules = head_rules(self.options, ("GET", "POST"))
        make_legacy_endpoint(serve, self.options, self._admission)  # reports a wrong path now
        taken = {self.options.path, self.options.sse_path, "/livez", "/readyz"} - {None}
        routes = self.options.routes
        self._routes = RoutedApps(routes, frozenset(map(str, taken))) if routes is not None else None
        self._life: Lifecycle | None = None
        self._signals = StopSignals(self.stop_soon)

    @property
    def holds_sessions(self) -> bool:
        """Whether clients of the handshake era get HTTP sessions."""
        return holds_sessions(self.options)

    @property
    def calls(self) -> int:
        """How many HTTP requests are in flight, with open streams."""
        return 0 if self._life is None else self._life.requests.running

    @property
    def shares_sessions(self) -> bool:
        """Whether other processes can serve the HTTP sessions of this one, so that there may be several workers."""
        return self._shared is not None and self.options.sse_path is None

    # ---------------------------------------------------------------- requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection: `http`, `lifespan`, or `websocket`, which is refused."""
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        task = None if self._life is None else asyncio.current_task(self._life.loop)
        if task is None:
            self._begin_life()
            task = asyncio.current_task()
            assert task is not None
        await self.serve(AsgiExchange(scope, receive, send, task))

    async def serve(self, raw: RawExchange) -> None:
        """Serve one HTTP request.

        Args:
            raw: The request, on the event loop on which the app has started or `__call__` was called.
        """
        life = self._life
        assert life is not None
        scope = raw.scope_view
        if self._routes is not None and (routed := self._routes.find(raw.scope)) is not None:
            await self._serve_routed(*routed, raw, life)
            return
        exchange = Exchange(raw, life.requests, self.options)
        life.requests.add(exchange)
        try:
            if not life.started:
                await life.start()
            if scope["path"] == self.options.path or _is_mount_point(scope):
                await life.endpoint.handle(exchange)
            else:
                await self._serve_path(scope, exchange, life)
        except Exception as exc:
            await exchange.fail(exc)
        finally:
            exchange.close()

    async def _serve_path(self, scope: Scope, exchange: Exchange, life: Lifecycle) -> None:
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        if path.rstrip("/") == self.options.path.rstrip("/"):
            await life.endpoint.handle(exchange)
        elif life.legacy is not None and life.legacy.serves(path):
            await life.legacy.handle(exchange)
        elif self.health and path in ("/livez", "/readyz"):
            draining = path == "/readyz" and life.stopping
            await exchange.reply(503 if draining else 200, b'"stopping"' if draining else b'"ok"')
        elif self.health and path == "/health":
            await exchange.reply(503 if life.stopping else 200, self._describe_health(life))
        else:
            place = scope.get("root_path", "") or self.options.path  # a mount point is the endpoint itself
            await exchange.refuse(Refusal(404, f"Nothing is served here; the MCP endpoint is {place}"))

    def _describe_health(self, life: Lifecycle) -> bytes:
        from gemel.transports.http.server.workers.status import describe_health, own_state

        alone = [own_state(life.began, self.calls, stopping=life.stopping)]
        return describe_health(alone if self.workers is None else self.workers(), stopping=life.stopping)

    async def _serve_routed(self, app: AsgiApp, scope: Scope, raw: RawExchange, life: Lifecycle) -> None:
        """Serve a request for another app, after the Host and Origin checks; `any_origin` of an app leaves the latter out."""
        request = RoutedRequest(raw, self.options.body_wait)
        life.requests.add(request)
        try:
            if not life.started:
                await life.start()
            headers = scope["headers"]
            if getattr(app, "any_origin", False):
                headers = [pair for pair in headers if pair[0] != b"origin"]
            refusal = judge_site(headers, self._rules)
            if refusal is not None:
                self._admission.log(refusal)
                await request.refuse(refusal)
            else:
                await request.run(app, scope)
        finally:
            life.requests.remove(request)

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "lifespan":
            raise RuntimeError(f"This app serves http, not {scope['type']}")
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    if self._life is not None and self._life.stopping:
                        self._begin_life()
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

    # ---------------------------------------------------------------- start and stop

    def _begin_life(self) -> Lifecycle:
        """Begin on the running event loop, with nothing in flight."""
        loop, signals = asyncio.get_running_loop(), self._signals if self.watch_signals else None
        self._life = Lifecycle(loop, self._serve, self.options, self._admission, self._hooks, signals, self._shared)
        return self._life

    async def start(self) -> None:
        """Run `on_start` once; concurrent callers wait for the first.

        Raises:
            Exception: What `on_start` raised. The next call tries again.
        """
        life = self._life
        if life is None or life.loop is not asyncio.get_running_loop():
            life = self._begin_life()
        await life.start()

    def stop_soon(self) -> None:
        """Request a stop, without waiting for it."""
        if self._life is not None:
            self._life.stop_soon()

    async def stop(self) -> None:
        """Take no new work, end streams, let calls finish within `limits.drain`, cancel the rest. May be called twice."""
        if self._life is not None and self._life.loop is asyncio.get_running_loop():
            await self._life.stop()


def _is_mount_point(scope: Scope) -> bool:
    """Whether another app has mounted this one, and the request is for the mount point itself.

    Some frameworks strip the mount point from `path`; newer ones leave it there and repeat it in `root_path`.
    """
    root = scope.get("root_path", "")
    path: str = scope["path"]
    return bool(root) and path.removeprefix(root) in ("", "/")
