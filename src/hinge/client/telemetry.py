"""OpenTelemetry: a CLIENT span for each request and notification that leaves, and its trace context in their `_meta`.

Follows the semantic conventions for MCP (https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/). Imports nothing until the
process has installed a tracer provider. Never records arguments or results.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from hinge.errors import InvalidParams, PeerError, shorten
from hinge.protocol.meta import TRACE_KEYS

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


class _Ended(msgspec.Struct, rename="camel"):
    is_error: bool = False


_ended = msgspec.json.Decoder(_Ended)


def tracer() -> Tracer | None:
    """The tracer; None in a process without a tracer provider."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    found: Tracer = trace.get_tracer("hinge")
    return found


def place_of(transport: Any) -> dict[str, str | int]:
    """The address of a transport as span attributes, without path and query of a URL, which may contain secrets."""
    url, host = getattr(transport, "url", None), getattr(transport, "host", None)
    if isinstance(url, str):
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return {"network.transport": "tcp", "network.protocol.name": "http"} | _address(parts.hostname, port)
    if isinstance(host, str):
        return {"network.transport": "tcp", **_address(host, getattr(transport, "port", None))}
    if isinstance(path := getattr(transport, "path", None), str):
        return {"network.transport": "unix", **_address(path, None)}
    return {"network.transport": "pipe"} if hasattr(transport, "command") else {}


def _address(host: str | None, port: int | None) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    if host is not None:
        found["server.address"] = host
    if port is not None:
        found["server.port"] = port
    return found


@contextmanager
def span(
    tracer: Tracer,
    method: str,
    params: Mapping[str, Any],
    *,
    request_id: object = None,
    revision: str | None = None,
    place: Mapping[str, str | int] | None = None,
) -> Iterator[tuple[Span, dict[str, str]]]:
    """The span of one message. Yields it with the trace context for the `_meta` of the message."""
    from opentelemetry.propagate import inject
    from opentelemetry.trace import SpanKind

    target, about = _target(method, params)
    attributes: dict[str, Any] = {"mcp.method.name": method, **(place or {}), **about}
    if request_id is not None:
        attributes["jsonrpc.request.id"] = str(request_id)
    if revision is not None:
        attributes["mcp.protocol.version"] = revision
    with tracer.start_as_current_span(
        method if target is None else f"{method} {target}",
        kind=SpanKind.CLIENT,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as made:
        carrier: dict[str, str] = {}
        inject(carrier)
        try:
            yield made, {key: value for key, value in carrier.items() if key in TRACE_KEYS}
        except BaseException as exc:
            _failed(made, exc)
            raise


def ended(span: Span, method: str, result: Raw) -> None:
    """Record the result of a request: that of a failed tool counts as an error."""
    from opentelemetry.trace import StatusCode

    if method != "tools/call":
        return
    try:
        failed = _ended.decode(result).is_error
    except (msgspec.MsgspecError, RecursionError):
        return
    if failed:
        span.set_attribute("error.type", "tool_error")
        span.set_status(StatusCode.ERROR)


def _failed(span: Span, exc: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    if isinstance(exc, PeerError):
        span.set_attribute("rpc.response.status_code", str(exc.code))
    kind = str(exc.code) if isinstance(exc, PeerError) else type(exc).__name__
    span.set_attribute("error.type", "cancelled" if isinstance(exc, asyncio.CancelledError) else kind)
    # A server may quote invalid arguments.
    refused = isinstance(exc, PeerError) and exc.code == InvalidParams.code
    span.set_status(StatusCode.ERROR, "Invalid request parameters" if refused else shorten(str(exc)) or None)


def _target(method: str, params: Mapping[str, Any]) -> tuple[str | None, dict[str, str]]:
    """The target of a message, for the name of the span, and its attributes. URIs are not in the name: there may be many."""
    name, uri = params.get("name"), params.get("uri")
    if method == "tools/call" and isinstance(name, str):
        return name, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if method == "prompts/get" and isinstance(name, str):
        return name, {"gen_ai.prompt.name": name}
    return None, {"mcp.resource.uri": uri} if isinstance(uri, str) else {}
