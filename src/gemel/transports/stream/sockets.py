"""Unix and TCP sockets, named pipes: a server with one session per connection, and the client transports.

There is no authentication: whoever can connect may call. So TCP binds to loopback by default, a Unix socket or a named pipe
is accessible to its owner only, and a connection that begins like an HTTP request (from a browser) is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import select
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import structs

from gemel.channel import Channel, Serve, SessionLike, Transport
from gemel.errors import ConnectFailed, DefinitionError, StartError
from gemel.local_sockets import (
    NO_UNIX_SOCKETS,
    Listening,
    connect_locally,
    is_pipe,
    is_pipe_transport,
    listen_on_pipe,
    remove_dead_socket,
)
from gemel.protocol.http.request import Principal
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.protocol.records import UNKNOWN_ORIGIN, origin_of
from gemel.shares import Shares, address_share
from gemel.signals import stop_on_signals
from gemel.transports.duplex import ByteBudget
from gemel.transports.stream.line_channel import LineChannel

logger = logging.getLogger("gemel")

#: The path of a Unix socket, the name of a pipe, or host and port.
Address: TypeAlias = str | tuple[str, int]

#: Connections that are looked at for one that serves no call.
_LOOKED_AT = 100


def is_port(port: object) -> bool:
    """Whether the value is a port number; 0 means any free port."""
    return isinstance(port, int) and not isinstance(port, bool) and 0 <= port <= 65535


class _Accepted(LineChannel):
    """The server's end of one connection."""

    def __init__(self, server: SocketServer) -> None:
        is_local = isinstance(server.address, str)
        screen = None if is_local else server.screen_http
        super().__init__(
            "socket", server.limits, server=True, on_closed=server.forget, screen=screen, budget=server.waiting
        )
        self._listener = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a session, unless there are too many connections."""
        super().connection_made(transport)
        self._origin = structs.replace(self._listener.origin, transport=transport.get_extra_info("peername"))
        address = self._origin.client_address
        self._listener.admit(self, address_share(None if address is None else address[0]))

    def eof_received(self) -> bool:
        """The peer sends no more. If it has also stopped reading, running calls are cancelled."""
        stays_open = super().eof_received()
        if self._transport is not None and _is_gone(self._transport):
            self.abort("the peer closed the connection")
        return stays_open


def _is_gone(transport: asyncio.Transport) -> bool:
    """Whether both directions are closed. Known for Unix sockets and pipes; for TCP only after a reset."""
    if is_pipe_transport(transport):
        return True
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0 or not hasattr(select, "poll"):
        return False
    watch = select.poll()
    watch.register(sock.fileno(), 0)
    return bool(watch.poll(0))


class SocketServer:
    """Listens on one socket; every connection is a session.

    Args:
        serve: Starts a session over a channel.
        path: The path of a Unix socket, where the file of a dead server is replaced; on Windows the name of a pipe,
            `\\\\.\\pipe\\NAME`.
        host: The host to listen on with TCP.
        port: The TCP port; 0 takes a free one. Give either `path` or `port`.
        limits: Limits of messages and calls; at most `limits.sessions` connections are open at once, beyond which the
            address with most of them loses one to others.
        principal: Who all clients are, with which scopes; by default nobody, without scopes.

    Attributes:
        address: Where it listens, final after `start`.

    Raises:
        StartError: The arguments contradict each other or can't work.
    """

    def __init__(
        self,
        serve: Serve,
        *,
        path: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
        principal: Principal | str | None = None,
    ) -> None:
        if (path is None) == (port is None):
            raise StartError("A socket server needs either a path (Unix socket) or a port (TCP), not both.")
        if path is not None and not os.fspath(path):
            raise StartError("The path of the Unix socket is empty: write where its file is to be, like server.sock.")
        if port is not None and not is_port(port):
            raise StartError(f"{port!r} is not a port: choose one from 1 to 65535, or 0 for any free one.")
        self.limits = limits
        #: What is known about every client.
        self.origin = UNKNOWN_ORIGIN if principal is None else origin_of(principal)
        self.address: Address = (host, port) if port is not None else os.fspath(path or "")
        self._serve = serve
        self._inode: tuple[int, int] | None = None
        self._server: Listening | None = None
        self._open: dict[LineChannel, SessionLike] = {}
        #: The connections that are not about to end, by their addresses.
        self._shares: Shares[LineChannel] = Shares()
        self._holders: dict[LineChannel, str] = {}
        #: What incomplete lines, and messages before the end of `initialize`, take on all connections.
        self.waiting = ByteBudget(limits.lines, limits.sessions)
        self._finishing: set[asyncio.Task[None]] = set()

    def __str__(self) -> str:
        return self.address if isinstance(self.address, str) else "{}:{}".format(*self.address)

    async def start(self) -> None:
        """Listen. Raises StartError if the path or port is in use or not permitted."""
        loop = asyncio.get_running_loop()
        if isinstance(self.address, str) and is_pipe(self.address):
            self._server = await listen_on_pipe(lambda: _Accepted(self), self.address)
            return
        if isinstance(self.address, str):
            sock = _listen_unix(self.address)
            about = os.stat(self.address)
            self._inode = about.st_dev, about.st_ino
            self._server = await loop.create_unix_server(lambda: _Accepted(self), sock=sock)
            return
        sock = _listen_tcp(*self.address)
        self.address = sock.getsockname()[:2]
        self._server = await loop.create_server(lambda: _Accepted(self), sock=sock)

    async def stop(self, why: str = "the server stops") -> None:
        """Accept no more connections, let running calls finish within `limits.drain`, end. May be called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self._remove_file()
        for channel in list(self._open):
            channel.stop(why, self.limits.drain)
        for channel in list(self._open):
            await channel.wait_closed()
        if self._finishing:
            await asyncio.wait(self._finishing)

    def screen_http(self, data: bytes) -> str | None:
        """Reject HTTP clients: a JSON-RPC message never begins with a capital letter, an HTTP request always does."""
        if not b"A" <= data[:1] <= b"Z":
            return None
        logger.warning("A connection to %s was closed: it began like HTTP, not like a message", self)
        return "the peer doesn't speak JSON-RPC"

    def admit(self, channel: LineChannel, holder: str) -> None:
        """Start the session of an accepted connection, in the share of an address."""
        if self._server is None or not self._make_room(holder):
            logger.warning("A connection to %s was refused: %d are open", self, len(self._open))
            channel.abort("too many connections")
            return
        try:
            session = self._serve(channel)
        except Exception:
            logger.exception("A connection to %s could not be served", self)
            channel.abort("the server could not serve this connection")
            return
        self._open[channel] = session
        self._shares.add(holder, channel)
        self._holders[channel] = holder
        channel.begin(session)

    def _make_room(self, newcomer: str) -> bool:
        """Have room for one more connection: the address with most of them loses one, if it has more than the newcomer then."""
        if len(self._shares) < self.limits.sessions:
            return True
        theirs = self._shares.giving_way(newcomer)[:_LOOKED_AT]
        if not theirs or self._shares.held(self._holders[theirs[0]]) <= self._shares.held(newcomer) + 1:
            return False
        channel = next((one for one in theirs if not one.is_busy), theirs[0])
        self._shares.discard(self._holders.pop(channel), channel)
        channel.stop("another connection needed its room", self.limits.drain)
        return True

    def forget(self, channel: LineChannel) -> None:
        """Clean up after the session of a closed connection."""
        session = self._open.pop(channel, None)
        if channel in self._holders:
            self._shares.discard(self._holders.pop(channel), channel)
        if session is not None:
            task = asyncio.get_running_loop().create_task(session.wait_closed())
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)

    def _remove_file(self) -> None:
        """Remove the Unix socket's file, if it is still ours."""
        if isinstance(self.address, str) and self._inode is not None:
            with contextlib.suppress(OSError):
                about = os.lstat(self.address)
                if (about.st_dev, about.st_ino) == self._inode:
                    os.unlink(self.address)


