"""The connection to the server in one era: an observed client, and the lists of what the server offers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, TypeAlias

import msgspec

from gemel.channel import Channel, ChannelKind, Serve, Transport
from gemel.client.client import Client
from gemel.client.extensions import declared_extension
from gemel.client.lists import list_items
from gemel.client.subscriptions import Subscription, listen_to
from gemel.client.targets import transport_for
from gemel.dev.commands import Capability
from gemel.dev.journal import EventJournal
from gemel.dev.questions import PageCallbacks, Questions, note_request
from gemel.dev.target import DevTarget
from gemel.dev.wire import SENT, MessageJournal, ObservedWire, Sent
from gemel.errors import CallError, GemelError, MethodNotFound, PeerError
from gemel.http1.client.wire import Wire
from gemel.protocol.changes import Changed, ChangesLost
from gemel.protocol.deviations import Deviation
from gemel.protocol.eras.base import EraName, EraOption
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.http.mirror import collect_param_headers, param_headers, request_headers
from gemel.protocol.limits import Limits
from gemel.protocol.records import Outgoing
from gemel.schema.base import NO_VERSION, Implementation
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.methods import LISTS, METHODS, ListName, lists_of
from gemel.schema.notifications import LoggingLevel, LogParams
from gemel.telemetry import SHOWS_SPANS
from gemel.testing.wire_log import ForwardingChannel, ObservedTransport

State: TypeAlias = Literal["off", "connecting", "ready", "failed"]

#: A server may send many notifications at once, and all of them are shown.
_LIMITS = Limits(calls=20_000)
#: Items of one event.
PART = 200


class EraConnection:
    """The server in one era.

    Args:
        era: The era.
        target: The server.
        journal: Where everything is shown.
        questions: Who answers the server.
        spawn: Runs a coroutine as a task that ends with the inspector.
    """

    def __init__(
        self,
        era: EraName,
        target: DevTarget,
        journal: EventJournal,
        questions: Questions,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.era: EraName = era
        self.client: Client | None = None
        self.state: State = "off"
        self.without: list[Capability] = []
        self.log_level: LoggingLevel = "info"
        #: The items of each section, as they came.
        self.items: dict[ListName, list[dict[str, Any]]] = {}
        #: The same, as the client has read them.
        self.listed: dict[ListName, Sequence[Any]] = {}
        #: The URL of the server; None for a program.
        self.url: str | None = None
        #: Whether the server is a program that was told to send its spans here.
        self.sends_spans = False
        #: Why there is no connection.
        self.error: str | None = None
        self._target = target
        self._journal = journal
        self._questions = questions
        self._spawn = spawn
        self._messages = MessageJournal(journal, era, self._closed)
        self._transport: _Noted | None = None
        self._listening: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._connecting: asyncio.Task[None] | None = None
        self._stderr_line = ""
        self._stale: set[ListName] = set()
        self._listing: asyncio.Task[None] | None = None
        self._parts: dict[ListName, int] = {}
        #: Awaited when the lists are complete.
        self.on_listed: Callable[[EraConnection], Awaitable[None]] = _nothing
        #: Awaited before the connection is closed.
        self.on_close: Callable[[EraConnection], Awaitable[None]] = _nothing
        #: Called when the state has changed.
        self.on_state: Callable[[], None] = lambda: None
        self._show("off")

    @property
    def ready(self) -> Client:
        """The client. Raises ValueError if it is not connected."""
        if self.client is None:
            raise ValueError(f"There is no connection in the era {self.era}: connect first")
        return self.client

    # ---------------------------------------------------------------- life

    async def connect(self) -> None:
        """Connect, or connect again. A failure is shown."""
        self._give_up()
        async with self._changing:
            await self._close()
            self._show("connecting")
            self._stderr_line = ""
            try:
                client = self._make_client()
                if not await self._attempt(client):
                    self._show("off")
                    return
            except GemelError as exc:
                self._show("failed", error=self._reason(exc))
                return
            except OSError as exc:
                self._show("failed", error=exc.strerror or str(exc))
                return
            self.client = client
            self._show("ready")
        self.refresh()

    async def _attempt(self, client: Client) -> bool:
        """Connect a client. Returns False if it was given up."""
        attempt = self._connecting = asyncio.create_task(client.connect())
        try:
            await asyncio.wait([attempt])
        finally:
            attempt.cancel()
            await asyncio.wait([attempt])
            self._connecting = None
        if attempt.cancelled():
            return False
        attempt.result()
        return True

    def _give_up(self) -> None:
        """End an attempt to connect."""
        if self._connecting is not None:
            self._connecting.cancel()

    async def settled(self) -> None:
        """Wait until nobody connects or disconnects."""
        async with self._changing:
            pass

    async def disconnect(self) -> None:
        """End the connection."""
        self._give_up()
        async with self._changing:
            await self._close()
            self._show("off")

    async def _close(self) -> None:
        client, self.client = self.client, None
        await self.unlisten()
        if self._listing is not None:
            self._listing.cancel()
            self._listing = None
        if client is not None:
            self.state = "off"
            await self.on_close(self)
            await client.close()

    def _make_client(self) -> Client:
        target, options = self._target.open(self._show_stderr)
        over_http = isinstance(target, str) and target.startswith(("http://", "https://"))
        self._messages.over_http = over_http
        self.url = target if over_http else None
        self.sends_spans = SHOWS_SPANS in (options.get("env") or {})
        if over_http:
            make = _wire_maker(options)
            options["wire"] = lambda: ObservedWire(make(), self._messages)
        self._transport = _Noted(transport_for(target, limits=_LIMITS, **options))
        transport: Transport = ObservedTransport(self._transport, self._messages)
        if "progress" in self.without:
            transport = _WithoutProgress(transport)
        callbacks = PageCallbacks(
            self._questions,
            self._messages,
            self.era,
            self.without,
            on_log=self._logged,
            on_change=self._changed,
        )
        client = Client(transport, era=self.era, log_level=self.log_level, limits=_LIMITS, middleware=[note_request])
        client.use_callbacks(callbacks)
        if "tasks" not in self.without:
            from gemel.extensions.tasks.client import TasksClient

            client.add_extension(TasksClient())
        from gemel.extensions.apps import MIME_TYPE, Apps

        client.add_extension(declared_extension(Apps.id, {"mimeTypes": [MIME_TYPE]}))
        return client

    def find_url(self) -> str | None:
        """Return the URL of the server, connected or not; None for a program."""
        target, _ = self._target.open(self._show_stderr)
        return target if isinstance(target, str) and target.startswith(("http://", "https://")) else None

    @property
    def kinds(self) -> dict[int, ChannelKind]:
        """The kinds of the channels, by number."""
        return self._messages.kinds

    @property
    def pid(self) -> int | None:
        """The process of the server, if it is a child of ours."""
        process = getattr(None if self._transport is None else self._transport.channel, "process", None)
        return None if process is None or process.returncode is not None else process.pid

    def _closed(self, reason: str) -> None:
        """The server has closed the connection."""
        if self.state == "ready":
            self._show("failed", error=f"The connection was lost: {reason}")

    # ---------------------------------------------------------------- what the server sends

    def _reason(self, exc: GemelError) -> str:
        """Why a server can't be reached: `gemel run` writes it as its last line."""
        if self._target.is_own and "exited with code" in str(exc) and self._stderr_line.startswith("gemel: "):
            return self._stderr_line.removeprefix("gemel: ")
        return str(exc)

    def _show_stderr(self, line: str) -> None:
        self._stderr_line = line
        self._journal.add("stderr", {"era": self.era, "text": line[:10_000]})

    def _logged(self, params: LogParams) -> None:
        fields: dict[str, Any] = {"era": self.era, "level": params.level, "data": params.data}
        logger = msgspec.to_builtins(params).get("logger")
        self._journal.add("log", fields if logger is None else {**fields, "logger": logger})

    def _changed(self, change: Changed | ChangesLost) -> None:
        if isinstance(change, ChangesLost):
            if self.client is not None and self.client.connected:
                self._show("ready")
            self.refresh()
            return
        uri = {} if change.uri is None else {"uri": change.uri}
        self._journal.add("change", {"era": self.era, "what": change.kind, **uri})
        sections: list[ListName] = [of.name for of in lists_of(change.kind)]
        if sections:
            self.refresh(*sections)

    async def listen(self, changes: Sequence[str], uris: Sequence[str]) -> None:
        """Subscribe to changes, in place of an earlier subscription."""
        await self.unlisten()
        subscription = self.ready.listen(resources=uris, **listen_to(changes))
        self._listening = self._spawn(self._listen(subscription, list(uris)))

    async def unlisten(self) -> None:
        """End the subscription."""
        listening, self._listening = self._listening, None
        if listening is not None and not listening.done():
            listening.cancel()
            await asyncio.wait([listening])

    async def _listen(self, subscription: Subscription, uris: list[str]) -> None:
        """Keep a subscription open. Its changes come to `_changed`."""
        more: dict[str, Any] = {}
        try:
            async with subscription:
                self._show_listening(on=True, uris=uris)
                async for _ in subscription:
                    pass
        except GemelError as exc:
            more = {"error": str(exc)}
        finally:
            self._show_listening(on=False, uris=[], **more)

    def _show_listening(self, *, on: bool, uris: list[str], **more: object) -> None:
        fields = {"era": self.era, "on": on, "uris": uris, **more}
        self._journal.add("listening", fields, key=("listening", self.era))

    # ---------------------------------------------------------------- lists

    def refresh(self, *sections: ListName) -> None:
        """List sections again, all by default. One list runs at a time."""
        self._stale |= set(sections or LISTS)
        if self.client is not None and (self._listing is None or self._listing.done()):
            self._listing = self._spawn(self._list(self.client))

    async def _list(self, client: Client) -> None:
        while self._stale:
            sections: list[ListName] = [section for section in LISTS if section in self._stale]
            self._stale.clear()
            for section in sections:
                error = await self._list_section(client, section)
                self._show_offers(section, error)
            await self.on_listed(self)

    async def _list_section(self, client: Client, section: ListName) -> str | None:
        """List a section. Returns why that failed."""
        of = LISTS[section]
        if getattr(client.server_capabilities, of.feature) is None:
            self.items[section] = []
            self.listed[section] = []
            return None
        sent = Sent(keep=True)
        token = SENT.set(sent)
        error: str | None = None
        self.listed[section] = []
        try:
            self.listed[section] = await list_items(client, of, cache="bypass")
        except PeerError as exc:
            if exc.code != MethodNotFound.code or section == "tools":
                error = str(exc)
        except CallError as exc:
            error = str(exc)
        finally:
            SENT.reset(token)
        self.items[section] = [item for response in sent.responses for item in _items(response, of.member)]
        return error

    def _show_offers(self, section: ListName, error: str | None) -> None:
        items = [{**item, "weight": weight(item)} for item in self.items[section]]
        parts = [items[start : start + PART] for start in range(0, len(items), PART)] or [[]]
        for number in range(len(parts), self._parts.get(section, 0)):
            self._journal.forget(("offers", self.era, section, number))
        self._parts[section] = len(parts)
        for number, part in enumerate(parts):
            fields: dict[str, Any] = {"era": self.era, "section": section, "items": part}
            if len(parts) > 1:
                fields |= {"part": number, "parts": len(parts)}
            if error is not None:
                fields["error"] = error
            self._journal.add("offers", fields, key=("offers", self.era, section, number))

    def describe_request(self, method: str, params: Mapping[str, Any]) -> tuple[dict[str, str], bytes]:
        """Return the headers and the body of a request as it would be sent over HTTP to a stateless server."""
        client = self.ready
        if ERAS[client.era].negotiation_method:
            raise ValueError(
                "A request of the handshake era needs a session, which curl doesn't have: use the other era"
            )
        info = Implementation(name="curl", version="0")
        meta = STATELESS.request_meta(client.protocol_version, info, ClientCapabilities(), None)
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        row = METHODS.get(method)
        name = params.get(row.name_field) if row is not None and row.name_field is not None else None
        headers = dict(request_headers(method, name if isinstance(name, str) else None, client.protocol_version))
        if method == "tools/call":
            headers |= self._mirrored(name, params.get("arguments"))
        standard = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return {**standard, **headers}, msgspec.json.encode(body)

    def _mirrored(self, name: object, arguments: object) -> dict[str, str]:
        """The headers that repeat arguments of a tool."""
        schemas = [tool.get("inputSchema") for tool in self.items.get("tools", ()) if tool.get("name") == name]
        try:
            return param_headers(collect_param_headers(schemas[0]), arguments) if schemas else {}
        except ValueError:
            return {}

    # ---------------------------------------------------------------- state

    def _show(self, state: State, **more: Any) -> None:
        self.state = state
        self.error = more.get("error")
        fields: dict[str, Any] = {"era": self.era, "state": state, "without": self.without, **more}
        if self._messages.over_http:
            fields["transport"] = "http"
        if state == "ready" and self.client is not None:
            discovery = self.client.discovery
            server = discovery.server_info
            fields |= {
                "revision": discovery.revision,
                "transport": fields.get("transport", self._messages.kind),
                "capabilities": discovery.capabilities,
            }
            if server is not None:
                is_without = server.version == NO_VERSION
                fields["server"] = msgspec.structs.replace(server, version="") if is_without else server
            if discovery.instructions is not None:
                fields["instructions"] = discovery.instructions
        self._journal.add("connection", fields, key=("connection", self.era))
        self.on_state()

    @property
    def described(self) -> msgspec.Raw:
        """The last event about the connection."""
        return msgspec.Raw(self._journal.state(("connection", self.era)) or b"null")


