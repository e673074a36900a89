"""HTTP proxies for the client: which one stands before a host, the tunnel through it. Knows neither MCP nor pools."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast
from urllib.parse import unquote, urlsplit

from hinge.errors import DefinitionError

#: The answer of a proxy to CONNECT may be this long.
_ANSWER_BYTES = 16 * 1024


class ProxyRoute(NamedTuple):
    """The proxy to go through, and the headers that it wants."""

    host: str
    port: int
    headers: tuple[tuple[str, str], ...] = ()


def find_proxy(setting: str | None, scheme: str, host: str, port: int) -> ProxyRoute | None:
    """The proxy for a server: the one that the setting names, none for "", what the environment says for None.

    Raises DefinitionError for a proxy that is not an http:// URL.
    """
    if setting is not None:
        return read_proxy(setting) if setting else None
    from os import environ

    if not any(name.lower().endswith("_proxy") for name in environ):
        return None
    return from_environment({name.lower(): value for name, value in environ.items()}, scheme, host, port)


def from_environment(variables: Mapping[str, str], scheme: str, host: str, port: int) -> ProxyRoute | None:
    """What lower-case `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` say; loopback has no proxy."""
    if "request_method" in variables and scheme == "http":
        return None  # in a CGI program HTTP_PROXY is a header of whoever called (CVE-2016-5385)
    found = variables.get(f"{scheme}_proxy") or variables.get("all_proxy")
    if not found or _is_loopback(host) or _is_exempt(variables.get("no_proxy", ""), host, port):
        return None
    return read_proxy(found if "://" in found else f"http://{found}")


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host == "::1" or (host.startswith("127.") and host.replace(".", "").isdigit())


def _is_exempt(no_proxy: str, host: str, port: int) -> bool:
    """Whether NO_PROXY names the host: exactly, as a domain above it, with or without a port, or `*`."""
    for item in no_proxy.lower().replace(",", " ").split():
        name, _, number = item.rpartition(":") if item.count(":") == 1 else (item, "", "")
        if number and number != str(port):
            continue
        name = name.removeprefix("*").strip(".[]")
        if not name and item.startswith("*"):
            return True
        if name and (host == name or host.endswith(f".{name}")):
            return True
    return False


def read_proxy(url: str) -> ProxyRoute:
    """Take the URL of a proxy apart; a user name and password in it become Proxy-Authorization."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise DefinitionError(f"The proxy's URL can't be read: {exc}") from None
    if parts.scheme != "http" or not host:
        raise DefinitionError(f"A proxy must be an http:// URL, not {parts.scheme or 'nothing'}://{host or ''}")
    headers: tuple[tuple[str, str], ...] = ()
    if parts.username is not None:
        from base64 import b64encode

        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers = (("Proxy-Authorization", f"Basic {b64encode(pair).decode()}"),)
    return ProxyRoute(host, port or 80, headers)


class _Connect(asyncio.Protocol):
    """Says CONNECT and waits for the proxy's answer."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._received = bytearray()
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > _ANSWER_BYTES:
                self._fail("it sent no answer to CONNECT")
            return
        status = bytes(self._received[: self._received.find(b"\r\n")]).split(b" ", 2)
        if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or not status[1].startswith(b"2"):
            self._fail(b" ".join(status[1:])[:100].decode("latin-1"))
        elif len(self._received) > end + 4:
            self._fail("it sent more than its answer")
        elif not self.answered.done():
            self.answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc or "it closed the connection"))

    def _fail(self, reason: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(ConnectionError(f"The proxy refuses the tunnel: {reason}"))
            self.answered.exception()


async def open_tunnel(
    route: ProxyRoute, host: str, port: int, context: ssl.SSLContext, connection: asyncio.Protocol
) -> None:
    """Ask the proxy for a tunnel to the server, speak TLS through it and hand it to `connection`.

    Raises OSError if the proxy can't be reached or refuses, or if there is no TLS.
    """
    loop = asyncio.get_running_loop()
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [
        f"CONNECT {authority} HTTP/1.1",
        f"Host: {authority}",
        *(f"{name}: {value}" for name, value in route.headers),
    ]
    request = ("\r\n".join(lines) + "\r\n\r\n").encode()
    transport, protocol = await loop.create_connection(lambda: _Connect(request), route.host, route.port)
    try:
        await protocol.answered
        secured = await loop.start_tls(transport, connection, context, server_hostname=host)
    except BaseException:
        transport.abort()
        raise
    if secured is None:
        raise ConnectionError("The connection closed while TLS began")
    connection.connection_made(secured)
