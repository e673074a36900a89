"""The server: a registry of handlers shared by all connections, and the door to every transport. No per-connection state.

What belongs to one event loop, the state of the lifespan and the subscriptions, is in `LoopState`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, Unpack, cast, overload

from gemel.backends import backend_for
from gemel.backends.server_backend import ServerBackend, StoresThings, UsesBackend
from gemel.channel import Channel, Serve
from gemel.errors import DefinitionError, InvalidRequest, MethodNotFound, StartError, shorten
from gemel.lazy_imports import load
from gemel.lifespan import Lifespan
from gemel.loops import Abandoned, PerLoop, running_loop
from gemel.options import accepts, check_option, options_of, resolve, shown
from gemel.protocol.changes import Changed, ChangedFor
from gemel.protocol.connection import Connection
from gemel.protocol.description import ServerDescription
from gemel.protocol.eras.base import NO_HANDSHAKE
from gemel.protocol.eras.detect import parse_eras
from gemel.protocol.eras.handshake import initialize
from gemel.protocol.eras.stateless import STATELESS, discover
from gemel.protocol.middleware import placed
from gemel.protocol.records import Call, RefusedMessage
from gemel.protocol.scopes import ScopeHierarchy
from gemel.schema.base import Implementation
from gemel.schema.lifecycle import InitializeParams, InitializeResult
from gemel.schema.notifications import SetLevelParams
from gemel.schema.prompts import Prompt
from gemel.schema.resources import Resource, ResourceTemplate, SubscribeParams
from gemel.schema.skills import Skill
from gemel.schema.subscriptions import ListenParams, ListenResult
from gemel.schema.tools import Tool
from gemel.server.composition.mount import Catalog, ForwardedMethod
from gemel.server.composition.transform import ToolChange, ToolChanges
from gemel.server.context import Context, StateT, find_context, reset_current, served_call, set_current
from gemel.server.dispatch import Dispatch, RequestHandler, Served, check_async
from gemel.server.elicitation.elicit import ElicitationStrategy
from gemel.server.elicitation.request_state import RequestStateCodec
from gemel.server.extensions import BaseExtension, Extensions
from gemel.server.features.caching import CacheHints
from gemel.server.features.options import SkillOptions, check_text, icons_of
from gemel.server.features.subscriptions import Subscriptions
from gemel.server.injection import without_markers
from gemel.server.lifespan import ConnectionLifespans, for_connection
from gemel.server.middleware.chain import Middleware, RefusalObserver, build_chains, check_middleware
from gemel.server.namesakes import warn_of_namesake
from gemel.server.options import (
    LIFESPAN,
    ApiOptions,
    GatewayOptions,
    ProxyOptions,
    ServerOptions,
    SocketOptions,
    StdioOptions,
    check_identity,
    effective_limits,
)
from gemel.server.router import Router
from gemel.server.script_errors import report_briefly
from gemel.server.watchdog import unwatch, watch
from gemel.session import Handle, Session
from gemel.telemetry import count, current_telemetry, server_started
from gemel.transports.http.server.options import FROM_SERVER, HttpAppOptions

if TYPE_CHECKING:
    import os

    from gemel.transports.http.server.app import HttpApp
    from gemel.transports.http.server.options import HttpOptions
    from gemel.transports.http.server.sharing.session import SharedState

logger = logging.getLogger("gemel")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
ExtensionT = TypeVar("ExtensionT", bound=BaseExtension[Any])


class Server(Router, Generic[StateT]):
    """An MCP server: register tools and handlers, then `run()` it, mount `http_app()`, or hand it to a `Client`.

    Args:
        name: the server's name, as clients see it.
        lifespan: `async with lifespan(server) as state`, entered once in each event loop that serves; handlers find the state
            at `ctx.state`.
        options: see `ServerOptions`.

    Raises:
        DefinitionError: for an unknown option or a value that it doesn't take.

    Example:
        ```python
        server = Server("weather")


        @server.tool
        def forecast(city: str, days: int = 3) -> list[str]: ...


        server.run()
        ```
    """

    #: The type of `catalog`, for servers whose features come from another source.
    _catalog_type: ClassVar[type[Catalog]] = Catalog

    @accepts(ServerOptions)
    def __init__(
        self,
        name: str,
        *,
        lifespan: Callable[[Server[StateT]], AbstractAsyncContextManager[StateT]] | None = None,
        **options: Unpack[ServerOptions[StateT]],
    ) -> None:
        report_briefly()
        check_option("lifespan", lifespan, LIFESPAN)
        settings = resolve(ServerOptions, options, "Server", _options_of_serving(options))
        info = Implementation(
            name=name,
            version=settings["version"],
            title=settings["title"],
            description=settings["description"],
            website_url=settings["website_url"],
            icons=icons_of(settings["icons"]),
        )
        check_identity(info)
        limits, page_size = effective_limits(settings["limits"]), settings["page_size"]
        super().__init__(
            threads=limits.threads,
            page_size=page_size,
            resource_bytes=settings["resource_bytes"],
            turn=limits.concurrency_wait,
            coerce=settings["coerce"],
            list_null=settings["list_null"],
            on_duplicate=settings["on_duplicate"],
            error_details=settings["error_details"],
            structured_text=settings["structured_text"],
        )
        self.limits = limits
        #: Authorizes callers over HTTP; None if everybody may call.
        self.auth = settings["auth"]
        hierarchy, auth = ScopeHierarchy(settings["scope_hierarchy"]), cast(Any, self.auth)
        if settings["scope_hierarchy"] and hasattr(auth, "scope_hierarchy"):
            auth.scope_hierarchy = hierarchy
        self._description = ServerDescription(
            info,
            lambda: self.catalog.capabilities(),
            eras=parse_eras(settings["eras"]),
            instructions=settings["instructions"],
            log_level=settings["log_level"],
            scope_hierarchy=hierarchy,
        )
        self._description.on_refused = self._refused
        self._description.extensions = lambda era: self.catalog.extension_capabilities(era)
        self._cache = CacheHints(settings["cache"])
        ask = self._description.ask = self._ask = settings["ask"]
        self._middleware: list[Middleware] = [
            *(() if ask is None else ask.middleware),
            *(placed(check_middleware(one), self) for one in settings["middleware"]),
        ]
        self._omits_repeated_text = settings["omit_repeated_text"]
        #: The name that was given, which is the same in all processes.
        self._own_name = name
        #: What the processes of the server share. One that was made from a URL is closed when the server stops serving.
        self.backend = ServerBackend(backend_for(settings["backend"]), lambda: self.catalog.path)
        for user in (self.auth, ask, *self._middleware):
            self._share_backend(user)
        self._owns_backend = isinstance(settings["backend"], str)
        #: Whether other servers may use the same one.
        self._has_given_backend = settings["backend"] not in (None, "memory://")
        self._request_states = RequestStateCodec(
            settings["state_keys"],
            ttl=limits.state_ttl,
            once=settings["state_once"],
            backend=self.backend,
            server=name,
        )
        connected = without_markers(settings["connection_lifespan"])
        connections = (ConnectionLifespans(connected),) if connected is not None else ()
        self._dispatch = Dispatch(self._description, limits, self._request_states, connections)
        self._extensions = Extensions(self._dispatch)
        self._lifespan = cast(Any, without_markers(lifespan))
        self._extension_lifespans: list[Callable[[Any], AbstractAsyncContextManager[Any]]] = []
        if ask is not None:
            self._extension_lifespans.append(ask.lifespan)
        #: What belongs to one event loop each.
        self.loops = PerLoop(partial(LoopState, self), end=LoopState.end, abandon=LoopState.abandon)
        #: What is offered: what is registered here, and what is mounted.
        self.catalog: Catalog = self._catalog_type(
            self,
            self._description,
            self._registries(),
            self._dispatch,
            self._extensions,
            self._middleware,
            page_size=page_size,
            authorize=without_markers(settings["authorize_subscription"]),
        )
        self._was_served = False
        self._expects_offers = False
        #: The extension of `add_skills`.
        self._skills: Any = None
        protocol_handlers: dict[str, RequestHandler] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "server/discover": self._discover,
            "logging/setLevel": self._set_level,
            "subscriptions/listen": self._dispatch.uncounted(self._listen, bytes_too=True),
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        for method, handler in {**protocol_handlers, **self.catalog.sole_handlers}.items():
            self._dispatch.requests[method] = Served(method, self._applied(method, handler))
        self._build()
        for extension in settings["extensions"]:
            self.add_extension(extension() if isinstance(extension, type) else extension)

    @staticmethod
    @accepts(ProxyOptions)
    def from_client(target: object, /, **options: Unpack[ProxyOptions]) -> Server[Any]:
        """Make a server that offers what another MCP server offers, to clients of either era.

        The other server is connected while this one is served, once, and shared by all callers. Progress, cancellation,
        log messages, changes, subscriptions and requests of the server pass in both directions; requests that the client
        has a callback for (`on_sample=…`) are answered by it. A call of a stateless client that has to ask something is
        kept running at a handshake server while its client is away.

        On stdio or a socket a handshake server's request doesn't say which call it belongs to: while several callers are
        being served it is refused, so that nobody answers for somebody else. Callers are told apart by their session or,
        over HTTP in the stateless era, by their principal; one that isn't authenticated counts as new with each call.

        Args:
            target: a Client that isn't connected yet, or whatever a Client takes: a URL, a command line, a Server.
            options: see `ProxyOptions`, which has those of `Server` as well.

        Returns:
            A server to run, mount or connect to.

        Raises:
            DefinitionError: for a target or option that can't be used.
        """
        server: Server[Any] = load("proxy")(target, **options)
        return server

    @staticmethod
    @accepts(GatewayOptions)
    def from_config(
        source: str | os.PathLike[str] | Mapping[str, Any], /, **options: Unpack[GatewayOptions]
    ) -> Server[Any]:
        """Make a gateway: a server that offers what all servers of a configuration offer, each with its name as prefix.

        The tool `forecast` of the server "weather" is `weather_forecast`. Characters of a name that can't be in a prefix are
        replaced. Each server is a `Server.from_client`; an entry with a mistake is left out and logged.

        Args:
            source: The path of a JSON file with `mcpServers`, as hosts have it, or its content.
            options: See `GatewayOptions`, which has those of `Server` as well.

        Returns:
            A server to run, mount or connect to.

        Raises:
            StartError: The file can't be read or has no servers; with `strict`, an entry has a mistake.

        Example:
            >>> Server.from_config("mcp.json").run("http")
        """
        server: Server[Any] = load("gateway")(source, **options)
        return server

    @staticmethod
    @accepts(ApiOptions)
    def from_openapi(
        document: Mapping[str, Any] | str | bytes | os.PathLike[str],
        http_client: object = None,
        **options: Unpack[ApiOptions],
    ) -> Server[Any]:
        """Make a server with one tool for each operation that an OpenAPI document describes.

        The same as `gemel.openapi.server_from`, which explains how operations become tools.

        Args:
            document: the document (3.0 or newer): a dict, JSON or YAML, the path of a file, or a URL, which is fetched at
                once. YAML needs the extra `gemel[openapi]`.
            http_client: sends the requests: an httpx.AsyncClient, an ASGI app (called in this process), or an async function
                `(method, url, headers, body)` that returns `(status, headers, body)`; Gemel's own client by default.
            options: see `ApiOptions`, which has those of `Server` as well.

        Returns:
            A server to run, mount or connect to.

        Raises:
            DefinitionError: for a document that can't be used.
        """
        server: Server[Any] = load("server_from_openapi")(document, http_client, **options)
        return server

    @property
    def name(self) -> str:
        """The name that clients see."""
        return self._description.info.name

    # ---------------------------------------------------------------- anything else

    def request(
        self, method: str, *, params: object = None
    ) -> Callable[[RequestHandler[StateT]], RequestHandler[StateT]]:
        """Serve a method of your own, or replace the handler of one of the protocol's, as a decorator.

        The handler is `async def handler(ctx, params) -> result`. Its result is a Struct, a pydantic model, a dict, or
        None for an empty one.

        Args:
            method: The method, such as "acme/search".
            params: The type that the params are read into (a msgspec Struct, dataclass, TypedDict or pydantic model); by
                default the protocol's own type, or a dict.

        Returns:
            A decorator that returns the handler unchanged.

        Raises:
            DefinitionError: The method is missing, or the handler is not async.
        """
        check_text(method, 'A request needs its method: write @server.request("acme/search")')

        def register(handler: RequestHandler[StateT]) -> RequestHandler[StateT]:
            check_async(method, handler)
            self.catalog.custom_methods.add(method)
            self._dispatch.requests[method] = Served(method, for_connection(handler), params)
            return handler

        return register

    def notification(
        self, method: str, *, params: object = None
    ) -> Callable[[RequestHandler[StateT]], RequestHandler[StateT]]:
        """Handle a notification, as a decorator: `async def handler(ctx, params) -> None`.

        Args:
            method: The method, such as "notifications/acme/done".
            params: The type that the params are read into, as in `request`.

        Returns:
            A decorator that returns the handler unchanged.

        Raises:
            DefinitionError: The method is missing, or the handler is not async.
        """
        check_text(method, 'A notification needs its method: write @server.notification("notifications/acme/done")')

        def register(handler: RequestHandler[StateT]) -> RequestHandler[StateT]:
            check_async(method, handler)
            self._dispatch.notifications[method] = Served(method, for_connection(handler), params)
            return handler

        return register

    def add_extension(self, extension: ExtensionT) -> ExtensionT:
        """Add an extension of the protocol: what it provides is served, and clients are told about it. Call it before serving.

        Args:
            extension: The extension; one object can be added to one server.

        Returns:
            The extension.

        Raises:
            DefinitionError: Its id is invalid or added already, or a name that it provides is taken.

        Specification: https://modelcontextprotocol.io/extensions/overview
        """
        if not isinstance(extension, BaseExtension):
            raise DefinitionError(
                f"{shown(extension)} is not an extension object: "
                f"write add_extension({getattr(extension, '__name__', 'Apps')}())"
            )
        self._extensions.add(extension)
        if type(extension).lifespan is not BaseExtension.lifespan:
            self._extension_lifespans.append(extension.lifespan)
            for here in self.loops.all():
                here.lifespan.add(extension.lifespan)
        self.catalog.collect_extensions()
        extension.attach(self)
        return extension

    def add_skills(
        self, root: str | os.PathLike[str], *, uri: str = "skill://", **options: Unpack[SkillOptions]
    ) -> list[Skill]:
        """Serve a skill, or all skills in a folder, however deep: folders with a SKILL.md, which tells an agent how to work.

        The files are resources; clients that know the extension get a list with digests. An edited file is served at once, a
        new skill after a restart. Names that begin with a dot are left out. Needs the extra `gemel[skills]`.

        Args:
            root: A folder with a SKILL.md, or one that has such folders in it.
            uri: What the URIs begin with; the paths of the folders follow.
            **options: See `SkillOptions`.

        Returns:
            The skills.

        Raises:
            DefinitionError: There is no skill, one is not as the Agent Skills specification demands, or its URI is taken.

        Specification: https://modelcontextprotocol.io/seps/2640-skills-extension

        Example:
            >>> server.add_skills("skills/")
        """
        if self._skills is None:
            self._skills = self.add_extension(load("skills")())
        added: list[Skill] = self._skills.add(root, uri=uri, **options)
        return added

    def add_middleware(self, middleware: Middleware[StateT], *, outermost: bool = False) -> Middleware[StateT]:
        """Run a middleware around every request and notification, inside of those that were added before.

        Args:
            middleware: `async def middleware(ctx, call_next) -> result`. It returns what `await call_next(ctx)` returns, a
                result of its own, or raises.
            outermost: Whether it runs around all others instead.

        Returns:
            The middleware, so that this works as a decorator.

        Raises:
            DefinitionError: It can't be called with these arguments.
        """
        added = placed(check_middleware(middleware), self)
        self._middleware.insert(0 if outermost else len(self._middleware), added)
        self._share_backend(added)
        self._build()
        return middleware

    def _build(self) -> None:
        observer: Middleware | None = None
        nested_observer: Middleware | None = None
        innermost: Middleware | None = None
        if self._omits_repeated_text:
            from gemel.server.middleware.repeated_text import omit_repeated_text as innermost
        if (telemetry := current_telemetry()) is not None:
            from gemel.server.middleware import telemetry as observing

            observer = observing.observer(telemetry, self._dispatch.serves)
            nested_observer = observing.nested_observer(telemetry)
        self._dispatch.chains = build_chains(
            self._dispatch,
            self._middleware,
            observer=observer,
            nested_observer=nested_observer,
            innermost=innermost,
        )

    def _refused(self, message: RefusedMessage) -> None:
        """Report a message that no middleware sees."""
        count("gemel.server.refused_messages", 1, {"error.type": str(message.error.code)})
        middleware: list[Any] = self._middleware
        for one in middleware:
            if isinstance(one, RefusalObserver):
                try:
                    one.refused(message)
                except Exception:
                    logger.exception("A middleware failed with a refused message")

    def _is_bare(self) -> bool:
        """Whether nothing surrounds the handlers."""
        return self._dispatch.chains.request == self._dispatch.request

    # ---------------------------------------------------------------- serving

    def serve(self, channel: Channel) -> Session:
        """Start a session over a channel: what every transport calls, within `async with server.running()`.

        Args:
            channel: The server's end of the transport.

        Returns:
            The session, to be fed with messages: `gemel.transports.SessionLike` is what a transport uses of it.

        Raises:
            DefinitionError: The server, or one that is mounted in it, has a lifespan, and `running()` was not entered in this
                event loop.
        """
        state = self.loops.here()
        if not state.users and self._has_lifespan:
            raise DefinitionError(
                f"The lifespan of server {self.name!r} was not entered in this event loop: call serve() within "
                "`async with server.running():`"
            )
        return state.serve(channel)

    def notify(self, event: Changed) -> None:
        """Tell clients that something changed, from any thread and in all processes that share the backend.

        Changes of the registered tools, prompts and resources are announced without this.

        Args:
            event: What changed, such as `Changed("resource", uri)`.

        Raises:
            DefinitionError: It is not a `Changed`.
        """
        if not isinstance(event, Changed):
            raise DefinitionError(f"{event!r} is not a Changed: write server.notify(Changed({event!r}))")
        self._publish(event)
        self.catalog.forward_change(event)

    def _publish(self, event: Changed) -> None:
        """Tell the subscribers in all processes. If the backend fails, those in this process are told all the same."""
        if isinstance(event, ChangedFor):
            if (here := self.loops.find()) is not None:
                here.subscriptions.tell(event)
            return
        subscriptions = [here.subscriptions for here in self.loops.all()]
        for each in subscriptions:
            each.connect_if_used()
        try:
            self.backend.publish(event)
        except Exception:
            logger.exception("The backend could not publish a change: other processes are not told")
        else:
            ctx = find_context() if self.backend.shared else None
            if ctx is not None and self.backend not in served_call(ctx).published:
                served_call(ctx).published += (self.backend,)
            subscriptions = [each for each in subscriptions if not each.connected]
        for each in subscriptions:
            each.tell(event)

    def check_workers(self, *, forked: bool = False) -> None:
        """Check that several processes share what they must. What they may need to share is worth a warning.

        Args:
            forked: Whether the processes are forked from this one, so that they have its key of request state.

        Raises:
            StartError: Something that all must know is in the memory of each.
        """
        for part in (self.auth, self._ask, self._request_states, *self.catalog.parts):
            if what := _not_shared(part):
                raise StartError(
                    f"Several workers can't share {what}, which are in the memory of each: use "
                    'Server(backend="sqlite:///FILE"), in gemel proxy --backend sqlite:///FILE, or one worker'
                )
        if forked:
            self._request_states.expect_other_processes()
        elif not self._request_states.shared and STATELESS in self._description.eras:
            logger.warning(
                "Several processes without state_keys: a call that requests input fails when the answer reaches another "
                "process. Give Server(state_keys=[…]) the same secret of 32 bytes everywhere, or a backend that they share"
            )

    def expect_offers(self) -> None:
        """Log a warning if nothing is registered once the lifespan is entered, or now if the file was imported twice."""
        from gemel.server.run import imported_twice

        twice = imported_twice(self, self.catalog)
        self._expects_offers = twice is None
        if twice is not None:
            logger.warning("%s", twice)

    def _warn_if_empty(self) -> None:
        if self._expects_offers and self.catalog.is_empty:
            logger.warning("Server %r offers nothing: no tool, prompt or resource is registered on it", self.name)

    def _warn_of_plain_tools(self) -> None:
        """Log a warning about tools with `task=` that nobody can call as a task."""
        if not self.catalog.is_mounted and (names := self.catalog.tools_without_tasks()):
            tools = shorten(", ".join(map(repr, names)))
            logger.warning("task= has no effect on %s: add the extension with server.add_extension(Tasks())", tools)

    async def _drain(self) -> None:
        """End all subscriptions with their result, because this event loop is about to stop serving."""
        self.loops.here().subscriptions.end()

    async def handle(self, session: Session, call: Call) -> Any:
        """Serve one call through the middleware chain.

        Args:
            session: The session that it arrived on.
            call: The request or notification.

        Returns:
            The result, ready to be encoded.
        """
        return await self.loops.here().handle(session, call)

    @overload
    def run(self, transport: Literal["stdio"] = "stdio", **options: Unpack[StdioOptions]) -> None: ...

    @overload
    def run(self, transport: Literal["http"], **options: Unpack[HttpOptions]) -> None: ...

    @overload
    def run(self, transport: Literal["socket"], **options: Unpack[SocketOptions]) -> None: ...

    def run(self, transport: Literal["stdio", "http", "socket"] = "stdio", **options: object) -> None:
        """Serve until the end of input or a signal (SIGINT, SIGTERM).

        Args:
            transport: `"stdio"`; `"http"`, Streamable HTTP at `host`, `port` and `path`; `"socket"`, one message per line
                on a Unix socket (`path`) or TCP (`port`).
            options: see `StdioOptions`, `HttpOptions` and `SocketOptions`.

        Raises:
            StartError: in one line, for what keeps the server from starting.
        """
        from gemel.server.run import run

        run(self, transport, options)

    @overload
    async def run_async(self, transport: Literal["stdio"] = "stdio", **options: Unpack[StdioOptions]) -> None: ...

    @overload
    async def run_async(self, transport: Literal["http"], **options: Unpack[HttpOptions]) -> None: ...

    @overload
    async def run_async(self, transport: Literal["socket"], **options: Unpack[SocketOptions]) -> None: ...

    async def run_async(self, transport: Literal["stdio", "http", "socket"] = "stdio", **options: object) -> None:
        """The same as `run` in the event loop that is running, for programs that do more; cancelling ends it.

        Args:
            transport: see `run`.
            options: see `run`.

        Raises:
            StartError: in one line, for what keeps the server from starting.
        """
        from gemel.server.run import run_async

        await run_async(self, transport, options)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Say that a server is not an ASGI application, to who runs `uvicorn weather:server`.

        Args:
            scope: the ASGI scope.
            receive: receives ASGI messages.
            send: sends ASGI messages.

        Raises:
            DefinitionError: always, unless the message can be the reason why the application does not start.
        """
        text = f"{self.name!r} is a gemel.Server, not an ASGI application: write app = server.http_app(), and serve app"
        if not isinstance(scope, Mapping) or scope.get("type") != "lifespan":
            raise DefinitionError(text)
        await receive()
        await send({"type": "lifespan.startup.failed", "message": text})

    @accepts(HttpAppOptions)
    def http_app(self, path: str = "/mcp", **options: Unpack[HttpAppOptions]) -> HttpApp:
        """This server as an ASGI 3 app, to be mounted in another one or run by any ASGI server.

        Args:
            path: the endpoint, when the app isn't mounted below a path by another one.
            options: see `HttpAppOptions`.

        Raises:
            DefinitionError: for an unknown option or a value that it doesn't take.
        """
        from gemel.transports.http.server.app import HttpApp

        resolve(HttpAppOptions, options, "HTTP", FROM_SERVER)  # before names of ours are added
        if (card := options.get("server_card")) is not None:
            from gemel.server.card import ServerCard

            app = ServerCard(card, self._description, path)
            options["routes"] = {**(options.get("routes") or {}), f"{path.rstrip('/')}/server-card": app}
        if (
            routes := options.get("routes")
            if self.auth is not None or options.get("authenticate") is not None
            else None
        ):
            from gemel.server.metrics import MetricsApp

            for place, route in routes.items():
                if isinstance(route, MetricsApp) and not route.may_be_served:
                    raise DefinitionError(
                        f"{place} would tell everybody what this server has, which authenticates callers: write "
                        "metrics_app(token=…), or metrics_app(public=True) where only Prometheus reaches it; on the command line "
                        "set GEMEL_METRICS_TOKEN"
                    )
        if self._ask is not None:
            pages = self._ask.routes(path, self.auth, options.get("authenticate"))
            options["routes"] = {**pages, **(options.get("routes") or {})}
        return HttpApp(
            self._serve_here,
            path,
            limits=self.limits,
            eras=tuple(era.name for era in self._description.eras),
            on_start=self._enter,
            on_drain=self._drain,
            on_stop=self._exit,
            auth=self.auth,
            make_shared=self._shared_state if self.backend.shared else None,
            on_refused=self._refused,
            **options,
        )

    def _serve_here(self) -> Serve:
        """`serve` in the running event loop, looked up once; or what replaces it, such as a log of all messages."""
        return self.serve if "serve" in vars(self) else self.loops.here().serve

    def _shared_state(self) -> SharedState:
        """What an HTTP app in the running event loop shares with other processes, and with those of other loops."""
        from gemel.server.features.session_changes import SharedSubscriptions
        from gemel.transports.http.server.sharing.session import SharedState

        here = self.loops.here()
        return SharedState(self.backend, self.name, SharedSubscriptions(here.subscriptions, here.context))

    # ---------------------------------------------------------------- methods of the protocol

    async def _initialize(self, ctx: Context[Any], params: InitializeParams) -> InitializeResult:
        call = served_call(ctx).call
        if not call.inline:
            raise InvalidRequest(
                f"{shorten(call.method)} can't be turned into initialize, which negotiates for the connection"
            )
        return initialize(params, served_call(ctx).session.connection.handshake, self._description)

    async def _ping(self, ctx: Context[Any], params: object) -> None:
        return None

    async def _discover(self, ctx: Context[Any], params: object) -> Any:
        return discover(self._description)

    async def _set_level(self, ctx: Context[Any], params: SetLevelParams) -> None:
        _require_session(ctx)
        served_call(ctx).session.connection.handshake.log_level = params.level

    async def _listen(self, ctx: Context[Any], params: ListenParams) -> ListenResult:
        return await self.loops.here().subscriptions.listen(ctx, params)

    async def _subscribe(self, ctx: Context[Any], params: SubscribeParams) -> None:
        _require_session(ctx)
        await self.loops.here().subscriptions.subscribe(ctx, params)

    async def _unsubscribe(self, ctx: Context[Any], params: SubscribeParams) -> None:
        _require_session(ctx)
        await self.loops.here().subscriptions.unsubscribe(ctx, params)

    def _changed(self, kind: str) -> None:
        self._list_changed(Changed(kind))

    def _list_changed(self, event: Changed) -> None:
        """Announce a change of what is registered, here or in a mounted server.

        Before the server is first served that is its definition, which no client has seen: the backend is left alone, since
        it may start threads, and workers can't be forked beside threads.
        """
        if self._was_served:
            self.notify(event)
        else:
            self.catalog.forward_change(event)

    def _applied(self, method: str, handler: RequestHandler) -> RequestHandler:
        """A handler of this server with cache hints and the interceptions of extensions around it."""
        return self._extensions.applied(method, self._cache.applied(method, handler))

    # ---------------------------------------------------------------- mounting

    def mount(
        self,
        server: Server[Any],
        prefix: str | None = None,
        *,
        tools: Mapping[str, ToolChange | None] | None = None,
    ) -> None:
        """Offer everything of another server here, including what changes there later.

        Under the prefix "weather" its tool `forecast` is `weather_forecast` here, prompts likewise; its resource
        `city://oslo` is `weather+city://oslo`. Calls run through its middleware and see its lifespan's state and its
        visibility; changes and subscriptions are passed on. Its extensions are offered here, unless this server has them
        itself; custom methods (`request`) are not.

        Args:
            server: The server to mount.
            prefix: What its names begin with here. Without one names stay as they are, and items of this server win.
            tools: Changes of its tools, by the names that they have there; None hides a tool.

        Raises:
            DefinitionError: The prefix is invalid or can't be told from another one, the server would contain itself, or
                another mounted server has the same extension with requests.
        """
        if not isinstance(server, Server):
            raise DefinitionError(
                f"mount() expects a Server, got {type(server).__name__}. For a remote server use Server.from_client(url)."
            )
        if server.auth is not None and self.auth is None:
            raise DefinitionError(
                f"The server {server.name!r} has auth=…, which protects its own endpoint only: give auth= to "
                f"{self.name!r}, too, or mount one without"
            )
        made = self.catalog.check(server, prefix, ToolChanges(tools) if tools is not None else None)
        for method, handler in self.catalog.handlers().items():
            if method not in self.catalog.custom_methods:
                self._dispatch.requests[method] = ForwardedMethod(method, self._applied(method, handler))
        self._tools.offered_names = partial(self.catalog.names, "tools")
        self._prompts.offered_names = partial(self.catalog.names, "prompts")
        self.catalog.add(made)

    def unmount(self, server: Server[Any]) -> None:
        """Remove a mounted server; connected clients are told.

        Args:
            server: The server.

        Raises:
            KeyError: It is not mounted here.
        """
        self.catalog.remove(server)

    async def list_tools(self) -> list[Tool]:
        """Return the tools that the server lists for a caller who is not authenticated.

        The request passes the middleware and the visibility rules, in memory.

        Returns:
            The tools of all pages; empty if the server has none.
        """
        async with load("client")(self) as client:
            listed: list[Tool] = await client.list_tools()
            return listed

    async def list_resources(self) -> list[Resource]:
        """Return the resources that the server lists for a caller who is not authenticated.

        The request passes the middleware and the visibility rules, in memory.

        Returns:
            The resources of all pages; empty if the server has none.
        """
        async with load("client")(self) as client:
            listed: list[Resource] = await client.list_resources()
            return listed

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return the resource templates that the server lists for a caller who is not authenticated.

        The request passes the middleware and the visibility rules, in memory.

        Returns:
            The resource templates of all pages; empty if the server has none.
        """
        async with load("client")(self) as client:
            listed: list[ResourceTemplate] = await client.list_resource_templates()
            return listed

    async def list_prompts(self) -> list[Prompt]:
        """Return the prompts that the server lists for a caller who is not authenticated.

        The request passes the middleware and the visibility rules, in memory.

        Returns:
            The prompts of all pages; empty if the server has none.
        """
        async with load("client")(self) as client:
            listed: list[Prompt] = await client.list_prompts()
            return listed

    def running(self) -> AbstractAsyncContextManager[None]:
        """Enter the lifespan, and those of mounted servers, for the time of an `async with` block in which it serves.

        Returns:
            The context manager. Any number may be entered at once: the lifespan is entered by the first of an event loop and
            left by the last.
        """
        return _Running(self)

    async def _enter(self) -> None:
        """Begin to serve in the running event loop."""
        await self.loops.here().enter()

    async def _exit(self) -> None:
        """Stop serving there."""
        here = self.loops.find()
        if here is not None:
            await here.exit()

    def _share_backend(self, user: object) -> None:
        if isinstance(user, UsesBackend):
            user.use_backend(self.backend)

    def _check_authorization(self) -> None:
        """Raise StartError if other processes share all of the server but what its authorization stores."""
        if self.backend.shared and (what := _not_shared(self.auth)):
            raise StartError(
                f"Processes that share the backend of {self.name!r} miss {what}, which are in the memory of each: leave out its "
                "backend=, or name one that is shared"
            )

    def _open_backend(self) -> None:
        if self._owns_backend:
            self.backend.reopen()

    async def _close_backend(self) -> None:
        """Close what authorization has opened, and a backend that this server made, unless another event loop serves."""
        closes = [getattr(self.auth, "close", None), self.backend.close if self._owns_backend else None]
        for close in filter(None, closes):
            if self._is_serving:
                return
            try:
                await close()
            except Exception:
                logger.exception("The backend of server %r could not be closed", self.name)
        if self._is_serving:  # another event loop has begun meanwhile
            self._open_backend()

    @property
    def _is_serving(self) -> bool:
        return any(here.users for here in self.loops.all())

    @property
    def _has_lifespan(self) -> bool:
        """Whether something is to be entered before it serves, here or in a mounted server."""
        return self._lifespan is not None or bool(self._extension_lifespans) or self.catalog.has_lifespan

    @property
    def _is_remote(self) -> bool:
        """Whether its lifespan waits for a server elsewhere, so that lifespans beside it need not wait for that."""
        return False

    async def _within(self, ctx: Context[Any]) -> Any:
        """Serve a request of a server that this one is mounted in; the result does not have its final shape yet."""
        ctx.state = self.loops.here().lifespan.state
        return await self._dispatch.serve_mounted(ctx)

    # ---------------------------------------------------------------- for subclasses that forward to another server

    def _serve_forwarded(self, methods: Mapping[str, RequestHandler]) -> None:
        """Serve methods with handlers whose results are complete: nothing is added to them, and no feature replaces them."""
        for method, handler in methods.items():
            self.catalog.custom_methods.add(method)
            self._dispatch.requests[method] = ForwardedMethod(method, handler)

    def _describe(self, info: Implementation | None, instructions: str | None) -> None:
        """Change the identity that clients see, and the instructions if there are none."""
        if info is not None:
            self._description.identify(info)
        if self._description.instructions is None:
            self._description.instructions = instructions


def _options_of_serving(given: Iterable[str]) -> dict[str, str]:
    """Where those options belong that say how a server is served: other libraries take them here."""
    unknown = set(given) - set(options_of(ServerOptions))
    if not unknown:
        return {}
    from gemel.transports.http.server.options import HttpOptions

    return {name: f'write server.run("http", {name}=…)' for name in unknown if name in options_of(HttpOptions)}


def _not_shared(part: object) -> str:
    """What other processes miss of something that may store things; "" for nothing."""
    return part.not_shared if isinstance(part, StoresThings) else ""


def _require_session(ctx: Context[Any]) -> None:
    """Raise MethodNotFound where nothing that the request changes would outlive its answer, and so was not offered."""
    if not served_call(ctx).session.connection.handshake.lasting:
        raise MethodNotFound(ctx.method)


class _Running:
    """See `Server.running`. No asynchronous generator: a loop that ends would close it while `LoopState.end` does."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    async def __aenter__(self) -> None:
        await self._server._enter()

    async def __aexit__(self, *exc_info: object) -> None:
        await self._server._exit()


