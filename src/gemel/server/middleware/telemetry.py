"""OpenTelemetry for what a server receives. Not imported in a process without a provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.server.context import Context, served_call
from gemel.server.dispatch import CallNext
from gemel.server.middleware.chain import Middleware
from gemel.server.session_telemetry import learn_network, session_id
from gemel.spans import Telemetry, network_of


def observer(telemetry: Telemetry, serves: Callable[[str], bool]) -> Middleware:
    """Middleware that makes a span and measurements for each message. `serves` says whether a method exists."""
    return lambda ctx, call_next: _observed(telemetry, serves(ctx.method), ctx, call_next)


def nested_observer(telemetry: Telemetry) -> Middleware:
    """Middleware that makes a span for each request that a handler makes of its own server."""

    async def observe(ctx: Context[Any], call_next: CallNext) -> Any:
        with telemetry.nesting(ctx.method, ctx.decoded_params) as operation:
            result = await call_next(ctx)
            operation.finished(ctx.method, result)
            return result

    return observe


async def _observed(telemetry: Telemetry, served: bool, ctx: Context[Any], call_next: CallNext) -> Any:
    call, session = served_call(ctx).call, served_call(ctx).session
    network = network_of(session.channel.kind)
    details: dict[str, Any] = {}
    if ctx.http_scope is not None:
        network["network.protocol.name"] = "http"
        network["network.protocol.version"] = ctx.http_scope.get("http_version", "1.1")
    if ctx.client_address is not None:
        details["client.address"], details["client.port"] = ctx.client_address
    elif isinstance(call.origin.transport, str):
        network["network.transport"] = "unix"
    if not call.inline:  # `initialize` negotiates the revision
        network["mcp.protocol.version"] = ctx.protocol_version
    learn_network(session, network)
    client = ctx.client_info
    names: dict[str, Any] = {
        "jsonrpc.request.id": None if ctx.request_id is None else str(ctx.request_id)[:100],
        "mcp.session.id": session_id(session),
        "enduser.id": ctx.principal,
        "mcp.client.name": client.name[:100] if client is not None else None,
        "mcp.client.version": client.version[:100] if client is not None else None,
    }
    details |= {name: value for name, value in names.items() if value is not None}
    with telemetry.receiving(call, network, details, served=served) as operation:
        active = {"mcp.method.name": operation.metric_attributes["mcp.method.name"]}
        active_requests = telemetry.counters["gemel.server.active_requests"]
        active_requests.add(1, active)
        try:
            result = await call_next(ctx)
        finally:
            active_requests.add(-1, active)
        if call.failure is not None:
            operation.record_exception(call.failure)
        operation.finished(ctx.method, result)
        return result
