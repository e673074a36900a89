"""The client: one object for every server, era and transport. Its life, and the doors to asking, answering and listening."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import msgspec
from msgspec import UNSET, Raw

from hinge.client.answers import Answers, OnElicit, OnElicitUrl, OnRoots, OnSample
from hinge.client.cache import METHODS as CACHEABLE
from hinge.client.cache import Cache, CacheMode, MemoryStore, Store
from hinge.client.connecting import Introduction
from hinge.client.features import Features, Limit
from hinge.client.link import Link
from hinge.client.listening import Listeners, Listening, filter_of
from hinge.client.negotiate import Discovery
from hinge.client.requests import SAFE_METHODS, Ask, OnProgress, Requests
from hinge.client.target import transport_for, words_of
from hinge.client.tool_index import ToolIndex
from hinge.errors import CallError, DefinitionError, InvalidResponse, NotSent, shorten
from hinge.protocol.changes import Changed, Lost
from hinge.protocol.events import Call, EraName
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.protocol.shape import shape
from hinge.schema.base import Implementation, Page
from hinge.schema.lifecycle import ServerCapabilities
from hinge.schema.notifications import LoggingLevel, LogParams
from hinge.session import Session

if TYPE_CHECKING:
    from hinge.client.config import Source

logger = logging.getLogger("hinge")

PageT = TypeVar("PageT", bound=Page)
OnLog = Callable[[LogParams], Any]
OnChange = Callable[[Changed | Lost], Any]
OnNotification = Callable[[str, dict[str, Any]], Any]

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


class Client(Features):
    """A conversation with one MCP server: `async with Client(target) as client`.

    `target` is a URL, a command line (string or words), a Python file, a `Server` object, or a transport. `era` is found
    out by itself unless pinned; `discovery=` (an earlier `client.discovery`) connects without a round trip.

    Questions of the server go to `on_elicit`, `on_elicit_url`, `on_sample` and `on_roots`; what is registered is what the
    client declares. `on_log`, `on_change` and `on_notification` hear what the server says unasked, `log_level` says from
    which level on. `reconnect=False` leaves a lost connection lost; `check_results=False` doesn't check structured
    content. Further options go to the transport (`headers`, `auth`, `env`, …).
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
        cache: Store | None = None,
        reconnect: bool = True,
        check_results: bool = True,
        **options: Any,
    ) -> None:
        if era not in ("auto", "2025", "2026"):
            raise DefinitionError(f'era={era!r} is not possible: use "auto", "2025" or "2026"')
        self.limits = limits
        self._answers = Answers(
            on_elicit=on_elicit,
            on_elicit_url=on_elicit_url,
            on_sample=on_sample,
            on_roots=on_roots,
            sampling_tools=sampling_tools,
        )
        self._link = Link(
            target,
            transport_for(target, limits=limits, **options),
            self._handle,
            introduction=Introduction(
                info=info or Implementation(name="hinge", version=metadata.version("hinge")),
                capabilities=self._answers.capabilities,
                era=era,
                saved=discovery,
            ),
            limits=limits,
            reconnect=reconnect,
        )
        self._answers.asker = partial(self._described, target)
        self._link.log_level = log_level or ("info" if on_log is not None else None)
        self._link.on_reopened.append(self._reopened)
        self._requests = Requests(self._link, self._answers, limits)
        self._listeners = Listeners()
        self._tools = ToolIndex()
        self._check_results = check_results
        store = cache or MemoryStore(limits.cache_entries)
        self._cache = Cache(store, partition=str(id(self)), longest=limits.cache_ttl)
        self._on_log = on_log
        self._on_change = on_change
        self._on_notification = on_notification

    @classmethod
    def from_config(cls, source: Source, name: str | None = None, **options: Any) -> Self:
        """A client of one server of a configuration: a file with `mcpServers`, or what it holds; `name` picks the server.

        `options` are those of the client and go before what the configuration says. Raises StartError.
        """
        from hinge.client.config import pick, read_config

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
        await self._link.open()
        await self._greet(await self._link.session())

    async def _greet(self, session: Session) -> None:
        """A handshake server is told the log level; the stateless era says it with every request."""
        wants = self._link.log_level
        if wants is not None and self.era == "2025" and self.server_capabilities.logging is not None:
            await session.request("logging/setLevel", {"level": wants}, total=self.limits.call_idle)

    async def close(self) -> None:
        """End the conversation, from any task, twice or during a call: waiting calls fail with ConnectionLost."""
        await self._link.close()

    async def _reopened(self, session: Session) -> None:
        with suppress(CallError):
            await self._greet(session)
        self._heard(Lost("the connection was opened again"))

    # ---------------------------------------------------------------- what was agreed

    @property
    def discovery(self) -> Discovery:
        """What the server turned out to be; save it to connect later without a round trip. Raises NotSent before that."""
        if self._link.found is None:
            raise NotSent("The client is not connected: use `async with Client(…)` or await `connect()`")
        return self._link.found

    @property
    def era(self) -> EraName:
        """The era in use."""
        return self.discovery.era

    @property
    def protocol_version(self) -> str:
        """The revision in use."""
        return self.discovery.revision

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is; display data."""
        return self.discovery.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server offers."""
        return self.discovery.capabilities

    def _described(self, target: Any) -> str:
        """The server in words: what it calls itself, which anybody may, and where it was found."""
        found = self._link.found
        name = found.server_info.name if found is not None and found.server_info is not None else "a server"
        return f"{shorten(name)} ({words_of(target)})"

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in its own words."""
        return self.discovery.instructions

    @property
    def mirrors(self) -> bool:
        """Whether tool arguments go into headers: the stateless era over HTTP (HDR-13)."""
        found = self._link.found
        return found is not None and found.era == "2026" and self._link.on_http

    # ---------------------------------------------------------------- asking

    async def request(  # type: ignore[override]  # the options of the base, by name
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
        headers: Mapping[str, str] | None = None,
        mirror: tuple[str, Mapping[str, Any]] | None = None,
    ) -> Any:
        """Any request; its result read into `result`, a type, or into a dict.

        `idle` and `total` are seconds without a word from the server, and at all; None for no limit. `safe` says that
        running it twice does no harm. Raises a CallError, whose `outcome` says whether the request may have run.
        """
        asked = dict(params or {})
        key = self._cache.key(method, asked, self.protocol_version) if self._caches(method, cache) else None
        kept = self._cache.get(key) if key is not None and cache == "use" else None
        if kept is None:
            ask = Ask(
                method=method,
                params=asked,
                idle=self.limits.call_idle if idle is UNSET else idle,
                total=self.limits.call_total if total is UNSET else total,
                on_progress=on_progress,
                safe=method in SAFE_METHODS if safe is None else safe,
                headers=self._headers(headers, mirror),
                mismatch=self._relist if mirror is not None else None,
            )
            kept = await self._requests.ask(ask)
            if key is not None:
                self._cache.put(key, kept)
        return _read(kept, method, result)

    def _caches(self, method: str, mode: CacheMode) -> bool:
        return mode != "bypass" and method in CACHEABLE and self._link.found is not None and self.era == "2026"

    def _headers(
        self, given: Mapping[str, str] | None, mirror: tuple[str, Mapping[str, Any]] | None
    ) -> Callable[[], dict[str, str]] | None:
        if given is None and mirror is None:
            return None

        def headers() -> dict[str, str]:
            mirrored = self._tools.headers(*mirror) if mirror is not None else {}
            return {**(given or {}), **mirrored}

        return headers

    async def _relist(self) -> None:
        await self.list_tools(cache="refresh")

    async def _pages(self, method: str, kind: type[PageT], cache: CacheMode) -> list[PageT]:
        """All pages of a list, bounded (PAGE-02…PAGE-04)."""
        pages: list[PageT] = []
        params: dict[str, Any] = {}
        seen: set[str] = set()
        while True:
            page: PageT = await self.request(method, params, result=kind, cache=cache)
            pages.append(page)
            cursor = page.next_cursor
            if cursor is None:
                return pages
            if cursor in seen or len(seen) >= self.limits.pages:
                raise InvalidResponse(f"{method}: the server's pages don't end")
            seen.add(cursor)
            params = {"cursor": cursor}

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification of your own. Raises NotSent or ChannelClosed when it can't leave."""
        session = await self._link.session()
        if self.era == "2026":  # without the claim a server of both eras takes it for the other one's (VER-05)
            given = dict(params or {})
            params = {**given, "_meta": {**msgspec.json.decode(self._link.meta), **given.get("_meta", {})}}
        await session.notify(method, UNSET if params is None else params)

    async def ping(self) -> None:
        """Ask for a sign of life: `ping`, or `server/discover` in the stateless era, which has no ping."""
        await self.request("ping" if self.era == "2025" else "server/discover", cache="bypass")

    async def set_log_level(self, level: LoggingLevel) -> None:
        """From which level on the server's log messages are wanted; `on_log` gets them."""
        self._link.set_log_level(level)
        await self._greet(await self._link.session())

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
    ) -> Listening:
        """Hear of changes: `async with client.listen(tools=True, resources=[uri]) as changes: async for change in changes`.

        `resources` are URIs to watch, or True for changes of the list. Kept up by itself: after a loss it is opened again,
        with a `Lost` in between.
        """
        wanted = filter_of(tools=tools, prompts=prompts, resource_list=resource_list, resources=resources)
        return Listening(self._link, self._listeners, wanted, self.limits)

    # ---------------------------------------------------------------- being asked and told

    async def _handle(self, session: Session, call: Call) -> Any:
        if call.id is None:
            await self._hear(call)
            return None
        if call.method == "ping":
            return {}
        return shape(await self._answers.answer(call.method, bytes(call.params)), call.revision)

    async def _hear(self, call: Call) -> None:
        text = bytes(call.params)
        try:
            params: Any = msgspec.json.decode(text) if text else {}
            if call.method == "notifications/message" and self._on_log is not None:
                await _maybe(self._on_log(msgspec.convert(params, LogParams)))
                return
        except msgspec.MsgspecError as exc:
            logger.warning("%s is dropped: %s", call.method, exc)
            return
        change = self._listeners.heard(call.method, params)
        if change is not None:
            self._heard(change)
        if self._on_notification is not None:
            await _maybe(self._on_notification(call.method, params))

    def _heard(self, change: Changed | Lost) -> None:
        self._cache.heard(change)
        if self._on_change is not None:
            self._on_change(change)


def _read(raw: Raw, method: str, kind: Any) -> Any:
    """A complete result as its type."""
    kind = dict[str, Any] if kind is None else kind
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise InvalidResponse(f"{method}: the result can't be read: {exc}") from exc


async def _maybe(value: Any) -> None:
    if isinstance(value, Awaitable):
        await value
