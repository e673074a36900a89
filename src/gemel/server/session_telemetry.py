"""OpenTelemetry for the sessions of a server and the requests that it sends. Not imported in a process without a provider."""

from __future__ import annotations

import time
from typing import Any
from weakref import WeakKeyDictionary

from gemel.errors import ProtocolError
from gemel.jsonrpc import RequestId
from gemel.session import Session
from gemel.spans import Telemetry, network_of

#: What is known about the network of each observed session: its calls tell more than its channel.
_networks: WeakKeyDictionary[Session, dict[str, Any]] = WeakKeyDictionary()


def observe_session(telemetry: Telemetry, session: Session) -> None:
    """Measure a session of the server until it ends."""
    start, network = time.perf_counter(), network_of(session.channel.kind)
    _networks[session] = network
    sessions = telemetry.counters["gemel.server.active_sessions"]
    sessions.add(1)

    async def ended() -> None:
        sessions.add(-1)
        if session.connection.handshake.client_info is not None:
            network["mcp.protocol.version"] = session.connection.handshake.revision
        failure = getattr(session.channel, "failure", None)
        if failure is not None:
            is_coded = isinstance(failure, ProtocolError)
            network["error.type"] = str(failure.error.code) if is_coded else type(failure).__name__
        telemetry.session_ended("server", start, network)

    session.on_close(ended)


def learn_network(session: Session, network: dict[str, Any]) -> None:
    """Remember what a call told about the network of an observed session."""
    if (known := _networks.get(session)) is not None:
        known.update(network)


def session_id(session: Session) -> str | None:
    """The id of an HTTP session; None for other sessions."""
    return getattr(session.channel, "id", None) if session.channel.kind == "session" else None


def describe_request(session: Session, revision: str, request_id: RequestId) -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes of a request that the server sends: those of spans and metrics, and those of the span alone."""
    network = {**_networks.get(session, {}), "mcp.protocol.version": revision}
    details = {"jsonrpc.request.id": str(request_id), "mcp.session.id": session_id(session)}
    return network, {name: value for name, value in details.items() if value is not None}
