"""Listening in on conversations: a face in front of a channel and its conversation that passes everything on.

Works on every transport and on either side, since both meet in `serve`. Knows what was said, when and by whom; must not
know what becomes of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import UNSET

from hinge import jsonrpc
from hinge.channel import Channel, ChannelKind, Conversation, Serve, Transport
from hinge.errors import CallError, PeerError
from hinge.jsonrpc import ABSENT, Failure, Notification, Request, RequestId
from hinge.protocol.calls import UNKNOWN_ORIGIN, Batch, Call, Inbound, Origin, Outgoing

Side: TypeAlias = Literal["client", "server"]


class Said(NamedTuple):
    """One message, or what was sent in the place of one. `headers` are those of HTTP that came or went with it.

    `about` is the id of the request of the other side on whose stream it left, where the transport knows.
    """

    channel: int
    sender: Side
    data: bytes
    headers: Mapping[str, str] | None = None
    about: RequestId | None = None


class Listener(Protocol):
    """Who listens. Nothing that it raises may come from what was said: the conversation would suffer."""

    def opened(self, kind: ChannelKind) -> int:
        """A channel opens; gives its number back."""
        ...

    def said(self, said: Said) -> None:
        """A message leaves or has come."""

    def failed(self, channel: int, request_id: RequestId | None, error: CallError) -> None:
        """The transport itself ended a request of the client: nothing that could be a message came back."""

    def closed(self, channel: int, by: Side, reason: str) -> None:
        """A channel is over; said once."""


def other(side: Side) -> Side:
    """The other end."""
    return "server" if side == "client" else "client"


def tapped(serve: Serve, listener: Listener, side: Side) -> Serve:
    """The same `serve`, which belongs to this side, with somebody who listens."""

    def begin(channel: Channel) -> Conversation:
        return TappedConversation(serve, TappedChannel(channel, listener, side))

    return begin


class TappedTransport:
    """A client's way to a server, with somebody who listens."""

    def __init__(self, transport: Transport, listener: Listener) -> None:
        self._transport = transport
        self._listener = listener

    async def open(self, serve: Serve, /) -> Channel:
        """Open a channel of the transport."""
        made: list[TappedChannel] = []

        def begin(channel: Channel) -> Conversation:
            made.append(TappedChannel(channel, self._listener, "client"))
            return TappedConversation(serve, made[0])

        await self._transport.open(begin)
        return made[0]

    def __getattr__(self, name: str) -> Any:
        """What some transports can besides: `era`, and `older`, the way for older servers, which is listened to as well."""
        value = getattr(self._transport, name)
        if name == "older":
            return lambda: TappedTransport(value(), self._listener)
        return value


_OWN = frozenset({"_channel", "_listener", "_over", "number", "side"})


class TappedChannel:
    """The channel as the session sees it."""

    def __init__(self, channel: Channel, listener: Listener, side: Side) -> None:
        self._channel = channel
        self._listener = listener
        self.side: Side = side
        self.number = listener.opened(channel.kind)
        self._over = False

    @property
    def kind(self) -> ChannelKind:
        """That of the channel behind."""
        return self._channel.kind

    async def send(self, message: Outgoing, /) -> None:
        """Note it, then send it: an answer may be here before `send` returns."""
        about = message.about.id if message.about is not None else None
        self.say(self.side, message.data, message.headers, about)
        try:
            await self._channel.send(message)
        except PeerError as exc:  # over HTTP an error object may come in the place of a message
            data = jsonrpc.encode_failure(message.id, exc.error)
            self.say(other(self.side), data)
            raise
        except CallError as exc:
            if message.pending is not None:
                self._listener.failed(self.number, message.id, exc)
            raise

    async def close(self) -> None:
        """End the channel."""
        self.ended(self.side, "closed on this side")
        await self._channel.close()

    def __getattr__(self, name: str) -> Any:
        """What some channels can besides."""
        return getattr(self._channel, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """What is noted on the channel behind is noted there."""
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._channel, name, value)

    def say(
        self, sender: Side, data: bytes, headers: Mapping[str, str] | None = None, about: RequestId | None = None
    ) -> None:
        """Tell who listens."""
        self._listener.said(Said(self.number, sender, data, headers, about))

    def ended(self, by: Side, reason: str) -> None:
        """Tell who listens, once."""
        if not self._over:
            self._over = True
            self._listener.closed(self.number, by, reason)


class TappedConversation:
    """The conversation as the transport sees it."""

    def __init__(self, serve: Serve, channel: TappedChannel) -> None:
        self._channel = channel
        self._conversation = serve(channel)

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> Call | Batch | Outgoing | None:
        """Note what came, and a refusal if it is answered with one."""
        channel = self._channel
        channel.say(other(channel.side), text_of(data), origin.headers)
        got = self._conversation.receive(data, origin)
        if isinstance(got, Outgoing):
            channel.say(channel.side, got.data)
        return got

    async def answer(self, call: Call | Batch, /) -> Outgoing | None:
        """Note the answer."""
        reply = await self._conversation.answer(call)
        if reply is not None:
            self._channel.say(self._channel.side, reply.data)
            if reply.follow is not None and self._channel.kind != "post":
                self._channel.say(self._channel.side, reply.follow.data)
        return reply

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        """The caller is gone."""
        self._conversation.cancel(call, reason)

    def end_input(self, reason: str, /) -> None:
        """The other side says nothing more."""
        self._conversation.end_input(reason)

    def expire(self, reason: str, /) -> list[Outgoing]:
        """Time is up; each call gets its error."""
        replies = self._conversation.expire(reason)
        for reply in replies:
            self._channel.say(self._channel.side, reply.data)
        return replies

    def close(self, reason: str, /) -> bool | None:
        """The channel is gone: if this side didn't close it, the other one did."""
        side = self._channel.side
        self._channel.ended(side if self._channel.kind == "post" else other(side), reason)
        return self._conversation.close(reason)

    async def finish(self) -> None:
        """After `close`."""
        await self._conversation.finish()


def text_of(data: bytes | Inbound) -> bytes:
    """The text of a message; of one that is decoded already, as it is written here."""
    if isinstance(data, bytes):
        return data
    message = data.message
    if isinstance(message, Request | Notification):
        params: Any = UNSET if message.params is ABSENT else message.params
        if isinstance(message, Request):
            return jsonrpc.encode_request(message.id, message.method, params)
        return jsonrpc.encode_notification(message.method, params)
    if isinstance(message, Failure):
        return jsonrpc.encode_failure(message.id, message.error)
    return jsonrpc.encode_response(message.id, message.result)
