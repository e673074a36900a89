"""A client and a server that are connected in memory, with the real kernel and encoded messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Unpack

import msgspec
from msgspec import UNSET

from gemel.channel import Channel
from gemel.client.client import Client
from gemel.client.options import ClientOptions
from gemel.server.server import Server
from gemel.session import Session


class ServerSide:
    """The session of a server: sends what belongs to no call, and shows which calls run.

    Args:
        session: The session.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to the client; only the handshake era has such requests.

        Args:
            method: The method, for example "roots/list".
            params: The params; none by default.

        Returns:
            The result.

        Raises:
            CallError: The client responded with an error, or did not respond.
        """
        result = await self._session.request(method, UNSET if params is None else params)
        return msgspec.json.decode(result, type=dict[str, Any])

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification to the client.

        Args:
            method: The method.
            params: The params; none by default.

        Raises:
            ChannelClosed: The session is closed.
        """
        await self._session.notify(method, UNSET if params is None else params)

    @property
    def calls(self) -> list[str]:
        """The methods of the requests that are served now."""
        return [call.method for call in self._session.connection.incoming.values()]

    @property
    def closed(self) -> str | None:
        """Why the session is closed; None while it is open."""
        return self._session.connection.closed


class Pair(NamedTuple):
    """A connected client and the session of the server.

    Attributes:
        client: The client.
        server: The session of the server.
    """

    client: Client
    server: ServerSide


class _SessionRecorder:
    """A server that remembers its sessions."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self.limits = server.limits
        self.running = server.running
        self.sessions: list[Session] = []

    def serve(self, channel: Channel) -> Session:
        """Start a session."""
        session = self._server.serve(channel)
        self.sessions.append(session)
        return session


@asynccontextmanager
async def memory_pair(server: Server[Any], **options: Unpack[ClientOptions]) -> AsyncIterator[Pair]:
    """Connect a client to a server in memory.

    Args:
        server: The server.
        **options: Options of Client: `era`, `on_elicit`, …

    Returns:
        A context manager that gives the client and the session of the server.

    Raises:
        CallError: The client can't connect.

    Example:
        >>> async with memory_pair(server) as (client, side):
        ...     await client.call_tool("add", {"a": 1, "b": 2})
    """
    recorder = _SessionRecorder(server)
    given: Any = {"limits": server.limits, **options}
    async with Client(recorder, **given) as client:
        yield Pair(client, ServerSide(recorder.sessions[-1]))