async def _nothing(connection: EraConnection) -> None:
    pass


class _Wrapped(Transport):
    """A transport around another one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def open(self, serve: Serve, /) -> Channel:
        return await self._transport.open(serve)

    @property
    def era(self) -> EraOption:
        return self._transport.era

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._transport.running()

    def older(self) -> Transport | None:
        return self._transport.older()

    @property
    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        return self._transport.extensions

    @property
    def deviations(self) -> Iterable[Deviation]:
        return self._transport.deviations

    async def credentials(self) -> str:
        return await self._transport.credentials()


class _Noted(_Wrapped):
    """A transport whose channel is noted."""

    channel: Channel | None = None

    async def open(self, serve: Serve, /) -> Channel:
        self.channel = await super().open(serve)
        return self.channel


class _WithoutProgress(_Wrapped):
    """A transport that sends no progress tokens, as some clients."""

    async def open(self, serve: Serve, /) -> Channel:
        return _TokenRemover(await super().open(lambda channel: serve(_TokenRemover(channel))))

    def older(self) -> Transport | None:
        older = super().older()
        return None if older is None else _WithoutProgress(older)


class _TokenRemover(ForwardingChannel):
    async def send(self, message: Outgoing, /) -> None:
        """Send a message without its progress token."""
        if message.pending is not None:
            content = msgspec.json.decode(message.data)
            meta = content.get("params", {}).get("_meta", {})
            if meta.pop("progressToken", None) is not None:
                if not meta:
                    del content["params"]["_meta"]
                message = msgspec.structs.replace(message, data=msgspec.json.encode(content))
        await super().send(message)


def _wire_maker(options: dict[str, Any]) -> Callable[[], Wire]:
    """Take the option `wire` and what belongs to it; return what makes the HTTP client."""
    chosen: Any = options.pop("wire", None)
    uds = options.pop("uds", None)
    tls, proxy = options.get("tls", True), options.get("proxy")
    if chosen == "httpx2":
        from gemel.http1.client.network import TlsContext
        from gemel.transports.http.client.httpx_wire import HttpxWire

        return lambda: HttpxWire(tls=TlsContext(tls), proxy=proxy, connect=_LIMITS.connect)
    if chosen is not None:
        maker: Callable[[], Wire] = chosen
        return maker
    from gemel.http1.client.pool import SocketWire

    return lambda: SocketWire(tls=tls, proxy=proxy, uds=uds, connect=_LIMITS.connect)


def _items(response: bytes, member: str) -> Iterator[dict[str, Any]]:
    """The items of one response to a list request."""
    try:
        decoded = msgspec.json.decode(response)
    except (msgspec.MsgspecError, RecursionError):
        return
    result = decoded.get("result") if isinstance(decoded, dict) else None
    items = result.get(member) if isinstance(result, dict) else None
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield item


def weight(item: dict[str, Any]) -> int:
    """Estimate how many tokens the description of an item costs in the context of a model: a quarter of its characters."""
    shown = {name: item[name] for name in ("name", "description", "inputSchema") if name in item}
    return round(len(msgspec.json.encode(shown).decode()) / 4)
