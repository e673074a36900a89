"""OpenTelemetry for what a server receives: left out of the middleware chain if the process has no provider."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hinge.server.context import Context
from hinge.server.middleware.chain import CallNext, Middleware
from hinge.session import Session
from hinge.telemetry import ACTIVE_SESSIONS, NETWORK, Telemetry, current_telemetry, telemetry_params


def observer(serves: Callable[[str], bool]) -> Middleware | None:
    """Middleware that makes a span and measurements for each message; None in a process without a provider.

    `serves` says whether a method exists.
    """
    telemetry = current_telemetry()
    if telemetry is None:
        return None
    return lambda ctx, call_next: _observed(telemetry, serves(ctx.method), ctx, call_next)


async def _observed(telemetry: Telemetry, served: bool, ctx: Context[Any], call_next: CallNext) -> Any:
    network = dict(NETWORK[ctx._session.channel.kind])
    details: dict[str, Any] = {}
    _add_client_address(ctx._call.origin.transport, network, details)
    if not ctx._call.inline:  # `initialize` negotiates the revision
        network["mcp.protocol.version"] = ctx.protocol_version
    client, head = ctx.client_info, ctx._call.origin.head
    names: dict[str, Any] = {
        "jsonrpc.request.id": None if ctx.request_id is None else str(ctx.request_id)[:100],
        "mcp.session.id": head.session_id if head is not None else None,
        "enduser.id": ctx.principal,
        "mcp.client.name": client.name[:100] if client is not None else None,
        "mcp.client.version": client.version[:100] if client is not None else None,
    }
    details |= {name: value for name, value in names.items() if value is not None}
    with telemetry.receiving(ctx.method, telemetry_params(ctx.params), network, details, served=served) as operation:
        result = await call_next(ctx)
        if ctx._call.failure is not None:
            operation.record_exception(ctx._call.failure)
        operation.finished(ctx.method, result)
        return result


def _add_client_address(transport: Any, network: dict[str, Any], details: dict[str, Any]) -> None:
    """Describe the peer by what the transport knows: an ASGI scope, or the address of a socket."""
    address = transport
    if isinstance(transport, dict):
        network["network.protocol.version"] = transport.get("http_version", "1.1")
        address = transport.get("client")
    if isinstance(address, list | tuple) and len(address) >= 2:
        details["client.address"], details["client.port"] = str(address[0]), address[1]
    elif isinstance(address, str):
        network["network.transport"] = "unix"


def observe_session(session: Session) -> None:
    """Measure a session of the server until it ends, if the process has a meter provider."""
    telemetry = current_telemetry()
    if telemetry is None:
        return
    start = time.perf_counter()
    sessions = telemetry.counters[ACTIVE_SESSIONS]
    sessions.add(1)

    async def ended() -> None:
        sessions.add(-1)
        network = dict(NETWORK[session.channel.kind])
        if session.connection.handshake.client_info is not None:
            network["mcp.protocol.version"] = session.connection.handshake.revision
        telemetry.session_ended("server", start, network)

    session.on_close(ended)
