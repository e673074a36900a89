"""A peer whose messages a test writes: it plays a server or a client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Literal, Protocol, Self, TypeAlias, cast

import msgspec

from gemel.channel import Channel, Serve, Transport
from gemel.errors import ChannelClosed, ErrorObject, GemelError, shorten
from gemel.protocol.eras.base import EraName
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.protocol.records import UNKNOWN_ORIGIN, Batch, Call, Inbound, Origin, Outgoing
from gemel.schema.base import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, SERVER_INFO
from gemel.server.server import Server
from gemel.testing.comparison import differences
from gemel.testing.wire_log import encode_message
from gemel.transports.memory import MemoryChannel
from gemel.transports.stream.blocking import open_descriptors
from gemel.transports.stream.line_channel import LineChannel
from gemel.transports.stream.sockets import SocketServer, TcpSocket

Message: TypeAlias = dict[str, Any]
#: What a peer waits for: a method, or members that the message must have; None for any message.
Expected: TypeAlias = str | Mapping[str, Any] | None
#: The transport: memory, two pipes as between a process and its child, or a TCP socket on loopback.
Carrier: TypeAlias = Literal["memory", "stdio", "socket"]
#: Received messages that were not taken yet; None stands for the end.
Inbox: TypeAlias = "asyncio.Queue[bytes | None]"

#: The name and version of a scripted peer.
INFO = {"name": "scripted", "version": "1"}
#: The requests by which a client may open a session with a server of these eras.
_OPENINGS = {
    "2025": frozenset({"initialize"}),
    "2026": frozenset({"server/discover"}),
    "both": frozenset({"initialize", "server/discover"}),
}


# ---------------------------------------------------------------- words


def describe_expected(expected: Expected) -> str:
    """Describe what is expected."""
    if expected is None:
        return "a message"
    return expected if isinstance(expected, str) else f"a message with {format_message(expected)}"


def find_mismatch(expected: Expected, got: Message | bytes) -> str | None:
    """Describe how a message differs from the expected one; None if it is the expected one."""
    if isinstance(got, bytes):
        return f"got bytes that are not a message: {format_message(got)}"
    if expected is None:
        return None
    if isinstance(expected, str):
        return None if got.get("method") == expected else f"got {format_message(got)}"
    for path, value, actual in differences(expected, _same_members(got, expected), path="it", opaque=False):
        return f"{path.removeprefix('it.')} is {actual!r}, not {value!r}, in {format_message(got)}"
    return None


def _same_members(got: object, expected: object) -> Any:
    """Return those members of a message that are expected."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return {name: _same_members(got[name], item) for name, item in expected.items() if name in got}
    return got


def short_name(message: Message | bytes) -> str:
    """Describe a message in one or two words."""
    if isinstance(message, bytes):
        return format_message(message)
    return str(message["method"]) if "method" in message else f"a response to {message.get('id')!r}"


def format_message(message: object) -> str:
    """Return a message as JSON, shortened."""
    return repr(message[:300]) if isinstance(message, bytes) else shorten(msgspec.json.encode(message).decode(), 600)


# ---------------------------------------------------------------- ends of a connection


class RawEnd(Protocol):
    """One end of a channel, below the session."""

    async def send(self, data: bytes, *, whole: bool) -> None:
        """Send bytes; after a whole message also the line end, if the transport has lines. Raises ChannelClosed."""

    async def close(self) -> None:
        """Close the channel in both directions; closing twice is harmless."""


