"""The default Wire: HTTP/1.1 over asyncio's sockets, with kept connections. Knows URLs, TLS and idle time, no MCP."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections import defaultdict
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from gemel.errors import DefinitionError, NotSent
from gemel.http1.client.connection import SocketConnection
from gemel.http1.client.network import DEFAULT_TLS, Resolver, TlsContext, TlsSetting, explain_failure, open_socket
from gemel.http1.client.proxy import ProxyRoute, find_proxy, open_tunnel
from gemel.http1.client.wire import HeaderPairs, WireResponse
from gemel.local_sockets import connect_locally

#: A connection that was idle for longer isn't used again, unless the server says how long it keeps one (Keep-Alive).
#: Common servers close after 5 s: a request that meets the close is lost, and nobody knows whether it ran.
IDLE_SECONDS = 4.0
#: How many heads of requests a wire remembers, and the most bytes of one.
HEADS = 64
LONG_HEAD = 4096
#: No connection stays idle for longer, whatever the server says.
MAX_IDLE_SECONDS = 60.0

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HOST = re.compile(r"[-0-9A-Za-z._~%:]+")
_TIMEOUT = re.compile(r"(?:^|[,\s])timeout=(\d{1,6})")

#: What two URLs have in common that may share a connection: scheme, host, port.
Origin: TypeAlias = tuple[str, str, int]


class Target(NamedTuple):
    """A URL taken apart, as far as a request needs it."""

    scheme: str
    host: str
    port: int
    path: str
    #: The value of the Host header.
    authority: str
    origin: Origin


@lru_cache(maxsize=64)
def read_url(url: str) -> Target:
    """Take an http or https URL apart. Raises DefinitionError for anything else."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if not host.isascii():
            host = host.encode("idna").decode()
    except ValueError as exc:
        raise DefinitionError(f"{url!r} is not a URL: {exc}") from None
    if parts.scheme not in _PORTS or not _HOST.fullmatch(host):
        raise DefinitionError(f"{url!r} is not an http:// or https:// URL with a host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise DefinitionError(f"{url!r} holds characters that a URL can't; write them percent-encoded")
    if parts.username is not None:
        raise DefinitionError(
            'The URL holds a user name or password; give an Authorization header instead (auth=… in code, "headers" in a '
            "configuration, --header on the command line)"
        )
    name = f"[{host}]" if ":" in host else host
    authority = name if port is None or port == _PORTS[parts.scheme] else f"{name}:{port}"
    origin = parts.scheme, host, port or _PORTS[parts.scheme]
    return Target(*origin, path, authority, origin)


@lru_cache(maxsize=256)
def check_name(name: str) -> None:
    """Raise NotSent unless this can be the name of a header."""
    if not _NAME.fullmatch(name):
        raise NotSent(f"{name!r} can't be the name of a header")


def check_header(name: str, value: str) -> tuple[bytes, bytes]:
    """Return a header as bytes. Raises NotSent if it can't be written."""
    check_name(name)
    if set(value) & {"\r", "\n", "\0"}:
        raise NotSent(f"The value of the header {name} holds a line end or NUL")
    try:
        return name.encode(), value.encode()
    except UnicodeEncodeError as exc:
        raise NotSent(f"The value of the header {name} can't be written as UTF-8: {exc.reason}") from None


def request_head(method: str, target: Target, headers: HeaderPairs, length: int | None, proxied: bool = False) -> bytes:
    """The bytes of a request's head. Raises NotSent for a header that can't be written (a line end, a NUL)."""
    return _with_length(_head_without_length(method, target, headers, proxied), length)


def _with_length(head: bytes, length: int | None) -> bytes:
    return head + b"\r\n" if length is None else b"%bContent-Length: %d\r\n\r\n" % (head, length)


def _head_without_length(method: str, target: Target, headers: HeaderPairs, proxied: bool) -> bytes:
    path = f"http://{target.authority}{target.path}" if proxied else target.path
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target.authority}", "Accept-Encoding: gzip"]
    for name, value in headers:
        check_name(name)
        lines.append(f"{name}: {value}")
    lines.append("")
    head = "\r\n".join(lines)
    # Each line end must be one of ours, or a value could smuggle in a header or a request.
    is_safe = head.count("\n") == head.count("\r") == len(lines) - 1 and "\0" not in head
    if not is_safe or not head.isascii():
        for name, value in headers:
            check_header(name, value)
        if not is_safe:
            raise NotSent(f"{method!r} can't be a method")
    return head.encode()


