"""A peer whose messages a test writes: it plays a server or a client."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Literal, Protocol, Self, TypeAlias, cast

import msgspec

from hinge.channel import Channel, Serve, Transport
from hinge.errors import ChannelClosed, ErrorObject, HingeError, shorten
from hinge.protocol.calls import UNKNOWN_ORIGIN, Batch, Call, Inbound, Origin, Outgoing
from hinge.protocol.eras.base import EraName
from hinge.protocol.eras.detect import ERAS
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.eras.stateless import STATELESS
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.schema.base import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, SERVER_INFO
from hinge.server.server import Server
from hinge.testing.comparison import differences
from hinge.testing.wire_log import encode_message
from hinge.transports.memory import MemoryChannel
from hinge.transports.stream.blocking import open_descriptors
from hinge.transports.stream.line_channel import LineChannel

Message: TypeAlias = dict[str, Any]
#: What a peer waits for: a method, or members that the message must have.
Expected: TypeAlias = str | Mapping[str, Any]


def describe_expected(what: Expected | Callable[[Message], object] | None) -> str:
    """Describe what is expected."""
    if what is None:
        return "a message"
    if callable(what):
        return "a certain message"
    return what if isinstance(what, str) else f"a message with {format_message(what)}"


def find_mismatch(what: Expected | None, got: Message | bytes) -> str | None:
    """Describe how a message differs from the expected one; None if it is the expected one."""
    if isinstance(got, bytes):
        return f"got bytes that are not a message: {format_message(got)}"
    if what is None:
        return None
    if isinstance(what, str):
        return None if got.get("method") == what else f"got {format_message(got)}"
    different = list(differences(what, _part(got, what), path="it", opaque=False))
    if not different:
        return None
    path, wanted, found = different[0]
    return f"{path.removeprefix('it.')} is {found!r}, not {wanted!r}, in {format_message(got)}"


def _part(got: Any, what: Any) -> Any:
    """Return those members of a message that are expected."""
    if isinstance(what, Mapping) and isinstance(got, Mapping):
        return {name: _part(got[name], item) for name, item in what.items() if name in got}
    return got


def short_name(message: Message | bytes) -> str:
    """Describe a message in one or two words."""
    if isinstance(message, bytes):
        return format_message(message)
    if "method" in message:
        return str(message["method"])
    return f"a response to {message.get('id')!r}"


def format_message(message: Any) -> str:
    """Return a message as JSON, shortened."""
    if isinstance(message, bytes):
        return repr(message[:300])
    return shorten(msgspec.json.encode(message).decode(), 600)


#: The transport: memory, two pipes as between a process and its child, or a TCP socket on loopback.
Carrier: TypeAlias = Literal["memory", "stdio", "socket"]
#: Maximum bytes of a received line.
_LINE = 64 * 1024 * 1024


class ReceivedLines:
    """Received messages that were not taken yet; None stands for the end."""

    def __init__(self) -> None:
        self._items: deque[bytes | None] = deque()
        self._came: asyncio.Event | None = None

    def put(self, item: bytes | None) -> None:
        """Add a message, or None for the end."""
        self._items.append(item)
        if self._came is not None:
            self._came.set()

    async def take(self) -> bytes | None:
        """Wait for the next one."""
        while not self._items:
            self._came = asyncio.Event()
            await self._came.wait()
        return self._items.popleft()

    def __len__(self) -> int:
        return len(self._items)


class RawEnd(Protocol):
    """One end of a channel, below the session."""

    async def send(self, data: bytes, *, complete_size: bool) -> None:
        """Send bytes; after a `whole` message also the separator of the transport. Raises ChannelClosed."""

    async def close(self) -> None:
        """Close the channel in both directions; closing twice is harmless."""


# ---------------------------------------------------------------- memory


class MemoryEnd:
    """An end in memory: each `send` is one message."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def send(self, data: bytes, *, complete_size: bool) -> None:
        """See RawEnd."""
        await self._channel.send(Outgoing(data))

    async def close(self) -> None:
        """See RawEnd."""
        await self._channel.close()


