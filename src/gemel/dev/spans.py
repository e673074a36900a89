"""Spans that the inspected program exports by the OpenTelemetry Protocol: https://opentelemetry.io/docs/specs/otlp/."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from gemel.receipts.entries import EVENT
from gemel.telemetry import SHOWS_SPANS, is_placeholder

#: Where programs send their spans, on the inspector's address.
SPANS_PATH = "/v1/traces"
JSON, PROTOBUF = "application/json", "application/x-protobuf"
#: Spans of one request that are shown, attributes of a span, and characters of a text.
MAX_SPANS = 2_000
MAX_ATTRIBUTES = 64
MAX_TEXT = 500
#: `Status.code` of a span that failed, in JSON and as the name that some exporters write.
_FAILED = (2, "STATUS_CODE_ERROR")
#: A destination that the program has wins.
_DESTINATIONS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
)


def exporter_environment(address: str, token: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a program sends its spans here.

    Args:
        address: The inspector's address, without a path.
        token: What the requests are authorized by.
        given: Variables that the program gets anyway. If these, or those of this process, name a destination, spans go there.
    """
    if any(name in given or name in os.environ for name in _DESTINATIONS):
        return {}
    variables = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": address + SPANS_PATH,
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"authorization={quote(f'Bearer {token}')}",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        # Milliseconds until spans are sent; the default is 5,000.
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        SHOWS_SPANS: "1",
    }
    return {name: value for name, value in variables.items() if name not in given and name not in os.environ}


def send_spans() -> None:
    """Send spans where the environment says, unless the process has a provider, or OpenTelemetry is not installed."""
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return
    if not is_placeholder(trace.get_tracer_provider()):
        return
    # The end of the process doesn't wait for spans: the inspector may have ended before.
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def read_spans(body: bytes, kind: str) -> list[dict[str, Any]]:
    """Read an export request.

    Args:
        body: An ExportTraceServiceRequest.
        kind: `JSON` or `PROTOBUF`.

    Returns:
        The fields of a `span` event for each span, the first `MAX_SPANS`.

    Raises:
        ValueError: It is not one; the text says what is wrong.
    """
    request = _from_protobuf(body) if kind == PROTOBUF else _from_json(body)
    spans: list[dict[str, Any]] = []
    for span in _each_span(request):
        if len(spans) == MAX_SPANS:
            break
        spans.append(_fields(span))
    return spans


def _from_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise ValueError(f"The body is not JSON: {exc}") from None


def _from_protobuf(body: bytes) -> Any:
    try:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError:
        raise ValueError("Reading Protobuf needs opentelemetry-proto where `gemel dev` runs; or send JSON") from None
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as exc:
        raise ValueError(f"The body is not an ExportTraceServiceRequest: {exc}") from None
    return MessageToDict(request)


def _each_span(request: object) -> Iterator[Mapping[str, Any]]:
    for resource in _list(request, "resourceSpans"):
        for scope in _list(resource, "scopeSpans"):
            for span in _list(scope, "spans"):
                if not isinstance(span, dict):
                    raise ValueError("A span is not an object")
                yield span


def _list(value: object, name: str) -> list[Any]:
    inner = value.get(name, []) if isinstance(value, dict) else None
    if not isinstance(inner, list):
        raise ValueError(f"{name} is not a list in an object")
    return inner


def _fields(span: Mapping[str, Any]) -> dict[str, Any]:
    start, end = (_milliseconds(span.get(name)) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    status = span.get("status")
    failed = isinstance(status, dict) and status.get("code") in _FAILED
    attributes = _attributes(span)
    if isinstance(status, dict) and failed and status.get("message"):
        attributes["status.message"] = _text(status["message"])
    parent = _id(span.get("parentSpanId"), 8)
    return {
        "trace": _id(span.get("traceId"), 16),
        "span": _id(span.get("spanId"), 8),
        **({"parent": parent} if parent else {}),
        "side": "server",
        "name": _text(span.get("name", "")),
        "start": round(start, 3),
        "ms": round(max(0.0, end - start), 3),
        "status": "error" if failed else "ok",
        "attributes": attributes,
    }


def _milliseconds(value: Any) -> float:
    try:
        return int(value) / 1e6
    except (TypeError, ValueError, OverflowError):
        raise ValueError("A time of a span is not a number of nanoseconds") from None


def _id(value: object, size: int) -> str:
    """The id in hexadecimal digits. JSON has them so; what becomes JSON from Protobuf has base64."""
    if value in (None, ""):
        return ""
    text = str(value)
    if len(text) == 2 * size:
        return text.lower()
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raw = b""
    if len(raw) != size:
        raise ValueError("An id of a span has the wrong length")
    return raw.hex()


def _attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a span, and those of the receipt of its call, which is an event of it."""
    receipts = [event for event in _list(span, "events") if isinstance(event, dict) and event.get("name") == EVENT]
    items = [item for of in (span, *receipts) for item in _list(of, "attributes")[:MAX_ATTRIBUTES]]
    attributes: dict[str, Any] = {}
    for item in items[: 2 * MAX_ATTRIBUTES]:
        if isinstance(item, dict) and isinstance(value := item.get("value"), dict) and value:
            attributes[_text(item.get("key", ""))] = _value(*next(iter(value.items())))
    return attributes


def _value(kind: str, value: object) -> Any:
    """The value of an attribute. Whole numbers are written as strings, since they may have 64 bits."""
    if kind == "intValue" and isinstance(value, str) and len(value) < 16 and value.lstrip("-").isdecimal():
        return int(value)
    return value if isinstance(value, bool | float) else _text(value)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