class LoopState:
    """A server in one event loop: what its lifespan yielded there, who subscribed, and how many serve it."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._loop = running_loop()
        #: How many have entered.
        self.users = 0
        self.lifespan = Lifespan(server._lifespan, server, f"server {server.name!r}", server.limits.teardown)
        for lifespan in server._extension_lifespans:
            self.lifespan.add(lifespan)
        #: Serves a call: `await handle(session, call)`.
        self.handle: Handle = partial(server._dispatch.serve, self.lifespan)
        self.subscriptions = Subscriptions(server.backend, server.catalog, server.limits, server._is_bare)
        server._was_served = True

    # ---------------------------------------------------------------- serving

    def serve(self, channel: Channel) -> Session:
        """Start a session over a channel, whether the lifespan was entered or not."""
        server, kind = self._server, channel.kind
        if kind == "post":
            connection = Connection(server._description, server.limits, True, False, NO_HANDSHAKE)
            return Session(connection, channel, self.handle, self._loop)
        if kind == "background":
            return Session(Connection(server._description, server.limits, one_shot=True), channel, self.handle)
        connection = Connection(server._description, server.limits, False, kind != "session")
        session = Session(connection, channel, self.handle)
        self.subscriptions.join(session)
        if (telemetry := current_telemetry()) is not None:
            from gemel.server.session_telemetry import observe_session

            observe_session(telemetry, session)
        return session

    async def go_on(self, session: Session, call: Call, elicitation: ElicitationStrategy) -> Any:
        """Serve a call that was answered before, such as that of a task. Returns the result, ready to be encoded.

        Args:
            session: One over a channel of the kind "background".
            call: The call.
            elicitation: How it requests input.
        """
        server = self._server
        ctx = server._dispatch.context(session, call, None)
        served = served_call(ctx)
        served.elicitation = elicitation
        token = set_current(ctx)
        try:
            result = await server._within(ctx)
            elicitation.check_awaited()
        finally:
            reset_current(token)
            await served.finish()
        return call.era.finish_result(result, call.revision, server._description.result_meta)

    def context(self, session: Session, call: Call) -> Context[Any]:
        """The context of a call that is not served here."""
        return self._server._dispatch.context(session, call, self.lifespan.state)

    # ---------------------------------------------------------------- begin and end

    async def enter(self) -> None:
        """Begin to serve."""
        server = self._server
        self.users += 1
        server._open_backend()
        try:
            server._check_authorization()
            for extension in server._extensions.all:
                extension.check()
            if self.users == 1 and server._has_given_backend:
                authority = getattr(server.auth, "authority", "")
                await warn_of_namesake(server.backend, server._own_name, authority, server.catalog.offered_names)
            await self.lifespan.enter()
            try:
                await server.catalog.enter()
            except BaseException:
                await self.lifespan.exit()
                raise
        except BaseException:
            await self._leave()
            raise
        if self.users == 1:
            server._warn_of_plain_tools()
            server._warn_if_empty()
        server_started()
        server._build()  # telemetry may have been installed by now
        watch(server.limits.stall)

    async def exit(self) -> None:
        """Stop serving."""
        unwatch()
        try:
            await self._server.catalog.exit()
        finally:
            try:
                await self.lifespan.exit()
            finally:
                await self._leave()

    async def _leave(self) -> None:
        self.users -= 1
        if not self.users:
            self.subscriptions.disconnect()
            if not self._server._is_serving:
                await self._server._close_backend()

    async def end(self) -> None:
        """The event loop ends."""
        while self.users:
            await self.exit()
        self.subscriptions.disconnect()

    def abandon(self, why: Abandoned) -> None:
        """The event loop is closed, or belongs to another process."""
        self.users = 0
        if why == "forked":
            self.subscriptions.leave_to_parent()
        else:
            self.subscriptions.disconnect()
            self.lifespan.abandon()
