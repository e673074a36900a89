"""The client: one object for every server, era and transport."""

from __future__ import annotations

import asyncio
import copy
import random
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack, cast

import msgspec

from gemel.client.cache import Cache, MemoryStore
from gemel.client.call_options import OnProgress
from gemel.client.callbacks import (
    Callbacks,
    InboundMessages,
)
from gemel.client.connection import ClientConnection
from gemel.client.extensions import ClientExtension, ClientExtensions, SentMethod
from gemel.client.methods import ClientMethods
from gemel.client.middleware import (
    ClientMiddleware,
    ConnectionMiddleware,
)
from gemel.client.negotiation import Discovery
from gemel.client.options import ClientOptions
from gemel.client.requests import ProgressCalls, Requests
from gemel.client.subscriptions import OpenSubscriptions, Subscription
from gemel.client.targets import TransportOptions, transport_for, words_of
from gemel.client.tasks import ClientTasks
from gemel.client.tools import ToolIndex
from gemel.client.url_elicitation import RequiredPages
from gemel.errors import CallError, ConnectFailed, ConnectionLost, DefinitionError, InvalidResponse, NotSent, shorten
from gemel.lazy_imports import load
from gemel.options import accepts, check_option, options_of, resolve
from gemel.protocol.changes import ChangesLost
from gemel.protocol.deviations import Deviation
from gemel.protocol.eras.base import Era
from gemel.protocol.limits import FIXED_LIMITS
from gemel.protocol.middleware import checked, compose, placed
from gemel.protocol.records import Call
from gemel.protocol.revisions.adapt import shape
from gemel.schema.base import CLIENT_CAPABILITIES, Implementation
from gemel.schema.input_required import InputRequiredResult
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.methods import method_in
from gemel.schema.notifications import LoggingLevel
from gemel.schema.subscriptions import SubscriptionFilter
from gemel.session import Session
from gemel.timeouts import asking_person
from gemel.version import __version__

if TYPE_CHECKING:
    from gemel.client.group.config import Source

ResultT = TypeVar("ResultT")
ExtensionT = TypeVar("ExtensionT", bound=ClientExtension)


