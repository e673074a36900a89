"""Observe the messages of clients and servers, and keep them to assert on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, Unpack

import msgspec
from msgspec import UNSET

from gemel import jsonrpc
from gemel.channel import Channel, ChannelKind, Serve, SessionLike, Transport
from gemel.client.targets import TransportOptions, transport_for
from gemel.errors import CallError, ParseError, PeerError, shorten
from gemel.jsonrpc import ABSENT, Failure, RequestId
from gemel.protocol.deviations import Deviation
from gemel.protocol.eras.base import EraOption
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.protocol.records import UNKNOWN_ORIGIN, Batch, Call, Inbound, LostAnswer, Origin, Outgoing
from gemel.server.server import Server

Side: TypeAlias = Literal["client", "server"]


class SeenMessage(NamedTuple):
    """One message, or other bytes that were sent in its place.

    Attributes:
        channel: The number of the channel, counted from 1.
        sender: Who sent it.
        data: The message as JSON text.
        about: The id of the request on whose HTTP stream it was sent, if the transport knows it.
    """

    channel: int
    sender: Side
    data: bytes
    about: RequestId | None = None


class MessageObserver(Protocol):
    """Receives what happens on channels. Its methods must not raise: that would disturb the session."""

    def on_open(self, kind: ChannelKind) -> int:
        """A channel opens. Returns its number."""
        ...

    def on_message(self, message: SeenMessage) -> None:
        """A message was sent or received."""

    def on_failure(self, channel: int, request_id: RequestId | None, error: CallError) -> None:
        """The transport failed a request of the client: no message came back."""

    def on_close(self, channel: int, by: Side, reason: str) -> None:
        """A channel was closed; called once."""


def other_side(side: Side) -> Side:
    """Return the other side."""
    return "server" if side == "client" else "client"


def observed(serve: Serve, observer: MessageObserver, side: Side) -> Serve:
    """Return `serve` of one side, observed."""

    def begin(channel: Channel) -> SessionLike:
        return ObservedSession(serve, ObservedChannel(channel, observer, side))

    return begin


class ObservedTransport(Transport):
    """A client transport, observed."""

    def __init__(self, transport: Transport, observer: MessageObserver) -> None:
        self._transport = transport
        self._observer = observer

    async def open(self, serve: Serve, /) -> Channel:
        """Open an observed channel."""
        made: list[ObservedChannel] = []

        def begin(channel: Channel) -> SessionLike:
            made.append(ObservedChannel(channel, self._observer, "client"))
            return ObservedSession(serve, made[0])

        await self._transport.open(begin)
        return made[0]

    @property
    def era(self) -> EraOption:
        """The era of the transport."""
        return self._transport.era

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run what the transport has to run."""
        return self._transport.running()

    def older(self) -> Transport | None:
        """The older transport, observed as well."""
        older = self._transport.older()
        return None if older is None else ObservedTransport(older, self._observer)

    @property
    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """What the transport declares."""
        return self._transport.extensions

    @property
    def deviations(self) -> Iterable[Deviation]:
        """Deviations that the transport has met."""
        return self._transport.deviations

    async def credentials(self) -> str:
        """What identifies the caller."""
        return await self._transport.credentials()