class InboxSession:
    """A session that keeps received messages and sends nothing."""

    def __init__(self, inbox: ReceivedLines) -> None:
        self._inbox = inbox

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> None:
        """Keep a message."""
        self._inbox.put(encode_message(data))

    async def answer(self, call: Call | Batch, /) -> None:
        """Do nothing: there are no calls."""

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        """Do nothing: there are no calls."""

    def end_input(self, reason: str, /) -> None:
        """Do nothing: `close` follows."""

    def expire(self, reason: str, /) -> list[Outgoing]:
        """Do nothing: there are no calls."""
        return []

    def close(self, reason: str, /) -> bool:
        """Keep the end."""
        self._inbox.put(None)
        return False

    async def finish(self) -> None:
        """Do nothing."""


def memory_ends(limits: Limits, *, server: bool) -> tuple[MemoryChannel, MemoryChannel]:
    """Return two joined channels, ours and the peer's; `server` says whether the peer is a server."""
    ours, theirs = MemoryChannel(limits, server=not server), MemoryChannel(limits, server=server)
    ours.join(theirs)
    return ours, theirs


# ---------------------------------------------------------------- bytes


class ByteEnd(asyncio.Protocol):
    """An end on a byte stream: received bytes are split into lines, sent bytes are unchanged."""

    def __init__(self, inbox: ReceivedLines, on_made: Callable[[ByteEnd], None] | None = None) -> None:
        self._inbox = inbox
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._closed = asyncio.Event()
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        """Keep complete lines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._inbox.put(line)
        if len(self._rest) > _LINE and self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> bool:
        """The peer sends nothing more; this end still may."""
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Both directions are closed."""
        self._transport = None
        self._end()
        self._closed.set()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            if self._rest:
                self._inbox.put(self._rest)
            self._inbox.put(None)

    async def send(self, data: bytes, *, complete_size: bool) -> None:
        """See RawEnd."""
        if self._transport is None or self._transport.is_closing():
            raise ChannelClosed("the peer closed the connection")
        self._transport.write(data + b"\n" if complete_size else data)
        await asyncio.sleep(0)

    async def close(self) -> None:
        """See RawEnd."""
        if self._transport is not None:
            self._transport.close()
        await self._closed.wait()


def open_pipes(end: ByteEnd, limits: Limits, *, server: bool) -> LineChannel:
    """Connect a raw end to a stdio channel by two pipes; return the channel, which is not started."""
    there_in, our_out = os.pipe()
    our_in, there_out = os.pipe()
    channel = LineChannel("stdio", limits, server=server)
    open_descriptors(end, our_in, our_out)
    open_descriptors(channel, there_in, there_out)
    return channel


class LoopbackListener:
    """Accepts TCP connections on loopback with raw ends."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @classmethod
    async def start(cls, make: Callable[[], ByteEnd]) -> LoopbackListener:
        """Listen on a free port."""
        loop = asyncio.get_running_loop()
        return cls(await loop.create_server(make, "127.0.0.1", 0))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def stop(self) -> None:
        """Accept no more connections."""
        self._server.close()


async def close_quietly(end: RawEnd | Channel) -> None:
    """Close, and ignore errors."""
    with suppress(HingeError, OSError):
        await end.close()


#: The name and version of a scripted peer.
INFO = {"name": "scripted", "version": "1"}


def initialize_result(
    revision: str, capabilities: Mapping[str, Any] | None, info: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a result of `initialize`."""
    return {
        "protocolVersion": revision,
        "capabilities": {"tools": {}} if capabilities is None else dict(capabilities),
        "serverInfo": dict(info or INFO),
    }


