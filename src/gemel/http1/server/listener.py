"""The HTTP/1.1 server: listening sockets, their connections, one timer for all, and a regular end."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from contextlib import suppress
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from gemel.errors import StartError
from gemel.http1.asgi import TEXT_TYPE
from gemel.http1.server.connection import HEAD_WAIT, Connections, HttpConnection
from gemel.http1.server.request import Serve
from gemel.local_sockets import Listening, listen_on_pipe

if TYPE_CHECKING:
    import ssl

#: Connections that wait to be accepted, at most.
_BACKLOG = 2048
#: Seconds between two sweeps of all connections.
TICK = 1.0


class Listener(Connections):
    """Serves each request by `serve(request)` in a task of its own, on the event loop in which it was made.

    Args:
        serve: Serves a request.
        head_bytes: Maximum bytes of the head of a request.
        head_lines: Maximum number of header lines in a head that is not complete yet.
        stall: Seconds after which a client that reads nothing loses its connection.
        farewell: The content of the answer 408 that ends an idle connection when the server stops, and its type.
    """

    def __init__(
        self,
        serve: Serve,
        head_bytes: int,
        head_lines: int = 1000,
        stall: float = 30.0,
        farewell: tuple[str, bytes] = ("The server is stopping: send the request again", TEXT_TYPE),
    ) -> None:
        super().__init__(serve, head_bytes, head_lines, stall, farewell, _connections_at_once())
        self._servers: list[Listening] = []
        self._listening: list[socket.socket] = []
        self._secure: dict[str, Any] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, listening: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Start to accept connections. Raises StartError if that fails."""
        self._beat()
        self._secure = {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": float(HEAD_WAIT)}
        self._listening = listening
        for one in listening:
            unix = one.family == getattr(socket, "AF_UNIX", None)
            make: Any = self.loop.create_unix_server if unix else self.loop.create_server
            try:
                one.listen(_BACKLOG)  # uvloop would close it without an error if another process was faster
                self._servers.append(
                    await make(lambda: HttpConnection(self), sock=one, backlog=_BACKLOG, **self._secure)
                )
            except OSError as exc:
                raise StartError(f"Can't listen on {_place(one)}: {exc.strerror or exc}") from exc

    async def open_pipe(self, path: str) -> None:
        """Start to accept connections to a named pipe. Raises StartError if that fails."""
        self._beat()
        self._servers.append(await listen_on_pipe(lambda: HttpConnection(self), path))

    def _beat(self) -> None:
        self.heads.at(formatdate(time.time(), usegmt=True))
        self.sweep()
        self._timer = self.loop.call_later(TICK, self._beat)

    async def stop_accepting(self, *, alone: bool) -> None:
        """Accept no more connections, and lose none: like `drain`, at a time when asyncio is not making one.

        Args:
            alone: Whether no other process accepts connections on the same sockets, so that those that wait are accepted here.
        """
        self.ending = True
        for one in self._listening:
            with suppress(NotImplementedError):  # Windows
                self.loop.remove_reader(one.fileno())
        # When asyncio closes a listening socket, it drops the connections that it accepted in this iteration.
        await asyncio.sleep(0)
        for one in self._listening if alone else ():
            with suppress(OSError):
                while True:
                    task = self.loop.create_task(self._connect(one.accept()[0]))
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
        self.drain()

    async def _connect(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        with suppress(OSError):
            await self.loop.connect_accepted_socket(lambda: HttpConnection(self), accepted, **self._secure)

    def drain(self) -> None:
        """Accept no more connections. Open ones may finish their requests."""
        self.ending = True
        for server in self._servers:
            server.close()

    def close_unused(self) -> None:
        """Close connections between two requests. New ones may send their first."""
        for connection in list(self.connections):
            connection.close_if_idle(new=False)

    async def wait_drained(self, limit: float, hurry: asyncio.Event) -> None:
        """Wait up to `limit` seconds, or until `hurry` is set, for each connection to have its last response."""
        end = self.loop.time() + limit
        while self.connections and self.loop.time() < end and not hurry.is_set():  # noqa: ASYNC110 - counted
            await asyncio.sleep(0.01)

    async def end(self, limit: float) -> None:
        """Close idle connections, and wait up to `limit` seconds for responses to reach their clients."""
        for connection in list(self.connections):
            connection.close_if_idle()
        end = self.loop.time() + limit
        while self.connections and self.loop.time() < end:  # noqa: ASYNC110 - counted, not signalled
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Close all connections at once. May be called twice."""
        self.drain()
        for connection in list(self.connections):
            connection.transport.abort()
        for task in self.tasks:
            task.add_done_callback(self.tasks.discard)  # one that has not begun yet does not do it
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()


def _connections_at_once() -> int:
    """Seven of eight files that the process may open; the others are for backends, logs and requests to other servers."""
    try:
        import resource
    except ImportError:  # Windows
        return sys.maxsize
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if files == resource.RLIM_INFINITY else max(files * 7 // 8, 1)


def _place(listening: socket.socket) -> str:
    """Where a socket was to listen, for an error."""
    try:
        address = listening.getsockname()
    except OSError:
        return "a socket that is closed"
    return f"{address[0]} port {address[1]}" if isinstance(address, tuple) else str(address)