class SocketWire:
    """HTTP/1.1 with kept connections.

    Args:
        tls: True for the system's authorities, the path of a file with further authorities, an SSLContext, or False to
            verify nothing: then whoever is between us and the server can read and change everything. Wires that share
            a TlsContext share what it has loaded.
        proxy: The URL of an HTTP proxy, None for what HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say, "" for none.
        uds: The path of a Unix socket, or the name of a pipe, to connect to whatever the host; without a proxy.
        connect: Seconds for opening a connection.
        idle: Seconds that a connection is kept unused, if the server does not say how long it keeps it.
        resolver: Resolves the hosts of servers in place of the system, and may refuse their addresses.
    """

    http_version = "1.1"

    def __init__(
        self,
        *,
        tls: TlsSetting | TlsContext = True,
        proxy: str | None = None,
        uds: str | None = None,
        connect: float = 30.0,
        idle: float = IDLE_SECONDS,
        resolver: Resolver | None = None,
    ) -> None:
        self._tls = tls if isinstance(tls, TlsContext) else DEFAULT_TLS if tls is True else TlsContext(tls)
        self._proxy = proxy if uds is None else ""
        self._uds = uds
        self._connect_limit = connect
        self._idle_limit = idle
        self._resolver = resolver
        self._closed = False
        self._connections: set[SocketConnection] = set()
        self._idle: defaultdict[Origin, list[SocketConnection]] = defaultdict(list)
        self._routes: dict[Origin, ProxyRoute | None] = {}
        #: Heads that were made before, without their lengths: most requests to a URL have the same headers.
        self._heads: dict[tuple[str, str, tuple[tuple[str, str], ...]], bytes] = {}
        self._reaper: asyncio.TimerHandle | None = None

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> WireResponse:
        """See Wire.open."""
        target = read_url(url)
        route = self._route(target)
        proxied = route is not None and target.scheme == "http"
        if route is not None and proxied:
            headers = [*headers, *route.headers]
        key = method, url, tuple(headers)
        head = self._heads.get(key)
        if head is None:
            head = _head_without_length(method, target, headers, proxied)
            if len(self._heads) >= HEADS:
                self._heads.clear()
            if len(head) <= LONG_HEAD:
                self._heads[key] = head
        head = _with_length(head, None if body is None else len(body))
        while True:
            connection = self._take_idle(target.origin)
            if connection is not None and connection.has_input:
                await asyncio.sleep(0)  # let the event loop read what the server sent meanwhile: the end, most likely
                await asyncio.sleep(0)
                if not connection.usable:
                    continue
            reused = connection is not None
            if connection is None:
                connection = await self._connect(target, route)
                if self._closed or not connection.usable:
                    connection.cut()
                    raise NotSent(
                        "The wire is closed"
                        if self._closed
                        else f"No request to {target.authority}: {connection.reason}"
                    )
            response = connection.send(head, body)
            try:
                while not response.status:
                    if response.error is not None:
                        raise response.error
                    await response.wait()
            except BaseException:
                response.close()
                raise
            if not reused or response.status != 408 or response.headers.get("connection", "").lower() != "close":
                return response
            # The server closed the idle connection and did not read the request: it may be sent again (RFC 9110 §15.5.9).
            response.close()

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._heads.clear()  # they may hold tokens
        for connection in list(self._connections):
            connection.cut()
        if self._reaper is not None:
            self._reaper.cancel()

    def abandon(self) -> None:
        """Close every connection without the event loop, which is closed."""
        self._closed = True
        for connection in list(self._connections):
            connection.end_without_loop()

    # ---------------------------------------------------------------- new connections

    async def _connect(self, target: Target, route: ProxyRoute | None) -> SocketConnection:
        connection = SocketConnection(partial(self._keep, target.origin), partial(self._forget, target.origin))
        self._connections.add(connection)
        try:
            async with asyncio.timeout(self._connect_limit):
                await self._open_connection(target, route, connection)
        except TimeoutError:
            raise NotSent(f"No connection to {target.authority} within {self._connect_limit:g} s") from None
        except (OSError, UnicodeError, ssl.CertificateError) as exc:
            raise NotSent(self._explain(target, exc)) from exc
        finally:
            if not connection.usable:
                self._connections.discard(connection)
        return connection

    async def _open_connection(self, target: Target, route: ProxyRoute | None, connection: SocketConnection) -> None:
        options: dict[str, Any] = {}
        if target.scheme == "https":
            options = {"ssl": await self._tls.get(), "server_hostname": target.host}
        if self._uds is not None:
            await connect_locally(lambda: connection, self._uds, **options)
            return
        sock = await self._open_socket(target, route)
        try:
            if route is not None and target.scheme == "https":
                await open_tunnel(sock, route, target.host, target.port)
            await asyncio.get_running_loop().create_connection(lambda: connection, sock=sock, **options)
        except BaseException:
            sock.close()
            raise

    def _explain(self, target: Target, exc: Exception) -> str:
        if self._uds is not None and not isinstance(exc, ssl.SSLError):
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
            return f"No connection to {self._uds}: {reason}. Is a server listening there?"
        return explain_failure(target.host, target.port, exc)

    async def _open_socket(self, target: Target, route: ProxyRoute | None) -> socket.socket:
        if route is None:
            return await open_socket(target.host, target.port, self._resolver)
        try:
            return await open_socket(route.host, route.port)
        except (OSError, UnicodeError) as exc:
            raise NotSent(f"No proxy for {target.authority}: {explain_failure(route.host, route.port, exc)}") from exc

    def _route(self, target: Target) -> ProxyRoute | None:
        try:
            return self._routes[target.origin]
        except KeyError:
            route = self._routes[target.origin] = find_proxy(self._proxy, target.scheme, target.host, target.port)
            return route

    # ---------------------------------------------------------------- idle connections

    def _take_idle(self, origin: Origin) -> SocketConnection | None:
        if self._closed:
            raise NotSent("The wire is closed")
        idle = self._idle.get(origin)
        now = idle[0].loop.time() if idle else 0.0
        while idle:
            connection = idle.pop()
            if connection.usable and now - connection.idle_since < connection.idle_limit:
                return connection
            connection.cut()
        return None

    def _keep(self, origin: Origin, connection: SocketConnection, keep_alive: str) -> None:
        """Keep a connection that can carry another request."""
        if self._closed:
            connection.cut()
            return
        loop = connection.loop
        connection.idle_since = loop.time()
        connection.idle_limit = idle_limit(keep_alive, self._idle_limit) if keep_alive else self._idle_limit
        self._idle[origin].append(connection)
        if self._reaper is None:
            self._reaper = loop.call_later(self._idle_limit, self._reap)

    def _forget(self, origin: Origin, connection: SocketConnection) -> None:
        self._connections.discard(connection)
        idle = self._idle.get(origin)
        if idle is not None and connection in idle:
            idle.remove(connection)

    def _reap(self) -> None:
        """Close what was idle for too long, and look again while anything is idle."""
        self._reaper = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for idle in self._idle.values():
            for connection in idle:
                if now - connection.idle_since >= connection.idle_limit:
                    connection.cut()
        if any(self._idle.values()):
            self._reaper = loop.call_later(self._idle_limit, self._reap)


def idle_limit(keep_alive: str, default: float) -> float:
    """How long to keep a connection by the server's Keep-Alive header: a second less than the server does."""
    match = _TIMEOUT.search(keep_alive)
    return default if match is None else min(max(int(match[1]) - 1.0, 0.0), MAX_IDLE_SECONDS)