def discover_result(
    revision: str, capabilities: Mapping[str, Any] | None, info: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a result of `server/discover`."""
    return {
        "resultType": "complete",
        "supportedVersions": [revision],
        "capabilities": {"tools": {}} if capabilities is None else dict(capabilities),
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_INFO: dict(info or INFO)},
    }


#: The requests by which a client may open a session with a server of these eras.
_OPENINGS = {
    "2025": frozenset({"initialize"}),
    "2026": frozenset({"server/discover"}),
    "both": frozenset({"initialize", "server/discover"}),
}


class ScriptedPeer(Transport):
    """A peer whose messages the test writes, also invalid ones. It does nothing by itself except `greet`.

    As a server, it is a target for `Client`; each connection of a client starts again. As a client of a server, it is made by
    `ScriptedPeer.to`. Use it with `async with`; at the end of the block, an error of a script is raised.

    Args:
        script: An async function that is called with the peer for each connection of a client.
        over: The transport. "memory": each `send` is a message; "stdio": two pipes as between a process and its child;
            "socket": TCP on loopback, see `url`.
        patience: Seconds to wait for an expected message. Then AssertionError shows what was expected and what came.
        limits: The limits of the channels.

    Attributes:
        received: All received messages of all connections: dicts, or bytes if a line is not a JSON object.
        connections: How often a client connected.

    Example:
        >>> async with ScriptedPeer() as peer:
        ...     async with Client(peer, era="2025") as client:
        ...         ...
    """

    def __init__(
        self,
        script: Callable[[ScriptedPeer], Awaitable[object]] | None = None,
        *,
        over: Carrier = "memory",
        patience: float = 5.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.limits = limits
        self.patience = patience
        self.received: list[Message | bytes] = []
        self.connections = 0
        self._script = script
        self._over: Carrier = over
        self._server: Server[Any] | None = None
        self._inbox = ReceivedLines()
        self._end: RawEnd | None = None
        self._ends: list[RawEnd | Channel] = []
        self._made = asyncio.Event()
        self._listening: LoopbackListener | None = None
        self._scripts: list[asyncio.Task[object]] = []
        self._resources = AsyncExitStack()
        self._next_id = 0

    @classmethod
    def to(cls, server: Server[Any], *, over: Carrier = "memory", patience: float = 5.0) -> ScriptedPeer:
        """Return a client of a server, which is connected by `async with`.

        Args:
            server: The server.
            over: The transport: "memory", "stdio" or "socket".
            patience: Seconds to wait for an expected message.

        Returns:
            The peer.
        """
        peer = cls(over=over, patience=patience, limits=server.limits)
        peer._server = server
        return peer

    @classmethod
    def on(cls, end: RawEnd, inbox: ReceivedLines, *, patience: float = 5.0) -> ScriptedPeer:
        """Return a peer on an existing end. The caller closes the end.

        Args:
            end: The end to send on.
            inbox: The messages that the end receives.
            patience: Seconds to wait for an expected message.

        Returns:
            The peer.
        """
        peer = cls(patience=patience)
        peer._inbox, peer._end = inbox, end
        peer._made.set()
        return peer

    # ---------------------------------------------------------------- connections

    async def __aenter__(self) -> Self:
        if self._server is not None:
            await self._resources.enter_async_context(self._server.running())
            await self._connect(self._server)
        elif self._over == "socket":
            self._listening = await LoopbackListener.start(lambda: ByteEnd(self._connected(), self._accept))
        return self

    async def __aexit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        scripts, self._scripts = self._scripts, []
        if scripts:
            await asyncio.wait(scripts, timeout=0 if exc is not None else self.patience)
        for script in scripts:
            script.cancel()
        await asyncio.gather(*scripts, return_exceptions=True)
        if self._listening is not None:
            self._listening.stop()
        for end in self._ends:
            await close_quietly(end)
        await self._resources.aclose()
        for script in scripts:
            failure = None if script.cancelled() else script.exception()
            if failure is not None and failure is not exc:
                raise failure

    @property
    def url(self) -> str:
        """The URL for clients in other processes, for `over="socket"`."""
        assert self._listening is not None, 'only a server with over="socket" has a URL, within its block'
        return "tcp://{}:{}".format(*self._listening.address)

    async def open(self, serve: Serve, /) -> Channel:
        """Open a channel to this peer. `Client` calls this.

        Args:
            serve: Starts the session of the client.

        Returns:
            The channel.
        """
        if self._listening is not None:
            from hinge.transports.stream.sockets import TcpSocket

            return await TcpSocket(*self._listening.address, limits=self.limits).open(serve)
        assert self._over != "socket", "use the peer with `async with`"
        inbox = self._connected()
        if self._over == "memory":
            ours, theirs = memory_ends(self.limits, server=False)
            self._ends += [ours]
            ours.begin(InboxSession(inbox))
            self._accept(MemoryEnd(ours))
            theirs.begin(serve(theirs))
            return theirs
        end = ByteEnd(inbox)
        channel = open_pipes(end, self.limits, server=False)
        self._ends += [end, channel]
        self._accept(end)
        channel.begin(serve(channel))
        return channel

    def _connected(self) -> ReceivedLines:
        """Start a connection; unexpected messages of the one before are dropped."""
        self._inbox = ReceivedLines()
        self.connections += 1
        return self._inbox

    def _accept(self, end: RawEnd) -> None:
        self._end = end
        if end not in self._ends:
            self._ends.append(end)
        self._made.set()
        if self._script is not None:
            self._scripts.append(asyncio.ensure_future(_run(self._script, self)))

    async def _connect(self, server: Server[Any]) -> None:
        inbox = self._connected()
        if self._over == "memory":
            ours, theirs = memory_ends(self.limits, server=True)
            theirs.begin(server.serve(theirs))
            ours.begin(InboxSession(inbox))
            self._ends.append(ours)
            self._accept(MemoryEnd(ours))
        elif self._over == "stdio":
            end = ByteEnd(inbox)
            channel = open_pipes(end, self.limits, server=True)
            conversation = server.serve(channel)
            channel.begin(conversation)
            self._ends += [end, channel]
            self._resources.push_async_callback(conversation.finish)
            self._accept(end)
        else:
            from hinge.transports.stream.sockets import SocketServer

            serving = SocketServer(server.serve, port=0, limits=self.limits)
            await serving.start()
            self._resources.push_async_callback(serving.stop)
            loop = asyncio.get_running_loop()
            await loop.create_connection(
                lambda: ByteEnd(inbox, self._accept), *cast("tuple[str, int]", serving.address)
            )

    async def connected(self) -> None:
        """Wait until a client is connected.

        Raises:
            AssertionError: None connected within `patience` seconds.
        """
        async with self._time_limit("a client to connect"):
            await self._made.wait()

    # ---------------------------------------------------------------- sending

    async def send(self, message: Mapping[str, Any] | bytes) -> None:
        """Send a message or bytes.

        Args:
            message: A dict, in which `jsonrpc` may be missing; or bytes, which are sent unchanged: pipes and sockets need a
                line end.

        Raises:
            AssertionError: The connection is closed, or no client connected in time.
        """
        await self.connected()
        assert self._end is not None
        try:
            if isinstance(message, bytes):
                await self._end.send(message, complete_size=False)
            else:
                await self._end.send(msgspec.json.encode({"jsonrpc": "2.0", **message}), complete_size=True)
        except ChannelClosed as exc:
            raise AssertionError(f"The peer could not send {format_message(message)}: {exc}") from exc

    async def answer(
        self, request: Mapping[str, Any], result: Any = None, *, error: Mapping[str, Any] | ErrorObject | None = None
    ) -> None:
        """Respond to a request.

        Args:
            request: The received request.
            result: The result; an empty one by default.
            error: An error in place of a result: `{"code": …, "message": …}`.

        Raises:
            AssertionError: The connection is closed.
        """
        body = {"result": {} if result is None else result} if error is None else {"error": error}
        await self.send({"id": request["id"], **body})

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification.

        Args:
            method: The method.
            params: The params; none by default.

        Raises:
            AssertionError: The connection is closed.
        """
        await self.send({"method": method} if params is None else {"method": method, "params": params})

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, era: EraName = "2025", **capabilities: Any
    ) -> Message:
        """Send a request with a new id, without waiting for the response.

        Args:
            method: The method.
            params: The params; none by default.
            era: With "2026", the `_meta` that the stateless era requires is added.
            **capabilities: The capabilities of the client in that `_meta`: `elicitation={"form": {}}`.

        Returns:
            The request, for `expect_answer`.

        Raises:
            AssertionError: The connection is closed.
        """
        self._next_id += 1
        message: Message = {"jsonrpc": "2.0", "id": self._next_id, "method": method}
        stateless = {PROTOCOL_VERSION: STATELESS.latest, CLIENT_CAPABILITIES: capabilities, CLIENT_INFO: INFO}
        by_era: dict[EraName, dict[str, Any]] = {"2025": {}, "2026": stateless}
        meta = by_era[era]
        if meta:
            given = dict(params or {})
            message["params"] = {**given, "_meta": {**meta, **given.get("_meta", {})}}
        elif params is not None:
            message["params"] = dict(params)
        await self.send(message)
        return message

    async def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, era: EraName = "2025", **capabilities: Any
    ) -> Message:
        """Send a request and wait for its response; other messages before it are skipped.

        Args:
            method: The method.
            params: The params; none by default.
            era: With "2026", the `_meta` that the stateless era requires is added.
            **capabilities: The capabilities of the client in that `_meta`.

        Returns:
            The response, with `result` or `error`.

        Raises:
            AssertionError: It did not come in time, or the connection is closed.
        """
        message = await self.request(method, params, era=era, **capabilities)
        return await self.expect_answer(message)

    async def close(self) -> None:
        """Close this connection."""
        await self.connected()
        assert self._end is not None
        await close_quietly(self._end)

    # ---------------------------------------------------------------- receiving

    async def expect(self, what: Expected | None = None) -> Message:
        """Wait for the next message, which must be the expected one.

        Args:
            what: A method, or a dict of members that the message must have; None for any message.

        Returns:
            The message.

        Raises:
            AssertionError: Another message came, or none in time.
        """
        wanted = describe_expected(what)
        got = await self._next(wanted)
        problem = find_mismatch(what, got)
        if problem is not None:
            raise AssertionError(f"The peer expected {wanted}, but {problem}{self._before()}")
        return cast(Message, got)

    async def expect_answer(self, request: Mapping[str, Any]) -> Message:
        """Wait for the response to a request of this peer; other messages are skipped.

        Args:
            request: What `request` returned.

        Returns:
            The response.

        Raises:
            AssertionError: It did not come in time.
        """
        return await self.until(lambda message: "method" not in message and message.get("id") == request["id"], request)

    async def until(
        self, what: Expected | Callable[[Message], object], about: Mapping[str, Any] | None = None
    ) -> Message:
        """Wait for a message; others before it are skipped. They are in `received`.

        Args:
            what: A method, a dict of members that the message must have, or a function that returns whether it is the one.
            about: A request, if the message is its response: it is shown in the error.

        Returns:
            The message.

        Raises:
            AssertionError: It did not come in time.
        """
        wanted = f"a response to {format_message(about)}" if about is not None else describe_expected(what)
        while True:
            got = await self._next(wanted)
            if isinstance(got, bytes):
                continue
            if what(got) if callable(what) else find_mismatch(what, got) is None:
                return got

    async def expect_nothing(self, seconds: float = 0.1) -> None:
        """Require that nothing comes, not even the end of the connection.

        Args:
            seconds: How long to wait.

        Raises:
            AssertionError: Something came.
        """
        await self.connected()
        try:
            async with asyncio.timeout(seconds):
                data = await self._inbox.take()
        except TimeoutError:
            return
        came = "the connection was closed" if data is None else f"the peer got {format_message(self._keep(data))}"
        raise AssertionError(f"The peer expected nothing for {seconds:g} seconds, but {came}")

    async def expect_end(self) -> None:
        """Wait until the other side closes the connection, without another message.

        Raises:
            AssertionError: A message came, or the connection stays open.
        """
        await self.connected()
        async with self._time_limit("the end of the connection"):
            data = await self._inbox.take()
        if data is not None:
            raise AssertionError(
                f"The peer expected the end of the connection, but got {format_message(self._keep(data))}"
            )

    async def _next(self, wanted: str) -> Message | bytes:
        await self.connected()
        async with self._time_limit(wanted):
            data = await self._inbox.take()
        if data is None:
            self._inbox.put(None)  # for the next call
            raise AssertionError(f"The peer expected {wanted}, but the connection was closed{self._before()}")
        return self._keep(data)

    def _keep(self, data: bytes) -> Message | bytes:
        try:
            found = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found = None
        got: Message | bytes = found if isinstance(found, dict) else data
        self.received.append(got)
        return got

    def _before(self) -> str:
        """Describe the messages before."""
        earlier = [short_name(message) for message in self.received[-11:-1]]
        return f". Before that it got: {', '.join(earlier)}" if earlier else ""

    @asynccontextmanager
    async def _time_limit(self, wanted: str) -> AsyncIterator[None]:
        """Fail with a description after `patience` seconds."""
        try:
            async with asyncio.timeout(self.patience):
                yield
        except TimeoutError:
            got = ", ".join(map(short_name, self.received[-10:])) or "nothing"
            raise AssertionError(
                f"The peer expected {wanted}, but nothing came within {self.patience:g} seconds. It got: {got}"
            ) from None

    # ---------------------------------------------------------------- opening a session

    async def greet(
        self,
        era: EraName | Literal["both"] = "both",
        *,
        capabilities: Mapping[str, Any] | None = None,
        info: Mapping[str, Any] | None = None,
        revision: str | None = None,
    ) -> EraName:
        """Open the session: a server answers `server/discover` and `initialize`, a client does the handshake.

        Args:
            era: The eras that a server supports. For a client, "2026" sends nothing: that era has no handshake.
            capabilities: The capabilities of this peer; `{"tools": {}}` by default for a server, none for a client.
            info: Its name and version: `{"name": …, "version": …}`.
            revision: The protocol revision; by default the one that the client requests, or the latest of the era.

        Returns:
            The era of the session.

        Raises:
            AssertionError: Another message came, or the server refused the handshake.
        """
        if self._server is not None:
            return await self._initialize("2025" if era == "both" else era, capabilities, info, revision)
        openings = _OPENINGS[era]
        while True:
            message = await self.expect()
            method = message.get("method") if message.get("method") in openings else None
            if method == "initialize":
                asked = message["params"]["protocolVersion"]
                await self.answer(message, initialize_result(revision or asked, capabilities, info))
                await self.expect("notifications/initialized")
                return "2025"
            if method == "server/discover":
                await self.answer(message, discover_result(revision or STATELESS.latest, capabilities, info))
                return "2026"
            if message.get("method") not in ("server/discover", "initialize"):
                raise AssertionError(
                    f"The peer expected initialize or server/discover, but got {format_message(message)}{self._before()}"
                )
            await self.answer(message, error={"code": -32601, "message": "Method not found"})

    async def _initialize(
        self,
        era: EraName,
        capabilities: Mapping[str, Any] | None,
        info: Mapping[str, Any] | None,
        revision: str | None,
    ) -> EraName:
        if ERAS[era].negotiation_method:
            params = {
                "protocolVersion": revision or HANDSHAKE.latest,
                "capabilities": dict(capabilities or {}),
                "clientInfo": dict(info or INFO),
            }
            reply = await self.call("initialize", params)
            if "error" in reply:
                raise AssertionError(f"The server refused the handshake: {format_message(reply)}")
            await self.notify("notifications/initialized")
        return era


async def _run(script: Callable[[ScriptedPeer], Awaitable[object]], peer: ScriptedPeer) -> None:
    await script(peer)
