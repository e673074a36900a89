"""MCP over HTTP as an ASGI 3 app: paths, the lifespan protocol, and failures.

`endpoint.py` serves requests to the endpoint, `lifecycle.py` starts and stops the app.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from gemel.channel import Channel, Serve
from gemel.errors import DefinitionError
from gemel.http1.asgi import AsgiApp, HeaderPairs, Receive, Scope, Send
from gemel.loops import Abandoned, PerLoop, running_loop
from gemel.options import accepts, check_option, options_of, resolve
from gemel.protocol.eras.base import EraName
from gemel.protocol.http.headers import judge_site
from gemel.protocol.http.origin import Guard
from gemel.protocol.http.request import Refusal
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.protocol.records import RefusedMessage
from gemel.transports.http.server.cors import Cors
from gemel.transports.http.server.endpoint import Admission, head_rules, holds_sessions
from gemel.transports.http.server.exchange import Exchange
from gemel.transports.http.server.lifecycle import Hooks, Lifecycle, StopSignals, make_legacy_endpoint
from gemel.transports.http.server.options import FROM_SERVER, Auth, Hook, HttpAppOptions, HttpOptions, HttpSettings
from gemel.transports.http.server.raw_exchange import AsgiExchange, RawExchange
from gemel.transports.http.server.routes import RoutedApps, RoutedRequest

if TYPE_CHECKING:
    from gemel.transports.http.server.sharing.session import SharedState
    from gemel.transports.http.server.workers.status import WorkerState

logger = logging.getLogger("gemel")


class HttpApp:
    """An ASGI 3 app that serves one MCP endpoint. Mount it in another app or run it alone.

    A mounted app needs no support from its parent: it starts with its first request and watches SIGTERM itself. It starts
    anew in each event loop; HTTP sessions belong to the loop in which they were opened.

    Attributes:
        options: How the app serves.
        health: Whether to answer `GET /livez`, `/readyz` and `/health`; for servers that run nothing but this app.
        workers: Tells what the workers are doing, if several processes serve the app.
        watch_signals: Whether to stop on SIGTERM and SIGINT. False if the code that runs the app calls `stop`.
    """

    @accepts(HttpAppOptions)
    def __init__(
        self,
        make_serve: Callable[[], Serve],
        path: str = "/mcp",
        *,
        limits: Limits = DEFAULT_LIMITS,
        eras: tuple[EraName, ...] = ("2025", "2026"),
        on_start: Hook | None = None,
        on_drain: Hook | None = None,
        on_stop: Hook | None = None,
        auth: Auth | None = None,
        make_shared: Callable[[], SharedState] | None = None,
        on_refused: Callable[[RefusedMessage], None] | None = None,
        **options: Unpack[HttpAppOptions],
    ) -> None:
        """Make an app; `server.http_app()` does it for a server.

        Args:
            make_serve: Called in each event loop that serves. Returns what starts a session over a channel, such as `Server.serve`.
            path: The path of the endpoint, unless another app mounts this one below a path.
            limits: Limits of messages, calls and sessions.
            eras: The protocol eras that are served.
            on_start: Runs before the first request is served. If it fails, the app does not start.
            on_drain: Runs when a stop is requested, while calls may still finish.
            on_stop: Runs after all calls have ended.
            auth: Authorizes callers, in place of the option `authenticate`.
            make_shared: Called in each event loop. Returns what the server shares with other processes and loops, which then
                serve its HTTP sessions, too.
            on_refused: Called with each message that is refused before it reaches the server.
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
        self.options = HttpSettings(path=path, limits=limits, eras=eras, auth=auth, on_refused=on_refused, **resolved)
        self.hooks = Hooks(on_start, on_drain, on_stop)
        self.health = False
        self.workers: Callable[[], list[WorkerState]] | None = None
        self.watch_signals = True
        self.make_serve, self.make_shared = make_serve, make_shared
        self.admission = Admission(self.options.authenticate)
        self.rules = head_rules(self.options, ("GET", "POST"))
        listing = self.options.guard or Guard(allowed_origins=self.options.allowed_origins)
        has_listed = bool(self.options.guard or self.options.allowed_origins) and hasattr(listing, "lists_origin")
        #: None if no pages of other origins may call.
        self.cors = Cors(listing) if has_listed else None
        make_legacy_endpoint(_refuse_to_serve, self.options, self.admission)  # reports a wrong path now
        taken = {self.options.path, self.options.sse_path, "/livez", "/readyz"} - {None}
        routes = self.options.routes
        self.routes = RoutedApps(routes, frozenset(map(str, taken))) if routes is not None else None
        self.signals = StopSignals(self.stop_soon)
        self._lives = PerLoop(partial(AppLife, self), end=AppLife.stop, abandon=AppLife.abandon)

    @property
    def holds_sessions(self) -> bool:
        """Whether clients of the handshake era get HTTP sessions."""
        return holds_sessions(self.options)

    @property
    def calls(self) -> int:
        """How many HTTP requests are in flight, with open streams."""
        return sum(life.requests.running for life in self._lives.all())

    @property
    def shares_sessions(self) -> bool:
        """Whether other processes can serve the HTTP sessions of this one, so that there may be several workers."""
        return self.make_shared is not None and self.options.sse_path is None

    # ---------------------------------------------------------------- requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection: `http`, `lifespan`, or `websocket`, which is refused."""
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        loop = running_loop()
        life = self._lives.of(loop) or self._lives.here()
        task = asyncio.current_task(loop)
        assert task is not None
        await life.serve(AsgiExchange(scope, receive, send, task))

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

    async def start(self) -> AppLife:
        """Run `on_start` once; concurrent callers wait for the first. After `stop` the app begins anew.

        Returns:
            The life of the app in this event loop, which serves requests.

        Raises:
            Exception: What `on_start` raised. The next call tries again.
        """
        life = self._lives.here()
        if life.stopping:
            self._lives.forget()
            life = self._lives.here()
        await life.start()
        return life

    def stop_soon(self) -> None:
        """Request a stop in this event loop, without waiting for it."""
        life = self._lives.find()
        if life is not None:
            life.stop_soon()

    async def stop(self) -> None:
        """Take no new work, end streams, let calls finish within `limits.drain`, cancel the rest. May be called twice."""
        life = self._lives.find()
        if life is not None:
            await life.stop()


