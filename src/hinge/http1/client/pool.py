"""The default Wire: HTTP/1.1 over asyncio's sockets, with kept connections. Knows URLs, TLS and idle time, no MCP."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Iterable
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hinge.errors import DefinitionError, NotSent
from hinge.http1.client.connection import SocketConnection
from hinge.http1.client.proxy import ProxyRoute, find_proxy, open_tunnel
from hinge.http1.client.wire import HeaderPairs, WireResponse

#: A connection that was idle for longer isn't used again, unless the server says how long it keeps one (Keep-Alive).
#: Common servers close after 5 s: a request that meets the close is lost, and nobody knows whether it ran.
IDLE_SECONDS = 4.0
#: No connection stays idle for longer, whatever the server says.
MAX_IDLE_SECONDS = 60.0
#: Idle longer than this: let the event loop look whether the server has closed meanwhile.
_STALE_SECONDS = 0.5

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HOST = re.compile(r"[-0-9A-Za-z._~%:]+")
#: An address, not a name.
_NUMERIC = re.compile(r"[0-9.]+|.*:.*")
_TIMEOUT = re.compile(r"(?:^|[,\s])timeout=(\d{1,6})")


class Target(NamedTuple):
    """A URL taken apart, as far as a request needs it."""

    scheme: str
    host: str
    port: int
    path: str
    #: The value of the Host header.
    authority: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """What two URLs have in common that may share a connection."""
        return self.scheme, self.host, self.port


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
    return Target(parts.scheme, host, port or _PORTS[parts.scheme], path, authority)


@lru_cache(maxsize=256)
def check_name(name: str) -> None:
    """Raise NotSent unless this can be the name of a header."""
    if not _NAME.fullmatch(name):
        raise NotSent(f"{name!r} can't be the name of a header")


def request_head(method: str, target: Target, headers: HeaderPairs, length: int | None, proxied: bool = False) -> bytes:
    """The bytes of a request's head. Raises NotSent for a header that can't be written (a line end, a NUL)."""
    path = f"http://{target.authority}{target.path}" if proxied else target.path
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target.authority}", "Accept-Encoding: gzip"]
    for name, value in headers:
        check_name(name)
        lines.append(f"{name}: {value}")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    lines.append("\r\n")
    head = "\r\n".join(lines)
    # Each line end must be one of ours, or a value could smuggle in a header or a request.
    if head.count("\n") != len(lines) or head.count("\r") != len(lines) or "\0" in head:
        bad = [name for name, value in headers if set(value) & {"\r", "\n", "\0"}]
        raise NotSent(f"The value of the header {', '.join(bad)} holds a line end or NUL, which no header can")
    try:
        return head.encode()
    except UnicodeEncodeError as exc:
        raise NotSent(f"A header's value can't be written as UTF-8: {exc.reason}") from None


@cache
def _default_tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def tls_context(tls: ssl.SSLContext | str | bool) -> ssl.SSLContext:
    """The context for `tls`: True checks against the system's authorities, a path against the ones in that file.

    False checks nothing: whoever is between us and the server can read and change everything.
    """
    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is True:
        return _default_tls()
    if tls is False:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    try:
        return ssl.create_default_context(cafile=tls)
    except OSError as exc:
        raise DefinitionError(f"tls={tls!r}: the file with the certificates can't be read: {exc}") from exc


class SocketWire:
    """HTTP/1.1 with kept connections.

    `tls` is True (the system's authorities), the path of a file of authorities, an SSLContext, or False (no check).
    `proxy` is the URL of an HTTP proxy, None for what HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say, or "" for
    none. `connect` limits opening a connection, `idle` how long one is kept unused, in seconds.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | str | bool = True,
        proxy: str | None = None,
        connect: float = 30.0,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._tls = tls
        self._proxy = proxy
        self._connect = connect
        self._idle_limit = idle
        self._closed = False
        self._idle: dict[tuple[str, str, int], list[SocketConnection]] = {}
        self._all: set[SocketConnection] = set()
        self._routes: dict[tuple[str, str, int], ProxyRoute | None] = {}
        self._reaper: asyncio.TimerHandle | None = None

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> WireResponse:
        """See Wire.open."""
        target = read_url(url)
        route = self._route(target)
        length = len(body) if body is not None else None
        if route is not None and target.scheme == "http":
            headers = [*headers, *route.headers]
        head = request_head(method, target, headers, length, proxied=route is not None and target.scheme == "http")
        connection = self._take(target)
        if connection is None:
            connection = await self._fresh(target, route)
        elif asyncio.get_running_loop().time() - connection.idle_since > _STALE_SECONDS:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if not connection.usable:
                connection = await self._fresh(target, route)
        if self._closed or not connection.usable:
            connection.abort()
            raise NotSent(
                f"{target.authority} closed the connection at once" if not self._closed else "The wire is closed"
            )
        return await connection.send(head, body).head()

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        for connection in list(self._all):
            connection.abort()
        if self._reaper is not None:
            self._reaper.cancel()

    # ---------------------------------------------------------------- the pool

    def _take(self, target: Target) -> SocketConnection | None:
        if self._closed:
            raise NotSent("The wire is closed")
        idle = self._idle.get(target.origin)
        if not idle:
            return None
        now = asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if connection.usable and now - connection.idle_since < connection.idle_limit:
                return connection
            connection.abort()
        return None

    async def _fresh(self, target: Target, route: ProxyRoute | None) -> SocketConnection:
        origin = target.origin
        connection = SocketConnection(partial(self._keep, origin), partial(self._forget, origin))
        self._all.add(connection)
        try:
            async with asyncio.timeout(self._connect):
                await self._connect_to(target, route, connection)
        except TimeoutError:
            raise NotSent(f"No connection to {target.authority} within {self._connect:g} s") from None
        except (OSError, UnicodeError, ssl.CertificateError) as exc:
            raise NotSent(_why_not(target, exc)) from exc
        finally:
            if not connection.usable:
                self._all.discard(connection)
        return connection

    async def _connect_to(self, target: Target, route: ProxyRoute | None, connection: SocketConnection) -> None:
        loop = asyncio.get_running_loop()
        context = tls_context(self._tls) if target.scheme == "https" else None
        if route is not None and context is not None:
            await open_tunnel(route, target.host, target.port, context, connection)
            return
        host, port = (target.host, target.port) if route is None else (route.host, route.port)
        options: dict[str, Any] = {}
        if context is not None:
            options.update(ssl=context, server_hostname=target.host)
        if isinstance(loop, asyncio.BaseEventLoop) and _NUMERIC.fullmatch(host) is None:
            options["happy_eyeballs_delay"] = 0.25  # RFC 8305; uvloop has no such option
        transport, _ = await loop.create_connection(lambda: connection, host, port, **options)
        _keep_watch(transport.get_extra_info("socket"))

    def _keep(self, origin: tuple[str, str, int], connection: SocketConnection, keep_alive: str) -> None:
        """A connection can carry another request."""
        if self._closed:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        connection.idle_limit = self._idle_limit if not keep_alive else _kept_for(keep_alive, self._idle_limit)
        self._idle.setdefault(origin, []).append(connection)
        if self._reaper is None:
            self._reaper = loop.call_later(self._idle_limit, self._reap)

    def _forget(self, origin: tuple[str, str, int], connection: SocketConnection) -> None:
        self._all.discard(connection)
        idle = self._idle.get(origin)
        if idle is not None and connection in idle:
            idle.remove(connection)

    def _reap(self) -> None:
        """Close what was idle for too long, and look again while anything is idle."""
        self._reaper = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in _flat(self._idle.values()):
            if now - connection.idle_since >= connection.idle_limit:
                connection.abort()
        if any(self._idle.values()):
            self._reaper = loop.call_later(self._idle_limit, self._reap)

    def _route(self, target: Target) -> ProxyRoute | None:
        try:
            return self._routes[target.origin]
        except KeyError:
            route = self._routes[target.origin] = find_proxy(self._proxy, target.scheme, target.host, target.port)
            return route


def _keep_watch(sock: socket.socket | None) -> None:
    """A stream may be silent for hours, so a peer that vanished must be noticed: by TCP, after about two minutes."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _flat(groups: Iterable[list[SocketConnection]]) -> list[SocketConnection]:
    return [connection for group in groups for connection in group]


def _kept_for(keep_alive: str, otherwise: float) -> float:
    """How long to keep a connection by the server's Keep-Alive header: a second less than the server does."""
    found = _TIMEOUT.search(keep_alive)
    return otherwise if found is None else min(max(int(found[1]) - 1.0, 0.0), MAX_IDLE_SECONDS)


def _why_not(target: Target, exc: Exception) -> str:
    where = f"{target.host}:{target.port}"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return (
            f"The certificate of {where} was not accepted: {exc.verify_message}. Pass `tls` the file of its authority"
        )
    if isinstance(exc, ssl.SSLError):
        return f"No TLS with {where}: {exc.reason or exc}. Does the server speak https on this port?"
    if isinstance(exc, socket.gaierror):
        return f"The host {target.host!r} was not found: {exc.strerror}"
    return f"No connection to {where}: {exc}. Is the server running?"
