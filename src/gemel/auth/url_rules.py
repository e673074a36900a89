"""Which URLs of a peer may be requested, and which addresses may be connected to (server-side request forgery).

Specification: Security Best Practices, section "Server-Side Request Forgery (SSRF)".
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

from gemel.errors import AuthorizationFailed, DefinitionError, shorten
from gemel.http1.client import network
from gemel.http1.client.pool import Target, read_url

#: Longer URLs of a peer are refused.
URL_BYTES = 4096

#: Unicast addresses of IPv6 that are global (RFC 4291), except for Teredo and 6to4, which hide an IPv4 address, and documentation.
_GLOBAL_UNICAST = ip_network("2000::/3")
_NOT_GLOBAL = (ip_network("2001::/32"), ip_network("2002::/16"), ip_network("3fff::/20"))
#: NAT64 (RFC 6052): the last 32 bits are an IPv4 address.
_NAT64 = ip_network("64:ff9b::/96")
#: The interface id of ISATAP (RFC 5214) before its IPv4 address.
_ISATAP = (0x00005EFE, 0x02005EFE)
#: Global, or so for some versions of Python, but never a server of interest: metadata of Azure, relays of 6to4, protocol
#: assignments (metadata of Oracle among them).
_SPECIAL = (ip_network("168.63.129.16/32"), ip_network("192.88.99.0/24"), ip_network("192.0.0.0/24"))


class UrlRefused(AuthorizationFailed):
    """A URL that a peer named must not be requested."""


class UrlRules:
    """Decides which URLs may be requested on behalf of a server.

    https to public addresses is allowed. http and loopback addresses are allowed if the server itself is on loopback.

    Args:
        server: The URL of the MCP server that the user named; None if there is none. Its origin may be requested.
        trusted: Further URLs that the user named: their origins may be requested, whatever their addresses are.
        private_networks: Whether private addresses are allowed, and http.
        look_up: Resolves a host and a port in place of `network.resolve`.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        trusted: Iterable[str] = (),
        private_networks: bool = False,
        look_up: Callable[[str, int], Awaitable[Sequence[Any]]] | None = None,
    ) -> None:
        own = None if server is None else read_url(server)
        self.server_origin = None if own is None else own.origin
        self._is_local = own is not None and is_loopback_name(own.host)
        self._trusted = {read_url(url).origin for url in trusted} | ({own.origin} if own is not None else set())
        self._places = {(host, port) for _, host, port in self._trusted}
        self._private = private_networks
        self._look_up = look_up

    def check(self, url: str) -> Target:
        """Check a URL before it is requested. What its host resolves to is checked by `resolve`.

        Args:
            url: The URL.

        Returns:
            The URL taken apart.

        Raises:
            UrlRefused: It must not be requested.
        """
        target = parse_url(url)
        if target.origin in self._trusted:
            return target
        self._check_scheme(target, url)
        if is_loopback_name(target.host) and not (self._is_local or self._private):
            raise UrlRefused(f"{describe(url)} is on this machine, and the server is not")
        try:
            numeric = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            return target  # a name
        self._check_addresses(target.host, numeric)
        return target

    def check_endpoint(self, url: str) -> Target:
        """Check a URL that gets secrets or is opened in a browser: as `check`, and http only on loopback.

        Args:
            url: The URL.

        Returns:
            The URL taken apart.

        Raises:
            UrlRefused: It must not be used.
        """
        target = self.check(url)
        self._check_scheme(target, url)
        return target

    async def resolve(self, host: str, port: int) -> Sequence[Any]:
        """Resolve a host, and check every address; connect to one of these only.

        Args:
            host: The host.
            port: The port.

        Returns:
            The addresses, as `socket.getaddrinfo` does.

        Raises:
            OSError: The host is unknown.
            UrlRefused: An address must not be connected to.
        """
        addresses = await (self._look_up or network.resolve)(host, port)
        if (host, port) not in self._places:
            self._check_addresses(host, addresses)
        return addresses

    def _check_scheme(self, target: Target, url: str) -> None:
        local = self._is_local and is_loopback_name(target.host)
        if target.scheme != "https" and not (local or self._private):
            raise UrlRefused(f"{describe(url)} is not https")

    def _check_addresses(self, host: str, addresses: Sequence[Any]) -> None:
        for address in addresses:
            if not self._allows(ip_address(address[4][0])):
                advice = (
                    "; private_networks=True, or --private-networks, allows it"
                    if _is_private(ip_address(address[4][0]))
                    else ""
                )
                raise UrlRefused(
                    f"The host {shorten(host)!r} has an address in a private or special network ({address[4][0]}){advice}"
                )

    def _allows(self, address: IPv4Address | IPv6Address) -> bool:
        if address.is_loopback:
            return self._is_local or self._private
        return is_public(address) or (self._private and _is_private(address))


def parse_url(url: str) -> Target:
    """Take a URL of a peer apart.

    Args:
        url: The URL.

    Returns:
        Its parts.

    Raises:
        UrlRefused: It is not an http or https URL, or holds what such a URL can't.
    """
    if len(url) > URL_BYTES or not url.isprintable() or set(url) & set(' \\<>"{}|^`'):
        raise UrlRefused(f"{describe(url)} is not a URL that can be requested")
    with suppress(DefinitionError):
        target = read_url(url)
        if "%" not in target.host:
            return target
    raise UrlRefused(f"{describe(url)} is not an http or https URL that can be requested")


def is_loopback_name(host: str) -> bool:
    """Whether a host, as a URL spells it, means this machine.

    Args:
        host: A name or an address.

    Returns:
        Whether it is `localhost`, a name below it, or a loopback address.
    """
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is one of the public Internet, and not a private, special or embedded one.

    Args:
        address: The address.

    Returns:
        Whether a server can have it.
    """
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast and not any(address in net for net in _SPECIAL)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    excluded = any(address in net for net in _NOT_GLOBAL) or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP
    return address in _GLOBAL_UNICAST and address.is_global and not excluded


def _is_private(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        return address in ip_network("fc00::/7") and address not in ip_network("fd00:ec2::/32")
    return any(
        address in ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
    ) and address != IPv4Address("100.100.100.200")


def describe(url: str) -> str:
    """A URL for an error text: without user, query and fragment, which may hold secrets.

    Args:
        url: The URL.

    Returns:
        Scheme, host and path in quotes, shortened.
    """
    try:
        parts = urlsplit(url)
        text = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else parts.path
    except ValueError:
        text = "a malformed URL"
    return repr(shorten("".join(c if c.isprintable() else " " for c in text), 200))
