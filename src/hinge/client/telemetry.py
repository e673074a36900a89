"""OpenTelemetry for a client: what is known about the connection to a server. Not imported in a process without a provider."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from hinge.local_sockets import is_pipe
from hinge.recorder import Attributes


def network_attributes(transport: Any) -> Attributes:
    """The address of a transport, without path and query of a URL, which may contain secrets."""
    url, host = getattr(transport, "url", None), getattr(transport, "host", None)
    if isinstance(url, str):
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        version = getattr(transport, "http_version", None)
        protocol = {"network.protocol.name": "http"} | (
            {} if version is None else {"network.protocol.version": version}
        )
        return {"network.transport": "tcp", **protocol, **_address(parts.hostname, port)}
    if isinstance(host, str):
        return {"network.transport": "tcp", **_address(host, getattr(transport, "port", None))}
    if isinstance(path := getattr(transport, "path", None), str):
        return {"network.transport": "pipe" if is_pipe(path) else "unix", **_address(path, None)}
    return {"network.transport": "pipe"} if hasattr(transport, "command") else {}


def _address(host: str | None, port: int | None) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {}
    if host is not None:
        attributes["server.address"] = host
    if port is not None:
        attributes["server.port"] = port
    return attributes