class InboxSession:
    """A session that keeps received messages and sends nothing."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> None:
        """Keep a message."""
        self._inbox.put_nowait(encode_message(data))

    async def answer(self, call: Call | Batch, /) -> None:
        """Do nothing: there are no calls."""

    def note(self, deviation: str, detail: str = "", /) -> None:
        """Do nothing: every message is kept as it came."""

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        """Do nothing: there are no calls."""

    def end_input(self, reason: str, /) -> None:
        """Do nothing: `close` follows."""

    def stop(self, reason: str, /) -> list[Outgoing]:
        """Do nothing: there are no calls."""
        return []

    def close(self, reason: str, /) -> bool:
        """Keep the end."""
        self._inbox.put_nowait(None)
        return False

    async def wait_closed(self) -> None:
        """Do nothing."""


class MemoryEnd:
    """An end in memory: each `send` is one message."""

    def __init__(self, channel: MemoryChannel, inbox: Inbox) -> None:
        self._channel = channel
        channel.begin(InboxSession(inbox))

    async def send(self, data: bytes, *, whole: bool) -> None:
        """See RawEnd."""
        await self._channel.send(Outgoing(data))

    async def close(self) -> None:
        """See RawEnd."""
        await self._channel.close()


class ByteEnd(asyncio.Protocol):
    """An end on a byte stream: received bytes are split into lines, sent bytes are unchanged."""

    def __init__(self, inbox: Inbox, on_made: Callable[[ByteEnd], None] | None = None) -> None:
        self._inbox = inbox
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._incomplete = b""
        self._closed = asyncio.Event()
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        """Keep complete lines."""
        *lines, self._incomplete = (self._incomplete + data).split(b"\n")
        for line in lines:
            self._inbox.put_nowait(line)

    def eof_received(self) -> bool:
        """The peer sends nothing more; this end still may."""
        if not self._ended:
            self._ended = True
            if self._incomplete:
                self._inbox.put_nowait(self._incomplete)
            self._inbox.put_nowait(None)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Both directions are closed."""
        self._transport = None
        self.eof_received()
        self._closed.set()

    async def send(self, data: bytes, *, whole: bool) -> None:
        """See RawEnd."""
        if self._transport is None or self._transport.is_closing():
            raise ChannelClosed("the peer closed the connection")
        self._transport.write(data + b"\n" if whole else data)
        await asyncio.sleep(0)

    async def close(self) -> None:
        """See RawEnd."""
        if self._transport is not None:
            self._transport.close()
        await self._closed.wait()


def open_pipes(end: ByteEnd, limits: Limits, *, server: bool) -> LineChannel:
    """Connect a raw end to a stdio channel by two pipes; return the channel, which is not started."""
    their_input, our_output = os.pipe()
    our_input, their_output = os.pipe()
    channel = LineChannel("stdio", limits, server=server)
    open_descriptors(end, our_input, our_output)
    open_descriptors(channel, their_input, their_output)
    return channel


def memory_channels(limits: Limits, *, server: bool) -> tuple[MemoryChannel, MemoryChannel]:
    """Return two joined channels, ours and the peer's; `server` says whether the peer is a server."""
    ours, theirs = MemoryChannel(limits, server=not server), MemoryChannel(limits, server=server)
    ours.join(theirs)
    return ours, theirs