async def serve_socket(
    serve: Serve,
    *,
    path: str | os.PathLike[str] | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    principal: Principal | str | None = None,
    ready: Callable[[Address], object] | None = None,
) -> None:
    """Serve on a Unix socket or on TCP until SIGINT, SIGTERM or cancellation.

    Args:
        serve: Starts a session over a channel.
        path: See `SocketServer`.
        host: See `SocketServer`.
        port: See `SocketServer`.
        limits: See `SocketServer`.
        principal: See `SocketServer`.
        ready: Called with the address when the server listens.

    Raises:
        StartError: The server can't listen.
    """
    server = SocketServer(serve, path=path, host=host, port=port, limits=limits, principal=principal)
    stopped = asyncio.Event()
    with stop_on_signals(lambda _name: stopped.set()):
        await server.start()
        try:
            if ready is not None:
                ready(server.address)
            await stopped.wait()
        finally:
            await server.stop()


def _listen_unix(path: str) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise StartError(NO_UNIX_SOCKETS)
    remove_dead_socket(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(path)
        sock.listen(128)
    except OSError as exc:
        sock.close()
        raise StartError(f"Can't listen on the Unix socket {path}: {exc.strerror or exc}") from exc
    finally:
        os.umask(mask)
    sock.setblocking(False)
    return sock


def _listen_tcp(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.create_server(where[:2], family=family, backlog=128)
    except OSError as exc:
        raise StartError(f"Can't listen on {host}:{port}: {exc.strerror or exc}; choose another port or host.") from exc
    sock.setblocking(False)
    if not ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback:
        logger.warning("%s:%d can be reached from other machines, and nothing checks who calls", host, port)
    return sock


async def _open(
    serve: Serve, connect: Callable[[Callable[[], LineChannel]], Any], where: str, advice: str, limits: Limits
) -> Channel:
    channel = LineChannel("socket", limits, server=False)
    try:
        async with asyncio.timeout(limits.connect):
            await connect(lambda: channel)
    except TimeoutError as exc:
        raise ConnectFailed(f"Nothing answered at {where} within {limits.connect:g} seconds; {advice}") from exc
    except OSError as exc:
        raise ConnectFailed(f"Can't connect to {where}: {exc.strerror or exc}; {advice}") from exc
    try:
        channel.begin(serve(channel))
    except BaseException:
        channel.abort("the session could not begin")
        await channel.wait_closed()
        raise
    return channel


class UnixSocket(Transport):
    """A Transport to a server that listens on a Unix socket, or on Windows on a named pipe.

    Args:
        path: The path of the socket, or the name of the pipe: `\\\\.\\pipe\\NAME`.
        limits: Limits of messages and calls.
    """

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path = os.fspath(path)
        self._limits = limits

    async def open(self, serve: Serve, /) -> Channel:
        """Connect and start a session. Raises ConnectFailed if nothing answers."""
        advice = "is a server listening on this path?"
        return await _open(serve, lambda make: connect_locally(make, self.path), self.path, advice, self._limits)


class TcpSocket(Transport):
    """A Transport to a server that listens on a TCP port.

    Args:
        host: A name or an address.
        port: 1 to 65535.
        limits: Limits of messages and calls.

    Raises:
        DefinitionError: The port is not a port number.
    """

    def __init__(self, host: str, port: int, *, limits: Limits = DEFAULT_LIMITS) -> None:
        if not is_port(port):
            raise DefinitionError(f"{port!r} is not a port: use one from 1 to 65535")
        self.host, self.port = host, port
        self._limits = limits

    async def open(self, serve: Serve, /) -> Channel:
        """Connect and start a session. Raises ConnectFailed if nothing answers."""
        loop = asyncio.get_running_loop()
        where, advice = f"{self.host}:{self.port}", "is a server listening on this port?"
        return await _open(
            serve, lambda make: loop.create_connection(make, self.host, self.port), where, advice, self._limits
        )
