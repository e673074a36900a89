"""Every message that a test saw, to be asserted on. Knows what was said and by whom; judges nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any

import msgspec

from hinge.channel import Channel, ChannelKind, Serve
from hinge.client.targets import transport_for
from hinge.errors import CallError, shorten
from hinge.jsonrpc import RequestId
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.server.server import Server
from hinge.testing.attaching import attached
from hinge.testing.tap import Said, Side, TappedTransport, tapped


class WireMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message: who sent it, on which channel (counted from 1), its text, and what the text says.

    `content` is a dict for a JSON-RPC message, another value for other JSON, None for what is no JSON.
    """

    sender: Side
    channel: int
    text: bytes
    content: Any

    def member(self, name: str) -> Any:
        """A member of the message, None if it isn't there."""
        return self.content.get(name) if isinstance(self.content, Mapping) else None

    @property
    def method(self) -> str | None:
        """The method of a request or notification."""
        found: str | None = self.member("method")
        return found

    @property
    def id(self) -> RequestId | None:
        """The id of a request or an answer."""
        found: RequestId | None = self.member("id")
        return found

    @property
    def params(self) -> dict[str, Any]:
        """The params; empty when absent."""
        return dict(self.member("params") or {})

    @property
    def result(self) -> Any:
        """The result of an answer."""
        return self.member("result")

    @property
    def error(self) -> Any:
        """The error of an answer."""
        return self.member("error")

    def __str__(self) -> str:
        arrow = "→" if self.sender == "client" else "←"
        return f"{arrow} {self.text.decode('utf-8', 'replace')}"


class Wire:
    """Sees all messages of one side's conversations: a client's (`watch`) or a server's (`attach`).

    `sent` and `received` are from the point of view of that side. The last `most` messages are kept.
    """

    def __init__(self, *, most: int = 10_000) -> None:
        #: All of them, oldest first.
        self.messages: deque[WireMessage] = deque(maxlen=most)
        #: Why the transport itself failed a request, and why channels ended, in words.
        self.failures: deque[str] = deque(maxlen=most)
        self.endings: deque[str] = deque(maxlen=most)
        self._side: Side = "client"
        self._channels = 0
        self._watchers: list[asyncio.Future[None]] = []

    # ---------------------------------------------------------------- being there

    def watch(self, target: Any, *, limits: Limits = DEFAULT_LIMITS, **options: Any) -> Watched:
        """The same target, seen: `Client(wire.watch(target))`. `options` go to its transport (`headers`, `env`, …)."""
        self._side = "client"
        return Watched(self, target, limits, options)

    @contextmanager
    def attach(self, server: Server[Any]) -> Iterator[Server[Any]]:
        """See every conversation of what begins to serve within the block, whoever the clients are."""
        self._side = "server"
        with attached(server, tapped(server.serve, self, "server")):
            yield server

    # ---------------------------------------------------------------- what was seen

    @property
    def sent(self) -> list[WireMessage]:
        """What this side sent."""
        return [message for message in self.messages if message.sender == self._side]

    @property
    def received(self) -> list[WireMessage]:
        """What the other side sent."""
        return [message for message in self.messages if message.sender != self._side]

    def named(self, method: str) -> list[WireMessage]:
        """The requests and notifications of a method, of both sides."""
        return [message for message in self.messages if message.method == method]

    def answer_to(self, request: WireMessage) -> WireMessage:
        """The answer to a request. Raises AssertionError when none has come."""
        after = False
        for message in self.messages:
            after = after or message is request
            answers = message.method is None and message.id == request.id and message.sender != request.sender
            if after and answers and message.channel == request.channel:
                return message
        raise AssertionError(f"There is no answer to {shorten(str(request))} on the wire")

    async def wait_for(self, method: str, *, count: int = 1, timeout: float = 5.0) -> list[WireMessage]:
        """The messages of a method, once there are `count`. Raises AssertionError after `timeout` seconds, with what came."""
        try:
            async with asyncio.timeout(timeout):
                while len(found := self.named(method)) < count:
                    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._watchers.append(future)
                    await future
                return found
        except TimeoutError:
            seen = f"{len(self.named(method))} of {count} {method} within {timeout:g} seconds"
            raise AssertionError(f"{seen}; the wire has seen:\n{self}") from None

    def clear(self) -> None:
        """Forget what was seen."""
        self.messages.clear()
        self.failures.clear()
        self.endings.clear()

    def __str__(self) -> str:
        return "\n".join(shorten(str(message), 1000) for message in self.messages) or "nothing"

    # ---------------------------------------------------------------- listening

    def opened(self, kind: ChannelKind) -> int:
        """See Listener."""
        self._channels += 1
        return self._channels

    def said(self, said: Said) -> None:
        """See Listener."""
        try:
            content = msgspec.json.decode(said.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            content = None
        message = WireMessage(sender=said.sender, channel=said.channel, text=bytes(said.data), content=content)
        self.messages.append(message)
        watchers, self._watchers = self._watchers, []
        for future in watchers:
            if not future.done():
                future.set_result(None)

    def failed(self, channel: int, request_id: RequestId | None, error: CallError) -> None:
        """See Listener."""
        self.failures.append(f"{type(error).__name__}: {error}")

    def closed(self, channel: int, by: Side, reason: str) -> None:
        """See Listener."""
        self.endings.append(f"channel {channel} was ended by the {by}: {reason}")


class Watched:
    """A target whose messages are seen."""

    def __init__(self, wire: Wire, target: Any, limits: Limits, options: Mapping[str, Any]) -> None:
        self._target = target
        self._transport = TappedTransport(transport_for(target, limits=limits, **options), wire)

    async def open(self, serve: Serve, /) -> Channel:
        """Open a channel to it."""
        return await self._transport.open(serve)

    def running(self) -> AbstractAsyncContextManager[None]:
        """The target's own life, if it has one."""
        running: AbstractAsyncContextManager[None] = getattr(self._target, "running", nullcontext)()
        return running

    def __getattr__(self, name: str) -> Any:
        """What some transports can besides."""
        if name in ("era", "older"):
            return getattr(self._transport, name)
        raise AttributeError(f"a watched target has no {name!r}")