# ---------------------------------------------------------------- the peer


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
        self._inbox: Inbox = asyncio.Queue()
        self._end: RawEnd | None = None
        self._ends: list[RawEnd | Channel] = []
        self._connected = asyncio.Event()
        self._listener: asyncio.Server | None = None
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

    # ---------------------------------------------------------------- connections

    async def __aenter__(self) -> Self:
        if self._server is not None:
            await self._resources.enter_async_context(self._server.running())
            await self._connect(self._server)
        elif self._over == "socket":
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(self._byte_end, "127.0.0.1", 0)
        return self

    async def __aexit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        scripts, self._scripts = self._scripts, []
        if scripts:
            await asyncio.wait(scripts, timeout=0 if exc is not None else self.patience)
        for script in scripts:
            script.cancel()
        await asyncio.gather(*scripts, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        for end in self._ends:
            with suppress(GemelError, OSError):
                await end.close()
        await self._resources.aclose()
        for script in scripts:
            failure = None if script.cancelled() else script.exception()
            if failure is not None and failure is not exc:
                raise failure

    @property
    def _address(self) -> tuple[str, int]:
        assert self._listener is not None, 'only a server with over="socket" has an address, within its block'
        host, port = self._listener.sockets[0].getsockname()[:2]
        return host, port

    @property
    def url(self) -> str:
        """The URL for clients in other processes, for `over="socket"`."""
        return "tcp://{}:{}".format(*self._address)

    async def open(self, serve: Serve, /) -> Channel:
        """Open a channel to this peer. `Client` calls this.

        Args:
            serve: Starts the session of the client.

        Returns:
            The channel.
        """
        if self._over == "socket":
            return await TcpSocket(*self._address, limits=self.limits).open(serve)
        return self._open_in_process(serve, server=False)

    def _open_in_process(self, serve: Serve, *, server: bool) -> Channel:
        """Connect to a session in this process; `server` says whether it is a server's. Returns its channel."""
        inbox = self._new_inbox()
        channel: MemoryChannel | LineChannel
        if self._over == "memory":
            ours, channel = memory_channels(self.limits, server=server)
            self._accept(MemoryEnd(ours, inbox))
        else:
            end = ByteEnd(inbox)
            channel = open_pipes(end, self.limits, server=server)
            self._accept(end)
        self._ends.append(channel)
        session = serve(channel)
        channel.begin(session)
        if server:
            self._resources.push_async_callback(session.wait_closed)
        return channel

    async def _connect(self, server: Server[Any]) -> None:
        if self._over != "socket":
            self._open_in_process(server.serve, server=True)
            return
        listening = SocketServer(server.serve, port=0, limits=self.limits)
        await listening.start()
        self._resources.push_async_callback(listening.stop)
        host, port = cast("tuple[str, int]", listening.address)
        await asyncio.get_running_loop().create_connection(self._byte_end, host, port)

    def _byte_end(self) -> ByteEnd:
        return ByteEnd(self._new_inbox(), self._accept)

    def _new_inbox(self) -> Inbox:
        """Start a connection; messages of the one before that nobody expected are dropped."""
        self._inbox = asyncio.Queue()
        self.connections += 1
        return self._inbox

    def _accept(self, end: RawEnd) -> None:
        self._end = end
        self._ends.append(end)
        self._connected.set()
        if self._script is not None:
            self._scripts.append(asyncio.ensure_future(_run(self._script, self)))

    async def _connection(self) -> RawEnd:
        """Wait until a client is connected."""
        async with self._time_limit("a client to connect"):
            await self._connected.wait()
        assert self._end is not None
        return self._end

    # ---------------------------------------------------------------- sending

    async def send(self, message: Mapping[str, Any] | bytes) -> None:
        """Send a message or bytes.

        Args:
            message: A dict, in which `jsonrpc` may be missing; or bytes, which are sent unchanged: pipes and sockets need a
                line end.

        Raises:
            AssertionError: The connection is closed, or no client connected in time.
        """
        end = await self._connection()
        try:
            if isinstance(message, bytes):
                await end.send(message, whole=False)
            else:
                await end.send(msgspec.json.encode({"jsonrpc": "2.0", **message}), whole=True)
        except ChannelClosed as exc:
            raise AssertionError(f"The peer could not send {format_message(message)}: {exc}") from exc

    async def answer(
        self, request: Mapping[str, Any], result: object = None, *, error: Mapping[str, Any] | ErrorObject | None = None
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

    async def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        era: EraName = "2025",
        **capabilities: Mapping[str, Any],
    ) -> Message:
        """Send a request and wait for its response; other messages before it are skipped.

        Args:
            method: The method.
            params: The params; none by default.
            era: With "2026", the `_meta` that the stateless era requires is added.
            **capabilities: The capabilities of the client in that `_meta`: `elicitation={"form": {}}`.

        Returns:
            The response, with `result` or `error`.

        Raises:
            AssertionError: It did not come in time, or the connection is closed.
        """
        self._next_id += 1
        message: Message = {"id": self._next_id, "method": method}
        if not ERAS[era].negotiation_method:
            params = dict(params or {})
            meta = {PROTOCOL_VERSION: STATELESS.latest, CLIENT_CAPABILITIES: capabilities, CLIENT_INFO: INFO}
            params["_meta"] = {**meta, **params.get("_meta", {})}
        if params is not None:
            message["params"] = params
        await self.send(message)
        expected = f"a response to {format_message(message)}"
        while True:
            got = await self._next(expected)
            if isinstance(got, dict) and "method" not in got and got.get("id") == message["id"]:
                return got

    async def close(self) -> None:
        """Close this connection."""
        end = await self._connection()
        with suppress(GemelError, OSError):
            await end.close()

    # ---------------------------------------------------------------- receiving

    async def expect(self, what: Expected = None) -> Message:
        """Wait for the next message, which must be the expected one.

        Args:
            what: A method, or a dict of members that the message must have; None for any message.

        Returns:
            The message.

        Raises:
            AssertionError: Another message came, or none in time.
        """
        got = await self._next(describe_expected(what))
        problem = find_mismatch(what, got)
        if problem is not None:
            raise AssertionError(f"The peer expected {describe_expected(what)}, but {problem}{self._before()}")
        return cast(Message, got)

    async def until(self, what: Expected) -> Message:
        """Wait for a message; others before it are skipped. They are in `received`.

        Args:
            what: A method, or a dict of members that the message must have.

        Returns:
            The message.

        Raises:
            AssertionError: It did not come in time.
        """
        while True:
            got = await self._next(describe_expected(what))
            if isinstance(got, dict) and find_mismatch(what, got) is None:
                return got

    async def expect_nothing(self, seconds: float = 0.1) -> None:
        """Require that nothing comes, not even the end of the connection.

        Args:
            seconds: How long to wait.

        Raises:
            AssertionError: Something came.
        """
        await self._connection()
        try:
            async with asyncio.timeout(seconds):
                data = await self._inbox.get()
        except TimeoutError:
            return
        came = "the connection was closed" if data is None else f"the peer got {format_message(self._keep(data))}"
        raise AssertionError(f"The peer expected nothing for {seconds:g} seconds, but {came}")

    async def expect_end(self) -> None:
        """Wait until the other side closes the connection, without another message.

        Raises:
            AssertionError: A message came, or the connection stays open.
        """
        expected = "the end of the connection"
        data = await self._take(expected)
        if data is not None:
            raise AssertionError(f"The peer expected {expected}, but got {format_message(self._keep(data))}")

    async def _take(self, expected: str) -> bytes | None:
        await self._connection()
        async with self._time_limit(expected):
            return await self._inbox.get()

    async def _next(self, expected: str) -> Message | bytes:
        data = await self._take(expected)
        if data is None:
            self._inbox.put_nowait(None)  # for the next call
            raise AssertionError(f"The peer expected {expected}, but the connection was closed{self._before()}")
        return self._keep(data)

    def _keep(self, data: bytes) -> Message | bytes:
        try:
            content = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            content = None
        message: Message | bytes = content if isinstance(content, dict) else data
        self.received.append(message)
        return message

    def _before(self) -> str:
        """Describe the messages before."""
        earlier = [short_name(message) for message in self.received[-11:-1]]
        return f". Before that it got: {', '.join(earlier)}" if earlier else ""

    @asynccontextmanager
    async def _time_limit(self, expected: str) -> AsyncIterator[None]:
        """Fail with a description after `patience` seconds."""
        try:
            async with asyncio.timeout(self.patience):
                yield
        except TimeoutError:
            got = ", ".join(map(short_name, self.received[-10:])) or "nothing"
            raise AssertionError(
                f"The peer expected {expected}, but nothing came within {self.patience:g} seconds. It got: {got}"
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
        info = info or INFO
        if self._server is not None:
            return await self._initialize("2025" if era == "both" else era, capabilities or {}, info, revision)
        declared = {"tools": {}} if capabilities is None else capabilities
        while True:
            message = await self.expect()
            method = message.get("method")
            if method not in _OPENINGS["both"]:
                raise AssertionError(
                    f"The peer expected initialize or server/discover, but got {format_message(message)}{self._before()}"
                )
            if method not in _OPENINGS[era]:
                await self.answer(message, error={"code": -32601, "message": "Method not found"})
            elif method == "initialize":
                chosen = revision or message["params"]["protocolVersion"]
                result = {"protocolVersion": chosen, "capabilities": declared, "serverInfo": info}
                await self.answer(message, result)
                await self.expect("notifications/initialized")
                return "2025"
            else:
                versions = [revision or STATELESS.latest]
                result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "_meta": {SERVER_INFO: info}}
                await self.answer(message, {**result, "supportedVersions": versions, "capabilities": declared})
                return "2026"

    async def _initialize(
        self, era: EraName, capabilities: Mapping[str, Any], info: Mapping[str, Any], revision: str | None
    ) -> EraName:
        if ERAS[era].negotiation_method:
            chosen = revision or HANDSHAKE.latest
            params = {"protocolVersion": chosen, "capabilities": capabilities, "clientInfo": info}
            reply = await self.call("initialize", params)
            if "error" in reply:
                raise AssertionError(f"The server refused the handshake: {format_message(reply)}")
            await self.notify("notifications/initialized")
        return era


async def _run(script: Callable[[ScriptedPeer], Awaitable[object]], peer: ScriptedPeer) -> object:
    return await script(peer)


@asynccontextmanager
async def channel_pair(*, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[tuple[ScriptedPeer, ScriptedPeer]]:
    """Join two scripted peers in memory: each sends and expects what the test says.

    Args:
        limits: The limits of the channels.

    Returns:
        A context manager that gives the two peers.
    """
    channels = memory_channels(limits, server=False)
    first, second = ScriptedPeer(limits=limits), ScriptedPeer(limits=limits)
    for peer, channel in zip((first, second), channels, strict=True):
        peer._accept(MemoryEnd(channel, peer._new_inbox()))
    try:
        yield first, second
    finally:
        await channels[0].close()