class AppLife(Lifecycle):
    """The life of an app in one event loop, and the requests that are served there."""

    def __init__(self, app: HttpApp) -> None:
        shared = None if app.make_shared is None else app.make_shared()
        signals = app.signals if app.watch_signals else None
        super().__init__(running_loop(), app.make_serve(), app.options, app.admission, app.hooks, signals, shared)
        self._app = app

    def abandon(self, why: Abandoned) -> None:
        """Its event loop runs no more."""
        if why == "closed":
            self._app.signals.disarm()

    async def serve(self, raw: RawExchange) -> None:
        """Serve one HTTP request.

        Args:
            raw: The request.
        """
        app, scope = self._app, raw.scope
        if app.routes is not None and (routed := app.routes.find(raw.scope)) is not None:
            await self._serve_routed(*routed, raw)
            return
        exchange = Exchange(raw, self.requests, app.options)
        if app.cors is not None:
            exchange.cors = app.cors.headers(scope)
        self.requests.add(exchange)
        try:
            if not self.started:
                await self.start()
            if app.cors is not None and exchange.cors and (preflight := app.cors.preflight(scope)):
                await self._answer_preflight(exchange, preflight)
            elif scope["path"] == app.options.path or _is_mount_point(scope):
                await self.endpoint.handle(exchange)
            else:
                await self._serve_path(scope, exchange)
        except Exception as exc:
            await exchange.answer_error(exc)
        finally:
            exchange.close()

    async def _answer_preflight(self, exchange: Exchange, headers: HeaderPairs) -> None:
        """Answer a browser that asks whether a page may call, unless it asks under a name that is not served here."""
        refusal = judge_site(exchange.raw.scope["headers"], self._app.rules)
        await (exchange.empty(204, headers) if refusal is None else exchange.refuse(refusal))

    async def _serve_path(self, scope: Scope, exchange: Exchange) -> None:
        app = self._app
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        if path.rstrip("/") == app.options.path.rstrip("/"):
            await self.endpoint.handle(exchange)
        elif self.legacy is not None and self.legacy.serves(path):
            await self.legacy.handle(exchange)
        elif app.health and path in ("/livez", "/readyz"):
            draining = path == "/readyz" and self.stopping
            await exchange.reply(503 if draining else 200, b'"stopping"' if draining else b'"ok"')
        elif app.health and path == "/health":
            await exchange.reply(503 if self.stopping else 200, self._describe_health())
        else:
            place = scope.get("root_path", "") or app.options.path  # a mount point is the endpoint itself
            await exchange.refuse(Refusal(404, f"Nothing is served here; the MCP endpoint is {place}"))

    def _describe_health(self) -> bytes:
        from gemel.transports.http.server.workers.status import describe_health, own_state

        app = self._app
        alone = [own_state(self.began, app.calls, stopping=self.stopping)]
        return describe_health(alone if app.workers is None else app.workers(), stopping=self.stopping)

    async def _serve_routed(self, app: AsgiApp, scope: Scope, raw: RawExchange) -> None:
        """Serve a request for another app, after the Host and Origin checks; `any_origin` of an app leaves the latter out."""
        request = RoutedRequest(raw, self._app.options.body_wait)
        self.requests.add(request)
        try:
            if not self.started:
                await self.start()
            headers = scope["headers"]
            if getattr(app, "any_origin", False):
                headers = [pair for pair in headers if pair[0] != b"origin"]
            refusal = judge_site(headers, self._app.rules)
            if refusal is not None:
                self._app.admission.log(refusal)
                await request.refuse(refusal)
            else:
                await request.run(app, scope)
        finally:
            self.requests.remove(request)


def _refuse_to_serve(channel: Channel) -> NoReturn:
    raise RuntimeError("the app has not started")


def _is_mount_point(scope: Scope) -> bool:
    """Whether another app has mounted this one, and the request is for the mount point itself.

    Some frameworks strip the mount point from `path`; newer ones leave it there and repeat it in `root_path`.
    """
    root = scope.get("root_path", "")
    path: str = scope["path"]
    return bool(root) and path.removeprefix(root) in ("", "/")
