"""A way to a recording in this process, on which requests fail that the transport had failed when they were recorded.

A status of HTTP or a lost connection can't be said in a message: whoever sends it hears of it from the channel.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from hinge import errors
from hinge.channel import Channel, ChannelKind, Conversation, Serve, Transport
from hinge.errors import CallError, ConnectionLost, HttpStatus
from hinge.protocol.calls import Outgoing
from hinge.testing.tape import Entry


class Failures(Protocol):
    """Who knows which requests had failed."""

    def failure(self, method: str, params: Any) -> Entry | None:
        """How this one had."""
        ...


class FailingTransport:
    """The way to a recording."""

    def __init__(self, transport: Transport, failures: Failures) -> None:
        self._transport = transport
        self._failures = failures

    async def open(self, serve: Serve, /) -> Channel:
        """Open a channel of the transport."""

        def begin(channel: Channel) -> Conversation:
            return serve(_FailingChannel(channel, self._failures))

        return await self._transport.open(begin)


class _FailingChannel:
    """The channel as the client sees it."""

    def __init__(self, channel: Channel, failures: Failures) -> None:
        self._channel = channel
        self._failures = failures

    @property
    def kind(self) -> ChannelKind:
        """That of the channel behind."""
        return self._channel.kind

    async def send(self, message: Outgoing, /) -> None:
        """Send it, or fail as the transport had."""
        if message.pending is not None and message.method is not None:
            said = msgspec.json.decode(message.data)
            entry = self._failures.failure(message.method, said.get("params", {}))
            if entry is not None:
                raise _error(entry, message.method)
        await self._channel.send(message)

    async def close(self) -> None:
        """End the channel."""
        await self._channel.close()


def _error(entry: Entry, method: str) -> CallError:
    """The error of then; its words were not recorded."""
    how = f"HTTP {entry.status}" if entry.status else entry.words
    words = f"{method} failed when it was recorded: {how}"
    kind = getattr(errors, entry.words, None)
    if not isinstance(kind, type) or not issubclass(kind, CallError):
        return ConnectionLost(words)
    if issubclass(kind, HttpStatus):
        return kind(words, entry.status or 500, {})
    try:
        return kind(words)
    except TypeError:  # a kind that wants more than words
        return ConnectionLost(words)
