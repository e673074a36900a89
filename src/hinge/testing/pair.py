"""A client and a server back to back in memory, both ends in hand: the real kernel, the same encoded messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from hinge.channel import Channel
from hinge.client.client import Client
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.server.server import Server
from hinge.session import Session
from hinge.testing.ends import Ear, Inbox, MemoryEnd, memory_ends
from hinge.testing.scripted import ScriptedPeer


class ServerSide:
    """The server's side of one conversation: what it says outside of any call, and what it is at."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A question to the client, and its result; only the handshake era knows such. Raises CallError."""
        result = await self._session.request(method, UNSET if params is None else params)
        found: dict[str, Any] = msgspec.json.decode(result)
        return found

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """A notification. Raises ChannelClosed."""
        await self._session.notify(method, UNSET if params is None else params)

    @property
    def calls(self) -> list[str]:
        """The methods of the requests that are being served."""
        return [call.method for call in self._session.connection.incoming.values()]

    @property
    def closed(self) -> str | None:
        """Why the conversation is over; None while it lives."""
        return self._session.connection.closed


class Pair(NamedTuple):
    """A connected client, and the server's side of its conversation."""

    client: Client
    server: ServerSide


class _Door:
    """A server that remembers the conversations it serves."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self.limits = server.limits
        self.sessions: list[Session] = []

    def serve(self, channel: Channel) -> Session:
        """Start a conversation."""
        session = self._server.serve(channel)
        self.sessions.append(session)
        return session

    def running(self) -> AbstractAsyncContextManager[None]:
        """The server's life."""
        return self._server.running()


@asynccontextmanager
async def memory_pair(server: Server[Any], **options: Any) -> AsyncIterator[Pair]:
    """A client that is connected to a server in memory, and the server's side: `async with memory_pair(server) as (client, side)`.

    `options` are those of Client (`era`, `on_elicit`, …).
    """
    door = _Door(server)
    async with Client(door, **{"limits": server.limits, **options}) as client:
        yield Pair(client, ServerSide(door.sessions[-1]))


@asynccontextmanager
async def channel_pair(*, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[tuple[ScriptedPeer, ScriptedPeer]]:
    """Two joined channels in memory with nobody behind them: each end sends and expects what it likes."""
    left, right = memory_ends(limits, server=False)
    ends = []
    for channel in (left, right):
        inbox = Inbox()
        channel.begin(Ear(inbox))
        ends.append(ScriptedPeer.on(MemoryEnd(channel), inbox))
    try:
        yield ends[0], ends[1]
    finally:
        await left.close()
