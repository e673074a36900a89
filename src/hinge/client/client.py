"""The client: one object for every server, era and transport. Its life, and the doors to asking, answering and listening."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from msgspec import UNSET

from hinge.client.agreed import Agreed
from hinge.client.cache import METHODS as CACHEABLE
from hinge.client.cache import Cache, CacheMode, MemoryStore, Store
from hinge.client.callbacks import Answers, OnElicit, OnElicitUrl, OnRoots, OnSample
from hinge.client.connection import Link
from hinge.client.extensions import ClientExtension, ClientExtensions
from hinge.client.inbound import Hearing, OnChange, OnLog, OnNotification
from hinge.client.methods import Features
from hinge.client.middleware import ClientContext, ClientMiddleware, ConnectionMiddleware, Drift, Lock, OnDrift
from hinge.client.negotiation import Discovery, Introduction
from hinge.client.options import CLIENT
from hinge.client.requests import (
    SAFE_METHODS,
    Ask,
    Limit,
    OnProgress,
    RequestOptions,
    Requests,
    read_result,
)
from hinge.client.subscriptions import Listeners, Subscription, filter_of
from hinge.client.targets import transport_for
from hinge.client.tools import ToolIndex
from hinge.client.url_elicitation import RequiredPages
from hinge.errors import CallError, ConnectFailed, ConnectionLost, DefinitionError, NotSent
from hinge.lazy import load
from hinge.options import check_values
from hinge.protocol.changes import ChangesLost
from hinge.protocol.eras.base import EraName
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.protocol.meta import check_meta
from hinge.protocol.middleware import checked, compose
from hinge.schema.base import Implementation
from hinge.schema.notifications import LoggingLevel
from hinge.session import Session

if TYPE_CHECKING:
    from hinge.client.group.config import Source

ResultT = TypeVar("ResultT")
ExtensionT = TypeVar("ExtensionT", bound=ClientExtension)


class Client(Agreed, Features, Hearing):
    """A conversation with one MCP server: `async with Client(target) as client`.

    `target` is a URL, a command line (string or words), a Python file, a `Server` object, or a transport. `era` is found
    out by itself unless pinned; `discovery=` (an earlier `client.discovery`) connects without a round trip.

    Questions of the server go to `on_elicit`, `on_elicit_url`, `on_sample` and `on_roots`; what is registered is what the
    client declares. `on_log`, `on_change` and `on_notification` hear what the server says unasked, `log_level` says from
    which level on; `on_progress` hears of requests that have no callback of their own. `middleware` stands around all that
    is asked and said, in both directions; `extensions` are of the protocol (objects, or classes that make them).
    `reconnect=False` leaves a lost connection lost; `check_results=False` doesn't check structured content. `lock`
    (a file of `hinge lock`) is what the server must be; `drift` "refuse" or "warn" says what becomes of a difference, which
    `on_drift` hears of. Further options go to the transport (`headers`, `auth`, `env`, …).
    """

    def __init__(
        self,
        target: Any,
        *,
        era: EraName | Literal["auto"] = "auto",
        info: Implementation | None = None,
        discovery: Discovery | None = None,
        limits: Limits = DEFAULT_LIMITS,
        on_elicit: OnElicit | None = None,
        on_elicit_url: OnElicitUrl | None = None,
        on_sample: OnSample | None = None,
        on_roots: OnRoots | None = None,
        sampling_tools: bool = False,
        on_log: OnLog | None = None,
        log_level: LoggingLevel | None = None,
        on_change: OnChange | None = None,
        on_notification: OnNotification | None = None,
        on_progress: OnProgress | None = None,
        middleware: Sequence[ClientMiddleware] = (),
        extensions: Sequence[ClientExtension | type[ClientExtension]] = (),
        cache: Store | None = None,
        reconnect: bool = True,
        check_results: bool = True,
        lock: Lock | None = None,
        drift: Drift = "refuse",
        on_drift: OnDrift | None = None,
        **options: Any,
    ) -> None:
        check_values(locals(), CLIENT)
        self.limits = limits
        self._answers = Answers(
            on_elicit=on_elicit,
            on_elicit_url=on_elicit_url,
            on_sample=on_sample,
            on_roots=on_roots,
            sampling_tools=sampling_tools,
        )
        self._extensions = ClientExtensions(self)
        self._link = Link(
            target,
            transport_for(target, limits=limits, **options),
            self._handle,
            introduction=Introduction(
                info=info or Implementation(name="hinge", version=metadata.version("hinge")),
                capabilities=self._answers.capabilities,
                era=era,
                saved=discovery,
                extensions=self._extensions.settings,
            ),
            extensions=self._extensions,
            limits=limits,
            reconnect=reconnect,
        )
        self._target = target
        self._answers.asker = self._described
        self._link.log_level = log_level or ("info" if on_log is not None else None)
        self._link.on_reopened.append(self._reopened)
        self._required_pages = RequiredPages(limits.question, limits.rounds)
        self._requests = Requests(self._link, self._answers, limits, self._required_pages)
        self._listeners = Listeners()
        self._tools = ToolIndex()
        self._check_results = check_results
        store = cache or MemoryStore(limits.cache_entries)
        self._cache = Cache(store, partition=secrets.token_hex(8), longest=limits.cache_ttl)
        self._on_log = on_log
        self._on_change = on_change
        self._on_notification = on_notification
        self._on_progress = on_progress
        self._contract_check = _contract_check(lock, drift, on_drift)
        self._middleware: list[ClientMiddleware] = list(map(checked, middleware))
        self._build()
        for extension in extensions:
            self.add_extension(extension() if isinstance(extension, type) else extension)

    def __repr__(self) -> str:
        found = self._link.found
        state = "not connected" if found is None else found.revision if self._link.alive else "lost"
        return f"<Client of {self._described()}: {state}>"

    def add_middleware(self, middleware: ClientMiddleware) -> ClientMiddleware:
        """Put `async def middleware(ctx, call_next) -> result` around all that is asked and said, inside the earlier ones.

        `ctx.inbound` tells the directions apart. A request comes here once, as its caller made it: the cache, repeats and
        rounds of questions are inside. What opens a connection and keeps up subscriptions goes past it.
        """
        self._middleware.append(checked(middleware))
        self._build()
        return middleware

    def _build(self) -> None:
        chain: list[ClientMiddleware] = [*self._middleware, *self._contract_check]
        self._observers = [one for one in chain if isinstance(one, ConnectionMiddleware)]
        self._chain = compose(chain, self._sent) if chain else None
        self._heard_chain = compose(chain, self._served) if chain else None

    def add_extension(self, extension: ExtensionT) -> ExtensionT:
        """Take an extension of the protocol into use: it is declared to the server from now on (EXT-01, EXT-05).

        To be done before connecting. Gives the extension back. Raises DefinitionError for an id that can't be or is there
        already, for names that are taken, and when the client is connected.
        """
        if self._link.wanted:
            raise DefinitionError(f"The extension {extension.id!r} comes too late: add it before the client connects")
        self._extensions.add(extension)
        extension.attach(self)
        return extension

    @classmethod
    def from_config(cls, source: Source, name: str | None = None, **options: Any) -> Self:
        """A client of one server of a configuration: a file with `mcpServers`, or what it holds; `name` picks the server.

        `options` are those of the client and go before what the configuration says. Raises StartError.
        """
        from hinge.client.group.config import pick, read_config

        target, found = pick(read_config(source), name).reach()
        return cls(target, **{**found, **options})

    # ---------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the conversation. Raises ConnectFailed or another CallError, never a group. Works again after `close`."""
        self._answers.around = self._question
        await self._link.open()
        tries = 0
        while True:
            try:
                return await self._greet(await self._link.session())
            except (NotSent, ConnectionLost) as exc:  # it agreed, and was gone
                tries += 1
                if tries > self.limits.retries or not self._link.reconnects:
                    await self._link.close()
                    raise ConnectFailed(f"The server ended as soon as it had agreed: {exc}") from exc
                await asyncio.sleep(self.limits.backoff * 2**tries * random.uniform(0.5, 1.5))
            except BaseException:
                await self._link.close()
                raise

    async def _greet(self, session: Session) -> None:
        for observer in self._observers:
            observer.connected(self)
        await self._tell_log_level(session)

    async def _tell_log_level(self, session: Session) -> None:
        """A handshake server is told the log level; the stateless era says it with every request."""
        wants = self._link.log_level
        if wants is not None and self.era == "2025" and self.server_capabilities.logging is not None:
            await self._link.tell_log_level(session, wants)

    async def close(self) -> None:
        """End the conversation, from any task, twice or during a call: waiting calls fail with ConnectionLost."""
        await self._link.close()

    async def _reopened(self, session: Session) -> None:
        with suppress(CallError):
            await self._greet(session)
        self._heard(ChangesLost("the connection was opened again"))

    # ---------------------------------------------------------------- asking

    @overload  # type: ignore[override]  # the options of the base, by name
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[ResultT],
        **options: Unpack[RequestOptions],
    ) -> ResultT: ...

    @overload
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: None = None,
        **options: Unpack[RequestOptions],
    ) -> dict[str, Any]: ...

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: Any = None,
        idle: Limit = UNSET,
        total: Limit = UNSET,
        on_progress: OnProgress | None = None,
        safe: bool | None = None,
        cache: CacheMode = "use",
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        mirror: tuple[str, Mapping[str, Any]] | None = None,
        weigh: Callable[[int], None] | None = None,
    ) -> Any:
        """Any request; its result read into `result`, a type, or into a dict.

        `idle` and `total` are seconds without a word from the server, and at all; None for no limit. `safe` says that
        running it twice does no harm. `meta` goes into `_meta`, under keys of your own; `headers` go with it over HTTP, in
        place of the client's. Raises a CallError, whose `outcome` says whether the request may have run, and
        DefinitionError for keys and headers that can't be.
        """
        if meta is not None:
            check_meta(meta)
        ask = Ask(
            method=method,
            params=dict(params or {}),
            idle=self.limits.call_idle if idle is UNSET else idle,
            total=self.limits.call_total if total is UNSET else total,
            on_progress=on_progress or self._on_progress,
            safe=safe if safe is not None else method in SAFE_METHODS or self._extensions.is_safe(method),
            result=result,
            cache=cache,
            meta=meta,
            headers=headers,
            mirror=mirror,
            weigh=weigh,
        )
        if self._chain is not None:
            return await self._chain(ClientContext.of(self, ask))
        return await self._ask(ask)

    async def _sent(self, ctx: ClientContext) -> Any:
        """The inner end of the chain."""
        if ctx.notification:
            return await self._notify(ctx.method, ctx.params, ctx.meta)
        if ctx.meta is not None:
            check_meta(ctx.meta)
        return await self._ask(ctx.asked())

    async def _ask(self, ask: Ask) -> Any:
        method = ask.method
        key = self._cache.key(method, ask.params, self.protocol_version) if self._caches(ask) else None
        kept = self._cache.get(key) if key is not None and ask.cache == "use" else None
        if kept is None:
            if method == "tools/call" and self.mirrors:
                name, arguments = ask.mirror or (ask.params.get("name", ""), ask.params.get("arguments") or {})
                ask.mirrored, ask.mismatch = partial(self._tools.headers, name, arguments), self._relist
            kept = await self._requests.ask(ask)
            if key is not None:
                self._cache.put(key, kept)
        if ask.weigh is not None:
            ask.weigh(memoryview(kept).nbytes)
        return read_result(kept, method, ask.result)

    def _caches(self, ask: Ask) -> bool:
        """Whether this may be kept, or may have been: what one call says of itself may change who is asking (CACHE-07)."""
        if ask.cache == "bypass" or ask.method not in CACHEABLE or ask.headers is not None or ask.meta is not None:
            return False
        return self._link.found is not None and self.era == "2026" and "_meta" not in ask.params

    async def _relist(self) -> None:
        await self.list_tools(cache="refresh")

    async def notify(
        self, method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification of your own. Raises NotSent or ChannelClosed when it can't leave, DefinitionError for `meta`."""
        if meta is not None:
            check_meta(meta)
        if self._chain is None:
            await self._notify(method, params, meta)
            return
        given = dict(params or {})
        await self._chain(ClientContext(client=self, method=method, params=given, notification=True, meta=meta))

    async def _notify(self, method: str, params: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> None:
        session = await self._link.session()
        with self._link.span(method, params or {}) as trace:
            await session.notify(method, self._link.dressed(params, {**trace, **(meta or {})}))

    async def ping(self) -> None:
        """Ask for a sign of life: `ping`, or `server/discover` in the stateless era, which has no ping."""
        await self.request("ping" if self.era == "2025" else "server/discover", cache="bypass")

    async def set_log_level(self, level: LoggingLevel) -> None:
        """From which level on the server's log messages are wanted; `on_log` gets them. Raises DefinitionError for no level."""
        check_values({"log_level": level}, CLIENT)
        self._link.set_log_level(level)
        await self._tell_log_level(await self._link.session())

    async def roots_changed(self) -> None:
        """Tell a handshake server that the roots changed (ROOT-03); a stateless one asks when it needs them."""
        if self.era == "2025":
            await self.notify("notifications/roots/list_changed")

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool | Sequence[str] = False,
        resource_list: bool = False,
        topics: Mapping[str, Any] | None = None,
    ) -> Subscription:
        """Hear of changes: `async with client.listen(tools=True, resources=[uri]) as changes: async for change in changes`.

        `resources` are URIs to watch, or True for changes of the list. `topics` are extensions' own keys of the filter: what
        a stateless server says of them comes to the extension and to `on_notification`. Kept up by itself: after a loss it
        is opened again, with a `ChangesLost` in between.
        """
        wanted = filter_of(tools=tools, prompts=prompts, resource_list=resource_list, resources=resources)
        return Subscription(self._link, self._listeners, wanted, self.limits, topics)


def _contract_check(lock: Lock | None, drift: Drift, on_drift: OnDrift | None) -> list[ClientMiddleware]:
    """The innermost middleware of a client with `lock=`. Raises StartError for an invalid lock file."""
    return [] if lock is None else [load("contract_check")(lock, drift=drift, on_drift=on_drift)]