class ForwardingChannel:
    """A channel that forwards everything to another one."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def kind(self) -> ChannelKind:
        """The kind of the other channel."""
        return self._channel.kind

    async def send(self, message: Outgoing, /) -> None:
        """Send a message."""
        await self._channel.send(message)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        """Close the stream of a call, see `Channel`."""
        return self._channel.close_stream(call, retry_ms)

    def set_revision(self, revision: str, /) -> None:
        """Tell the channel the negotiated revision."""
        self._channel.set_revision(revision)


class ObservedChannel(ForwardingChannel):
    """The channel that the session gets."""

    def __init__(self, channel: Channel, observer: MessageObserver, side: Side) -> None:
        super().__init__(channel)
        self._observer = observer
        self.side: Side = side
        self.number = observer.on_open(channel.kind)
        self._over = False

    async def send(self, message: Outgoing, /) -> None:
        """Report the message, then send it: its response may arrive before `send` returns."""
        about = message.about.id if message.about is not None else None
        self.report(self.side, message.data, about)
        try:
            await self._channel.send(message)
        except PeerError as exc:  # over HTTP, the response may be an error object
            data = jsonrpc.encode_failure(message.id, exc.error)
            self.report(other_side(self.side), data)
            raise
        except CallError as exc:
            if message.pending is not None:
                self._observer.on_failure(self.number, message.id, exc)
            raise

    async def close(self) -> None:
        self.report_end(self.side, "closed on this side")
        await self._channel.close()

    def report(self, sender: Side, data: bytes, about: RequestId | None = None) -> None:
        """Report a message to the observer."""
        self._observer.on_message(SeenMessage(self.number, sender, data, about))

    def report_end(self, by: Side, reason: str) -> None:
        """Report the end of the channel to the observer, once."""
        if not self._over:
            self._over = True
            self._observer.on_close(self.number, by, reason)


class ObservedSession:
    """The session that the transport gets."""

    def __init__(self, serve: Serve, channel: ObservedChannel) -> None:
        self._channel = channel
        self._session = serve(channel)

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> Call | Batch | Outgoing | None:
        """Report a received message, and the immediate response if there is one."""
        channel = self._channel
        channel.report(other_side(channel.side), encode_message(data))
        got = self._session.receive(data, origin)
        if isinstance(got, Outgoing):
            channel.report(channel.side, got.data)
        return got

    async def answer(self, call: Call | Batch, /) -> Outgoing | None:
        """Report the response."""
        reply = await self._session.answer(call)
        if reply is not None:
            self._channel.report(self._channel.side, reply.data)
            if reply.follow is not None and self._channel.kind != "post":
                self._channel.report(self._channel.side, reply.follow.data)
        return reply

    def note(self, deviation: str, detail: str = "", /) -> None:
        """See `SessionLike`."""
        self._session.note(deviation, detail)

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        """Cancel a call."""
        self._session.cancel(call, reason)

    def end_input(self, reason: str, /) -> None:
        """The peer sends nothing more."""
        self._session.end_input(reason)

    def stop(self, reason: str, /) -> list[Outgoing]:
        """Fail the calls that run, and report the error responses."""
        replies = self._session.stop(reason)
        for reply in replies:
            self._channel.report(self._channel.side, reply.data)
        return replies

    def close(self, reason: str, /) -> bool | None:
        """The channel is closed; if not by this side, then by the peer."""
        side = self._channel.side
        self._channel.report_end(side if self._channel.kind == "post" else other_side(side), reason)
        return self._session.close(reason)

    async def wait_closed(self) -> None:
        """Finish the session after `close`."""
        await self._session.wait_closed()


def encode_message(data: bytes | Inbound) -> bytes:
    """Return a message as JSON text; one that was decoded is encoded again."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, Call):
        params: Any = UNSET if data.params is ABSENT else data.params
        if data.id is not None:
            return jsonrpc.encode_request(data.id, data.method, params)
        return jsonrpc.encode_notification(data.method, params)
    if isinstance(data, Failure):
        return jsonrpc.encode_failure(data.id, data.error)
    if isinstance(data, LostAnswer):
        return jsonrpc.encode_failure(data.id, ParseError(f"Parse error: {data.why}").error)
    return jsonrpc.encode_response(data.id, data.result)


@contextmanager
def patched_serve(server: Server[Any], serve: Serve) -> Iterator[None]:
    """Replace `server.serve`, which every transport uses, within the block."""
    own = vars(server)
    before = own.get("serve")
    own["serve"] = serve
    try:
        yield
    finally:
        if before is None:
            del own["serve"]
        else:
            own["serve"] = before


class WireMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message.

    Attributes:
        sender: "client" or "server".
        channel: The number of the channel, counted from 1.
        text: The bytes.
        content: The decoded JSON, a dict for a JSON-RPC message; None if the bytes are not JSON.
        server: The name of the server that was given to `WireLog.watch`, as a client group does.
    """

    sender: Side
    channel: int
    text: bytes
    content: Any
    server: str = ""

    def member(self, name: str) -> Any:
        """Return a member of the message.

        Args:
            name: The name of the member.

        Returns:
            Its value; None if it is missing.
        """
        return self.content.get(name) if isinstance(self.content, Mapping) else None

    @property
    def method(self) -> str | None:
        """The method of a request or notification; None for a response."""
        method: str | None = self.member("method")
        return method

    @property
    def id(self) -> RequestId | None:
        """The id of a request or response; None for a notification."""
        request_id: RequestId | None = self.member("id")
        return request_id

    @property
    def params(self) -> dict[str, Any]:
        """The params; empty if they are missing."""
        return dict(self.member("params") or {})

    @property
    def result(self) -> Any:
        """The result of a response; None if there is none."""
        return self.member("result")

    @property
    def error(self) -> Any:
        """The error of a response; None if there is none."""
        return self.member("error")

    def __str__(self) -> str:
        arrow = "→" if self.sender == "client" else "←"
        return f"{self.server} {arrow} {self.text.decode('utf-8', 'replace')}".lstrip()


class WireLog:
    """A log of all messages of a client (`watch`) or of a server (`attach`), on any transport.

    Args:
        most: How many messages are kept; the oldest are dropped.

    Attributes:
        messages: The messages of both sides, oldest first.
        failures: Requests that the transport failed, described.
        endings: Closed channels, with the reason.

    Example:
        >>> log = WireLog()
        >>> client = Client(log.watch("https://example.com/mcp"))
        >>> group = ClientGroup.from_config("mcp.json", wrap=log.watch)
    """

    def __init__(self, *, most: int = 10_000) -> None:
        self.messages: deque[WireMessage] = deque(maxlen=most)
        self.failures: deque[str] = deque(maxlen=most)
        self.endings: deque[str] = deque(maxlen=most)
        self._side: Side = "client"
        #: The name of the server of each channel.
        self._channels: list[str] = []
        self._watchers: list[asyncio.Future[None]] = []

    # ---------------------------------------------------------------- attaching

    def watch(
        self, target: object, server: str = "", *, limits: Limits = DEFAULT_LIMITS, **options: Unpack[TransportOptions]
    ) -> Transport:
        """Observe a client: pass the result to `Client` in place of the target, or this method as option `wrap`.

        Args:
            target: What `Client` takes: a URL, a command line, a server, a transport.
            server: The name that the messages are to have.
            limits: The limits of the transport.
            **options: Options of the transport: `headers`, `env`, …

        Returns:
            A target for `Client`.

        Raises:
            DefinitionError: For a target or an option that is not possible.
        """
        self._side = "client"
        return ObservedTransport(transport_for(target, limits=limits, **options), _ServerLog(self, server))

    @contextmanager
    def attach(self, server: Server[Any]) -> Iterator[Server[Any]]:
        """Observe a server: all sessions that begin within the block, of any client.

        Args:
            server: The server.

        Returns:
            A context manager that gives the server.
        """
        self._side = "server"
        with patched_serve(server, observed(server.serve, self, "server")):
            yield server

    # ---------------------------------------------------------------- messages

    @property
    def sent(self) -> list[WireMessage]:
        """The messages that the observed side sent."""
        return [message for message in self.messages if message.sender == self._side]

    @property
    def received(self) -> list[WireMessage]:
        """The messages that the observed side received."""
        return [message for message in self.messages if message.sender != self._side]

    def named(self, method: str) -> list[WireMessage]:
        """Return the requests and notifications of a method, of both sides.

        Args:
            method: The method.

        Returns:
            The messages, oldest first.
        """
        return [message for message in self.messages if message.method == method]

    def answer_to(self, request: WireMessage) -> WireMessage:
        """Return the response to a request.

        Args:
            request: One of the messages.

        Returns:
            The response.

        Raises:
            AssertionError: There is none yet.
        """
        after = False
        for message in self.messages:
            after = after or message is request
            answers = message.method is None and message.id == request.id and message.sender != request.sender
            if after and answers and message.channel == request.channel:
                return message
        raise AssertionError(f"There is no response to {shorten(str(request))}")

    async def wait_for(self, method: str, *, count: int = 1, timeout: float = 5.0) -> list[WireMessage]:
        """Wait for messages of a method.

        Args:
            method: The method of the requests or notifications.
            count: How many to wait for.
            timeout: Seconds to wait.

        Returns:
            The messages, oldest first; there may be more than `count`.

        Raises:
            AssertionError: They did not come in time; the message shows what came.
        """
        try:
            async with asyncio.timeout(timeout):
                while len(messages := self.named(method)) < count:
                    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._watchers.append(future)
                    await future
                return messages
        except TimeoutError:
            seen = f"{len(self.named(method))} of {count} {method} within {timeout:g} seconds"
            raise AssertionError(f"{seen}; the messages are:\n{self}") from None

    def clear(self) -> None:
        """Remove all messages, failures and endings."""
        self.messages.clear()
        self.failures.clear()
        self.endings.clear()

    def __str__(self) -> str:
        return "\n".join(shorten(str(message), 1000) for message in self.messages) or "no messages"

    # ---------------------------------------------------------------- the observer

    def on_open(self, kind: ChannelKind) -> int:
        """Count a channel that opens.

        Args:
            kind: The kind of channel.

        Returns:
            Its number.
        """
        return self._opened("")

    def _opened(self, server: str) -> int:
        self._channels.append(server)
        return len(self._channels)

    def on_message(self, message: SeenMessage) -> None:
        """Add a message.

        Args:
            message: What was sent or received.
        """
        try:
            content = msgspec.json.decode(message.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            content = None
        self.messages.append(
            WireMessage(
                sender=message.sender,
                channel=message.channel,
                text=bytes(message.data),
                content=content,
                server=self._channels[message.channel - 1],
            )
        )
        watchers, self._watchers = self._watchers, []
        for future in watchers:
            if not future.done():
                future.set_result(None)

    def on_failure(self, channel: int, request_id: RequestId | None, error: CallError) -> None:
        """Add a request that the transport failed.

        Args:
            channel: The number of the channel.
            request_id: The id of the request.
            error: The error.
        """
        self.failures.append(f"{type(error).__name__}: {error}")

    def on_close(self, channel: int, by: Side, reason: str) -> None:
        """Add the end of a channel.

        Args:
            channel: The number of the channel.
            by: Which side closed it.
            reason: Why.
        """
        self.endings.append(f"channel {channel} was closed by the {by}: {reason}")


class _ServerLog:
    """The observer of the channels to one server."""

    def __init__(self, log: WireLog, server: str) -> None:
        self._log, self._server = log, server
        self.on_message, self.on_failure, self.on_close = log.on_message, log.on_failure, log.on_close

    def on_open(self, kind: ChannelKind) -> int:
        return self._log._opened(self._server)