class Client(ClientMethods):
    """A client of one MCP server: `async with Client(target) as client`.

    Every callback may be sync or async. The client declares the capabilities for which it has callbacks.

    Args:
        target: A URL, a command line (a string or a list of words), a Python file, a `Server`, or a transport.
        **options: See `ClientOptions`; among them the options of the transport, `headers`, `auth`, `env`, `cwd`.

    Raises:
        DefinitionError: An option is unknown, or its value is not allowed.
        StartError: The lock file can't be read.

    Example:
        >>> async with Client("weather.py") as client:
        ...     result = await client.call_tool("forecast", {"city": "Oslo"})
    """

    @accepts(ClientOptions)
    def __init__(self, target: object, **options: Unpack[ClientOptions]) -> None:
        settings = resolve(ClientOptions, options, "Client")
        if options.get("auth") == "oauth":  # copies of the client share its login
            options["auth"] = load("oauth")()
        self._options: dict[str, Any] = dict(options)
        limits, on_log, lock = settings["limits"], settings["on_log"], settings["lock"]
        of_transport: Any = {name: value for name, value in options.items() if name in options_of(TransportOptions)}
        self._target = target
        callbacks = Callbacks(
            on_elicit=settings["on_elicit"],
            on_elicit_url=settings["on_elicit_url"],
            on_sample=settings["on_sample"],
            on_roots=settings["on_roots"],
            sampling_tools=settings["sampling_tools"],
            on_log=on_log,
            on_change=settings["on_change"],
            on_notification=settings["on_notification"],
        )
        callbacks.describe_server = self._server_text
        self._extensions = ClientExtensions(self)
        self._tasks: ClientTasks | None = None
        transport = transport_for(target, limits=limits, **of_transport)
        if (wrap := settings["wrap"]) is not None:
            transport = wrap(transport)
        self._transport_extensions: Mapping[str, Mapping[str, Any]] = getattr(transport, "extensions", {})
        self._connection = ClientConnection(
            target,
            transport,
            self._handle,
            info=settings["info"] or Implementation(name="gemel", version=__version__),
            capabilities=self._capabilities,
            era=settings["era"],
            saved=settings["discovery"],
            limits=limits,
            reconnect=settings["reconnect"],
            on_reopened=self._reopened,
        )
        self._connection.log_level = settings["log_level"] or ("info" if on_log is not None else None)
        results = Cache(
            settings["cache"] or MemoryStore(FIXED_LIMITS.cache_entries, limits.cache_bytes),
            partition=secrets.token_hex(8),
            longest=limits.cache_ttl,
        )
        self._subscriptions = OpenSubscriptions(results.clear)
        pages = RequiredPages(limits.input_wait, limits.rounds)
        self._inbound = InboundMessages(
            self,
            callbacks,
            extensions=self._extensions,
            subscriptions=self._subscriptions,
            cache=results,
            pages=pages,
        )
        tools = ToolIndex()
        refresh_tools = partial(self.list_tools, cache="refresh")
        self._requests = Requests(
            self._connection, self._inbound, self._extensions, tools, results, pages, limits, refresh_tools
        )
        super().__init__(
            self._requests.send,
            tools,
            limits,
            on_progress=settings["on_progress"],
            check_results=settings["check_results"],
            deviations=self._connection.deviations,
        )
        self._middleware: list[ClientMiddleware] = [placed(checked(one), self) for one in settings["middleware"]]
        #: The innermost middleware.
        self._contract_check: list[ClientMiddleware] = (
            []
            if lock is None
            else [load("contract_check")(lock, drift=settings["drift"], on_drift=settings["on_drift"])]
        )
        self._connection_middleware: list[ConnectionMiddleware] = []
        #: What was added after the client was made.
        self._additions: list[ClientMiddleware | ClientExtension] = []
        self._build()
        for extension in settings["extensions"]:
            self._attach(extension() if isinstance(extension, type) else extension)

    @classmethod
    def from_config(cls, source: Source, name: str | None = None, **options: Unpack[ClientOptions]) -> Self:
        """Make a client of one server of a configuration.

        Args:
            source: The path of a JSON file with `mcpServers`, or its content.
            name: The name of the server; not needed if the configuration has only one.
            **options: Options of the client, which replace those of the configuration. If the entry has options of a login, those
                of an OAuth for `auth` are added: who logs in, and where logins are kept.

        Returns:
            The client, not connected yet.

        Raises:
            StartError: The configuration is invalid, or has no such server.
        """
        from gemel.client.group.config import pick, read_config

        entry = pick(read_config(source), name)
        # The login of an entry uses the authorizer and the store that are given here.
        login = {"auth": options.pop("auth", None)} if entry.oauth else {}
        target, entry_options = entry.reach(login)
        merged: Any = {**entry_options, **options}
        return cls(target, **merged)

    def copy(self, **options: Unpack[ClientOptions]) -> Self:
        """Make a client of the same server that is not connected yet: for another session, event loop or thread.

        It has the same options, callbacks and middleware, and the same logins; extensions are copied by `copy.copy`.

        Args:
            **options: Options that replace those of this client.

        Returns:
            The client.

        Raises:
            DefinitionError: An option is unknown, or its value is not allowed.
        """
        given: Any = {**self._options, **options}
        if extensions := given.get("extensions"):
            given["extensions"] = [each if isinstance(each, type) else copy.copy(each) for each in extensions]
        made = type(self)(self._target, **given)
        for addition in self._additions:
            if isinstance(addition, ClientExtension):
                made.add_extension(copy.copy(addition))
            else:
                made.add_middleware(addition)
        return made

    def __repr__(self) -> str:
        discovery = self._connection.discovery
        state = "not connected" if discovery is None else discovery.revision if self.connected else "lost"
        return f"<Client of {self._server_text()}: {state}>"

    # ---------------------------------------------------------------- set-up

    def add_middleware(self, middleware: ClientMiddleware) -> ClientMiddleware:
        """Add middleware inside of the earlier ones: `async def middleware(ctx, call_next) -> result`.

        It handles requests and notifications in both directions, see `ctx.inbound`. A request passes once: the cache,
        retries and rounds of input requests are inside. Negotiation and subscriptions do not pass.

        Args:
            middleware: The middleware.

        Returns:
            The middleware, so that this can be used as a decorator.

        Raises:
            DefinitionError: It is not callable.
        """
        self._insert(middleware)
        self._additions.append(middleware)
        return middleware

    def _insert(self, middleware: ClientMiddleware) -> None:
        self._middleware.append(placed(checked(middleware), self))
        self._build()

    def _build(self) -> None:
        middleware = [*self._middleware, *self._contract_check]
        self._connection_middleware = [each for each in middleware if isinstance(each, ConnectionMiddleware)]
        self._chain = compose(middleware, self._requests.send)
        self._inbound.chain = compose(middleware, self._inbound.dispatch) if middleware else None

    def add_extension(self, extension: ExtensionT) -> ExtensionT:
        """Add a protocol extension before connecting. It is declared to the server.

        See https://modelcontextprotocol.io/specification/draft/extensions.

        Args:
            extension: The extension.

        Returns:
            The extension.

        Raises:
            DefinitionError: The id or a name is invalid or taken, or the client is connected.
        """
        if self._connection.keep_open:
            raise DefinitionError(f"The extension {extension.id!r} comes too late: add it before the client connects")
        self._attach(extension)
        self._additions.append(extension)
        return extension

    def _attach(self, extension: ClientExtension) -> None:
        self._extensions.add(extension)
        for middleware in extension.middleware():
            self._insert(middleware)
        extension.attach(self)

    @property
    def callbacks(self) -> Callbacks:
        """What serves the requests and notifications of the server."""
        return self._inbound.callbacks

    def use_callbacks(self, callbacks: Callbacks) -> None:
        """Replace what serves the requests and notifications of the server, before connecting; for proxies and gateways.

        Args:
            callbacks: The new ones. They may call the earlier ones, in `client.callbacks`.

        Raises:
            DefinitionError: The client is connected.
        """
        if self._connection.keep_open:
            raise DefinitionError("The callbacks come too late: replace them before the client connects")
        self._inbound.callbacks = callbacks

    def _capabilities(self, era: Era) -> ClientCapabilities:
        """What is declared in an era."""
        declared = self.callbacks.capabilities
        if self._transport_extensions:
            extensions = {**(declared.extensions or {}), **self._transport_extensions}
            declared = msgspec.structs.replace(declared, extensions=extensions)
        return self._extensions.declare(declared, era)

    # ---------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    if not TYPE_CHECKING:  # type checkers report it themselves

        def __enter__(self) -> NoReturn:
            raise TypeError("A Client is opened by `async with Client(…)`; without async use gemel.sync.Client")

        __exit__ = __aexit__

    async def connect(self) -> None:
        """Connect to the server and negotiate the era. A closed client can connect again.

        Raises:
            ConnectFailed: The server can't be reached, or there is no common protocol revision.
            CallError: The server refused the connection in another way; never an exception group.
        """
        tries = 0
        await self._connection.open()
        async with self._connection.connecting():
            while True:
                try:
                    return await self._connected(await self._connection.ready_session())
                except (NotSent, ConnectionLost) as exc:  # it was lost just after the negotiation
                    tries += 1
                    if tries > self.limits.retries or not self._connection.reconnects:
                        await self._connection.close()
                        raise ConnectFailed(f"The server ended just after the negotiation: {exc}") from exc
                    await asyncio.sleep(self.limits.backoff * 2**tries * random.uniform(0.5, 1.5))
                except BaseException:
                    await self._connection.close()
                    raise

    async def close(self) -> None:
        """Close the connection, from any task; waiting requests fail with ConnectionLost. Closing twice is harmless.

        Raises:
            NotSent: The client is connected in another event loop, which has not ended.
        """
        await self._extensions.close()
        await self._connection.close()

    async def _connected(self, session: Session) -> None:
        for middleware in self._connection_middleware:
            await middleware.connected(self)
        await self._tell_log_level(session)

    async def _reopened(self, session: Session) -> None:
        with suppress(CallError):
            await self._connected(session)
        await self._inbound.changed(ChangesLost("the connection was opened again"))

    async def _handle(self, session: Session, call: Call) -> Any:
        return await self._inbound.handle(session, call)

    @property
    def connected(self) -> bool:
        """Whether the connection is open now. A lost one is opened again by the next request, unless `reconnect=False`."""
        return self._connection.alive

    async def credentials(self) -> str:
        """Get what identifies the caller of a request that is sent now; see `ClientMethods.credentials`.

        Returns:
            An opaque text; "" if `auth` and `headers` never change.

        Raises:
            NotSent: A function for `auth` or `headers` failed.
        """
        return await self._connection.credentials()

    async def same_credentials(self) -> bool:
        """Tell whether requests can be sent in the same session: it was opened with the same credentials.

        Returns:
            False if `auth` or `headers` give something else than for the handshake. True in the stateless era.

        Raises:
            NotSent: A function for `auth` or `headers` failed.
        """
        return await self._connection.same_credentials()

    @property
    def session(self) -> Session | None:
        """The session that requests are sent over now; None while there is none."""
        return self._connection.session

    @property
    def discovery(self) -> Discovery:
        """What the negotiation found out. Save it and pass it as `discovery=` to connect later without a round trip.

        Raises:
            NotSent: The client was not connected yet.
        """
        if self._connection.discovery is None:
            raise NotSent("The client is not connected: use `async with Client(…)` or await `connect()`")
        return self._connection.discovery

    @property
    def warnings(self) -> list[Deviation]:
        """How the server, and the authorization server of its login, deviated from the specification since this client was made.

        Each of these was understood all the same, and logged once at level WARNING.
        """
        return self._connection.warnings

    @property
    def mirrors_arguments(self) -> bool:
        """Whether HTTP headers repeat tool arguments: in the stateless era over HTTP."""
        return self._connection.mirrors

    @property
    def tasks(self) -> ClientTasks:
        """Tasks at the server, by their ids: `task = await client.tasks.resume(task_id)`."""
        tasks = self._tasks
        if tasks is None:
            tasks = self._tasks = cast(ClientTasks, load("client_tasks")(self))
        return tasks

    def know_methods(self, methods: Iterable[SentMethod]) -> None:
        """Note what must be known about requests of an extension that is not declared; for extensions.

        Args:
            methods: The requests.
        """
        self._extensions.sent.update({method.name: method for method in methods})

    def receive_progress(self, token: str, on_progress: OnProgress | None) -> None:
        """Receive progress with a token, also after its request was answered; for extensions.

        Args:
            token: The progress token.
            on_progress: Called with it, instead of the client's `on_progress`.
        """
        on_progress = on_progress or self._on_progress
        if on_progress is not None:
            self._connection.task_progress[token] = ProgressCalls(on_progress).receive

    def end_progress(self, token: str) -> None:
        """Receive no more progress with a token; for extensions.

        Args:
            token: The progress token.
        """
        self._connection.task_progress.pop(token, None)

    def declare_extension(self, extension_id: str) -> dict[str, Any]:
        """Make the `_meta` of one request that declares an extension besides what the client declares anyway.

        Args:
            extension_id: The id of the extension.

        Returns:
            Members of `_meta`; for the stateless era.
        """
        declared = self._capabilities(self._connection.era)
        capabilities = msgspec.structs.replace(declared, extensions={**(declared.extensions or {}), extension_id: {}})
        return {CLIENT_CAPABILITIES: shape(capabilities, self.protocol_version)}

    async def answer_inputs(self, required: InputRequiredResult) -> Mapping[str, Any]:
        """Answer requests for input by the callbacks of this client; for extensions.

        Args:
            required: The requests.

        Returns:
            The answers by the keys of the requests.

        Raises:
            InvalidResponse: The server requested something that it must not, or that was not declared, or too much.
        """
        count = len(required.input_requests or {})
        if count > self.limits.input_requests:
            raise InvalidResponse(f"The server sent {count} input requests at once")
        return await asking_person(self._inbound.callbacks.answer_inputs(required, self._inbound.answer_input))

    def _server_text(self) -> str:
        """The server for a user: the name that it gives itself, and where it is."""
        discovery = self._connection.discovery
        name = discovery.server_info.name if discovery is not None and discovery.server_info is not None else "a server"
        return f"{shorten(name)} ({words_of(self._target)})"

    # ---------------------------------------------------------------- requests and notifications

    async def ping(self) -> None:
        """Check that the server answers: with `ping`, or `server/discover` in the stateless era, which has no ping.

        Raises:
            CallError: It does not.
        """
        await self.request(self._connection.era.liveness_method, cache="bypass")

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Set the lowest level of the log messages that `on_log` gets.

        See https://modelcontextprotocol.io/specification/draft/server/utilities/logging.

        Args:
            level: The level, for example "warning".

        Raises:
            DefinitionError: There is no such level.
            NotSent: The client is not connected.
        """
        check_option("log_level", level, options_of(ClientOptions)["log_level"].check)
        self._connection.set_log_level(level)
        await self._tell_log_level(await self._connection.ready_session())

    async def _tell_log_level(self, session: Session) -> None:
        """Send the log level to a handshake server; in the stateless era every request has it."""
        level = self._connection.log_level
        has_method = method_in("logging/setLevel", self.protocol_version) is not None
        if level is not None and has_method and self.server_capabilities.logging is not None:
            await self._connection.tell_log_level(session, level)

    async def roots_changed(self) -> None:
        """Tell a handshake server that the roots changed; a stateless server requests them when it needs them.

        Raises:
            NotSent: The client is not connected.
        """
        if method_in("notifications/roots/list_changed", self.protocol_version) is not None:
            await self.notify("notifications/roots/list_changed")

    def _subscribe(self, subscribed: SubscriptionFilter, topics: Mapping[str, Any] | None) -> Subscription:
        return Subscription(self._connection, self._subscriptions, subscribed, self.limits, topics)
