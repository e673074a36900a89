"""The raw end of a channel, on memory or on bytes: what comes goes into an inbox, what goes out is not looked at.

Knows lines and bytes. Must not know what messages say.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Protocol, TypeAlias, cast

from hinge.channel import Channel
from hinge.errors import ChannelClosed, HingeError
from hinge.protocol.calls import UNKNOWN_ORIGIN, Batch, Call, Inbound, Origin, Outgoing
from hinge.protocol.limits import Limits
from hinge.testing.tap import text_of
from hinge.transports.memory import MemoryChannel
from hinge.transports.stream.blocking import open_descriptors
from hinge.transports.stream.line_channel import LineChannel

#: What carries the messages: memory, two pipes as between a process and its child, or a TCP socket on loopback.
Over: TypeAlias = Literal["memory", "stdio", "socket"]
#: Bytes of a line that this end takes.
_LINE = 64 * 1024 * 1024


class Inbox:
    """What has come and was not taken yet; None stands for the end."""

    def __init__(self) -> None:
        self._items: deque[bytes | None] = deque()
        self._came: asyncio.Event | None = None

    def put(self, item: bytes | None) -> None:
        """Something came, or the end."""
        self._items.append(item)
        if self._came is not None:
            self._came.set()

    async def take(self) -> bytes | None:
        """The next one, waiting for it."""
        while not self._items:
            self._came = asyncio.Event()
            await self._came.wait()
        return self._items.popleft()

    def __len__(self) -> int:
        return len(self._items)


class End(Protocol):
    """One raw end."""

    async def send(self, data: bytes, *, whole: bool) -> None:
        """Send bytes; a `whole` message gets what ends it on this channel. Raises ChannelClosed."""

    async def close(self) -> None:
        """End the channel, both ways. Twice is fine."""


# ---------------------------------------------------------------- memory


class MemoryEnd:
    """An end in memory: every `send` is one message."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def send(self, data: bytes, *, whole: bool) -> None:
        """See End."""
        await self._channel.send(Outgoing(data))

    async def close(self) -> None:
        """See End."""
        await self._channel.close()


class Ear:
    """A conversation that takes everything and owes nothing."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> None:
        """A message came."""
        self._inbox.put(text_of(data))

    async def answer(self, call: Call | Batch, /) -> None:
        """Nobody asks it to."""

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        """Nothing runs here."""

    def end_input(self, reason: str, /) -> None:
        """The end is told by `close`."""

    def expire(self, reason: str, /) -> list[Outgoing]:
        """Nothing runs here."""
        return []

    def close(self, reason: str, /) -> bool:
        """The other end has closed, or this one."""
        self._inbox.put(None)
        return False

    async def finish(self) -> None:
        """Nothing to wait for."""


def memory_ends(limits: Limits, *, server: bool) -> tuple[MemoryChannel, MemoryChannel]:
    """Two joined channels, ours and the other one; `server` says what the other one is."""
    ours, theirs = MemoryChannel(limits, server=not server), MemoryChannel(limits, server=server)
    ours.join(theirs)
    return ours, theirs


# ---------------------------------------------------------------- bytes


class ByteEnd(asyncio.Protocol):
    """An end on a byte stream: what comes is cut into lines, what goes out is sent as it is."""

    def __init__(self, inbox: Inbox, on_made: Callable[[ByteEnd], None] | None = None) -> None:
        self._inbox = inbox
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._closed = asyncio.Event()
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        """Lines, as they get whole."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._inbox.put(line)
        if len(self._rest) > _LINE and self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> bool:
        """The other end says no more; this one still may."""
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Both ways are closed."""
        self._transport = None
        self._end()
        self._closed.set()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            if self._rest:
                self._inbox.put(self._rest)
            self._inbox.put(None)

    async def send(self, data: bytes, *, whole: bool) -> None:
        """See End."""
        if self._transport is None or self._transport.is_closing():
            raise ChannelClosed("the other end has closed the connection")
        self._transport.write(data + b"\n" if whole else data)
        await asyncio.sleep(0)

    async def close(self) -> None:
        """See End."""
        if self._transport is not None:
            self._transport.close()
        await self._closed.wait()


def pipes(end: ByteEnd, limits: Limits, *, server: bool) -> LineChannel:
    """Two pipes between a raw end and a stdio channel, which is given back, not begun yet."""
    there_in, our_out = os.pipe()
    our_in, there_out = os.pipe()
    channel = LineChannel("stdio", limits, server=server)
    open_descriptors(end, our_in, our_out)
    open_descriptors(channel, there_in, there_out)
    return channel


class Listening:
    """A TCP socket on loopback where raw ends answer."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @classmethod
    async def start(cls, make: Callable[[], ByteEnd]) -> Listening:
        """Listen on a free port."""
        loop = asyncio.get_running_loop()
        return cls(await loop.create_server(make, "127.0.0.1", 0))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def stop(self) -> None:
        """Take no more connections."""
        self._server.close()


async def close_quietly(end: End | Channel) -> None:
    """Close, whatever has become of it."""
    with suppress(HingeError, OSError):
        await end.close()
