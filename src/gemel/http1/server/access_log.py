"""An access log of HTTP requests, and the clients behind trusted proxies."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import lru_cache, partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias

from gemel.http1.asgi import Scope
from gemel.http1.server.request import ServedRequest

logger = logging.getLogger("gemel.access")

ServeRequest: TypeAlias = Callable[[ServedRequest], Coroutine[Any, Any, None]]


def with_access_log(serve: ServeRequest) -> ServeRequest:
    """Log each request to `gemel.access`; to stderr if the program has not configured logging.

    Queries are left out: those of a login have codes in them.
    """
    logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)

    async def serve_and_log(request: ServedRequest) -> None:
        request.on_over = partial(_log, request, time.perf_counter())
        await serve(request)

    return serve_and_log


def _log(request: ServedRequest, began: float) -> None:
    scope, address = request.scope, request.scope["client"]
    client, principal = "unix" if address is None else address[0], scope.get("gemel.principal")
    path = ascii(scope["raw_path"].decode("latin-1"))[1:-1] + ("?…" if scope["query_string"] else "")
    ms = (time.perf_counter() - began) * 1000
    more = {
        "http_client": client,
        "http_principal": principal,
        "http_method": scope["method"],
        "http_path": path,
        "http_status": request.status,
        "http_bytes": request.sent,
        "http_ms": round(ms, 3),
    }
    logger.info(
        '%s %s "%s %s HTTP/%s" %d %d bytes %d ms',
        client,
        ascii(principal or "-")[1:-1],
        scope["method"],
        path,
        scope["http_version"],
        request.status,
        request.sent,
        ms,
        extra=more,
    )


def with_trusted_proxies(serve: ServeRequest, proxies: Iterable[str]) -> ServeRequest:
    """Take the client's address and scheme from X-Forwarded-For and X-Forwarded-Proto of trusted proxies.

    Args:
        serve: Serves a request.
        proxies: Addresses and networks of the proxies; "unix" trusts connections to a Unix socket.

    Raises:
        ValueError: An entry is neither an address nor a network.
    """
    names = set(proxies)
    networks = [parse_network(name) for name in names - {"unix"}]

    @lru_cache(maxsize=256)
    def trusts(address: str) -> bool:
        return any(ip_address(address) in network for network in networks)

    async def serve_forwarded(request: ServedRequest) -> None:
        scope = request.scope
        peer = scope["client"]
        if "unix" in names if peer is None else trusts(peer[0]):
            _apply_forwarded(scope, trusts)
        await serve(request)

    return serve_forwarded


def parse_network(text: str) -> IPv4Network | IPv6Network:
    """Parse an address or a network in CIDR notation. Raises ValueError."""
    return ip_network(text, strict=False)


def _apply_forwarded(scope: Scope, trusts: Callable[[str], bool]) -> None:
    """Each proxy appends the address that it saw, so the client is the last one that is not a trusted proxy."""
    for entry in reversed(_header_items(scope, b"x-forwarded-for")):
        host = entry.partition("]")[0].removeprefix("[") if entry.startswith("[") else entry
        if host.count(":") == 1:
            host = host.partition(":")[0]
        try:
            address = str(ip_address(host))
        except ValueError:
            break
        scope["client"] = (address, 0)
        if not trusts(address):
            break
    schemes = _header_items(scope, b"x-forwarded-proto")
    if schemes and schemes[-1].lower() in ("http", "https"):
        scope["scheme"] = schemes[-1].lower()


def _header_items(scope: Scope, header: bytes) -> list[str]:
    values = b",".join(value for name, value in scope["headers"] if name == header)
    return [item.strip() for item in values.decode("latin-1").split(",") if item.strip()]
