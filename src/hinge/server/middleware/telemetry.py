"""OpenTelemetry tracing. Left out of the middleware chain if no tracer provider is installed when serving starts.

Spans hold no arguments and no results, only the name of what was called.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from hinge.errors import InvalidParams, ProtocolError, shorten
from hinge.jsonrpc import ABSENT
from hinge.server.context import Context
from hinge.server.middleware.chain import CallNext, Middleware

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


def tracing() -> Middleware | None:
    """Middleware that makes a SERVER span for each request and notification; None if no tracer provider is installed."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    tracer: Tracer = trace.get_tracer("hinge")
    return lambda ctx, call_next: _traced(tracer, ctx, call_next)


async def _traced(tracer: Tracer, ctx: Context[Any], call_next: CallNext) -> Any:
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind, Status, StatusCode

    target, meta = _target_and_meta(ctx)
    method = shorten(ctx.method)
    attributes = {"mcp.method.name": method}
    if not ctx._call.inline:  # `initialize` negotiates the revision
        attributes["mcp.protocol.version"] = ctx.protocol_version
    if ctx.request_id is not None:
        attributes["jsonrpc.request.id"] = shorten(str(ctx.request_id))
    with tracer.start_as_current_span(
        f"MCP handle {method}" + (f" {shorten(target)}" if target is not None else ""),
        context=extract(meta),
        kind=SpanKind.SERVER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            return await call_next(ctx)
        except InvalidParams:
            span.set_status(Status(StatusCode.ERROR, "Invalid request parameters"))  # never the validator's text
            raise
        except ProtocolError as exc:
            span.set_status(Status(StatusCode.ERROR, exc.error.message))
            raise
        except Exception as exc:
            span.record_exception(exc)
            span.set_status(Status(StatusCode.ERROR, str(exc)))
            raise


def _target_and_meta(ctx: Context[Any]) -> tuple[str | None, dict[str, str]]:
    """The name in the call's params, and the trace context in its `_meta`; invalid values there are ignored."""
    try:
        params = msgspec.json.decode(ctx.params) if ctx.params is not ABSENT else {}
    except (msgspec.MsgspecError, RecursionError):
        return None, {}
    name, meta = params.get("name"), params.get("_meta")
    found = meta if isinstance(meta, Mapping) else {}
    carrier = {key: value for key, value in found.items() if isinstance(value, str)}
    return name if isinstance(name, str) else None, carrier
