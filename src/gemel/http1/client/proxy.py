"""HTTP proxies for the client: which one stands before a host, the tunnel through it. Knows neither MCP nor pools."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from gemel.errors import DefinitionError
from gemel.http1.client.network import OTHER_CLIENT

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
        return parse_proxy(setting, "`proxy`") if setting else None
    from os import environ

    if not any(name.lower().endswith("_proxy") for name in environ):
        return None
    return from_environment({name.lower(): value for name, value in environ.items()}, scheme, host, port)


def from_environment(variables: Mapping[str, str], scheme: str, host: str, port: int) -> ProxyRoute | None:
    """What lower-case `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` say; loopback has no proxy."""
    if "request_method" in variables and scheme == "http":
        return None  # in a CGI program HTTP_PROXY is a header of whoever called (CVE-2016-5385)
    name = next((name for name in (f"{scheme}_proxy", "all_proxy") if variables.get(name)), None)
    if name is None or _is_exempt(variables.get("no_proxy", ""), host, port):
        return None
    url = variables[name]
    return parse_proxy(url if "://" in url else f"http://{url}", f"{name.upper()} in the environment")


def _is_exempt(no_proxy: str, host: str, port: int) -> bool:
    """Whether a host needs no proxy: loopback, or named by NO_PROXY.

    NO_PROXY has hosts, domains, addresses and networks (10.0.0.0/8), each with or without a port, or `*`.
    """
    address = _parse_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for item in no_proxy.lower().replace(",", " ").split():
        name, _, number = item.rpartition(":") if item.count(":") == 1 or "]:" in item else (item, "", "")
        if number and number != str(port):
            continue
        if name == "*":
            return True
        name = name.removeprefix("*").strip(".[]")
        if name and (host == name or host.endswith(f".{name}")):
            return True
        if address is not None and _is_in_network(address, name):
            return True
    return False


def _parse_address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_in_network(address: IPv4Address | IPv6Address, text: str) -> bool:
    try:
        return address in ip_network(text, strict=False)
    except ValueError:
        return False


def parse_proxy(url: str, source: str) -> ProxyRoute:
    """Parse the URL of a proxy; a user name and password in it become Proxy-Authorization.

    Args:
        url: The URL.
        source: Where it was given, for the error.

    Raises:
        DefinitionError: It is not an http:// URL.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise DefinitionError(f"{source} is not a URL: {exc}") from None
    if parts.scheme.startswith("socks"):
        raise DefinitionError(f'{source} is a SOCKS proxy: {OTHER_CLIENT}, or proxy="" for no proxy')
    if parts.scheme != "http" or not host:
        raise DefinitionError(f"{source} must be an http:// URL, not {parts.scheme or 'nothing'}://{host or ''}")
    headers: tuple[tuple[str, str], ...] = ()
    if parts.username is not None:
        from base64 import b64encode

        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers = (("Proxy-Authorization", f"Basic {b64encode(pair).decode()}"),)
    return ProxyRoute(host, port or 80, headers)


async def open_tunnel(sock: socket.socket, route: ProxyRoute, host: str, port: int) -> None:
    """Ask the proxy at the other end of a socket for a tunnel to a server (RFC 9110, "CONNECT").

    Raises:
        OSError: The proxy refuses, or the connection broke.
    """
    loop = asyncio.get_running_loop()
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    lines += [f"{name}: {value}" for name, value in route.headers]
    await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        received = await loop.sock_recv(sock, _ANSWER_BYTES)
        if not received:
            raise ConnectionError("The proxy refuses the tunnel: it closed the connection")
        answer += received
        if len(answer) > _ANSWER_BYTES:
            raise ConnectionError("The proxy refuses the tunnel: it sent no answer to CONNECT")
    version, _, status = answer.partition(b"\r\n")[0].partition(b" ")
    if not version.startswith(b"HTTP/1.") or not status.startswith(b"2"):
        raise ConnectionError(f"The proxy refuses the tunnel: {status[:100].decode('latin-1')}")
    if not answer.endswith(b"\r\n\r\n"):
        raise ConnectionError("The proxy refuses the tunnel: it sent more than its answer")
