"""OpenTelemetry: spans and metrics of the messages that are sent and received, by the semantic conventions for MCP.

https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/

Arguments and results are never recorded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec
from opentelemetry import context, metrics, trace
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode

from gemel.channel import ChannelKind
from gemel.errors import InternalError, InvalidParams, PeerError, ProtocolError, shorten
from gemel.protocol.eras.base import Era
from gemel.protocol.meta import TRACE_KEYS
from gemel.protocol.records import Call

Attributes: TypeAlias = Mapping[str, str | int]

#: Buckets of the histograms, in seconds, as the conventions have them.
BOUNDARIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_HISTOGRAMS = {
    "mcp.client.operation.duration": "Duration of a request or notification, as observed on the sender.",
    "mcp.server.operation.duration": "Duration of a request or notification, as observed on the receiver.",
    "mcp.client.session.duration": "Duration of a session, as observed on the client.",
    "mcp.server.session.duration": "Duration of a session, as observed on the server.",
    "gemel.event_loop.lag": "How long the event loop took to run a callback that was due.",
}
_COUNTERS = {
    "gemel.server.dropped_changes": (
        "{change}",
        "Change notifications that were replaced by one that says that changes were lost.",
    ),
    "gemel.server.refused_messages": ("{message}", "Messages that were refused before any middleware saw them."),
}
_UP_DOWN_COUNTERS = {
    "gemel.server.active_requests": "Requests and notifications that are being served.",
    "gemel.server.active_sessions": "Sessions and connections that are open.",
    "gemel.server.active_streams": "HTTP responses that are open event streams.",
    "gemel.server.active_subscriptions": "Requests subscriptions/listen that are open.",
}
_HTTP: Attributes = {"network.transport": "tcp", "network.protocol.name": "http"}
_NETWORKS: Mapping[ChannelKind, Attributes] = {
    "memory": {},
    "background": {},
    "stdio": {"network.transport": "pipe"},
    "socket": {"network.transport": "tcp"},
    "post": _HTTP,
    "session": _HTTP,
}


def network_of(kind: ChannelKind) -> dict[str, str | int]:
    """What the kind of a channel says about the network. Another transport's own kind is taken for its protocol."""
    return dict(_NETWORKS.get(kind, {"network.protocol.name": kind}))


#: Stands for names that only a peer made up, in metrics, whose attributes must have few values.
_OTHER = "_OTHER"
#: Names of tools and prompts that metrics tell apart.
_MAX_TARGETS = 1000


class _ObservedParams(msgspec.Struct):
    """The members of params that telemetry has a use for; arguments are not decoded."""

    name: Any = None
    uri: Any = None
    ref: Any = None
    meta: Any = msgspec.field(name="_meta", default=None)


class _Result(msgspec.Struct, rename="camel"):
    """The members of results that telemetry has a use for."""

    is_error: bool = False
    protocol_version: str | None = None


_params = msgspec.json.Decoder(_ObservedParams)
_result = msgspec.json.Decoder(_Result)


def _observed_params(text: msgspec.Raw) -> dict[str, Any]:
    """What telemetry needs of the params of a message; nothing if they are absent or invalid."""
    try:
        params = _params.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    meta = params.meta if isinstance(params.meta, dict) else {}
    return {"name": params.name, "uri": params.uri, "ref": params.ref, "_meta": meta}


class Telemetry:
    """The tracer and the instruments of one tracer provider and one meter provider."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("gemel")
        meter = metrics.get_meter("gemel")
        self.histograms = {
            name: meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=BOUNDARIES)
            for name, text in _HISTOGRAMS.items()
        }
        self.counters: dict[str, Any] = {
            name: meter.create_counter(name, unit, text) for name, (unit, text) in _COUNTERS.items()
        }
        for name, text in _UP_DOWN_COUNTERS.items():
            self.counters[name] = meter.create_up_down_counter(name, f"{{{name.rpartition('_')[2][:-1]}}}", text)
        #: Tools and prompts that exist, since they gave a result.
        self._targets: set[str] = set()

    @contextmanager
    def sending(
        self, method: str, params: Mapping[str, Any], network: Attributes, details: Attributes
    ) -> Iterator[tuple[ObservedMessage, dict[str, str]]]:
        """Observe a message that is sent, until it is answered.

        `network` describes the connection, in spans and metrics; `details` are for the span alone. Yields the operation and
        the trace context for the `_meta` of the message.
        """
        with self._observing(
            "mcp.client.operation.duration", SpanKind.CLIENT, method, params, network, details
        ) as made:
            carrier: dict[str, str] = {}
            inject(carrier)
            yield made, {key: value for key, value in carrier.items() if key in TRACE_KEYS}

    @contextmanager
    def receiving(
        self, call: Call, network: Attributes, details: Attributes, *, served: bool
    ) -> Iterator[ObservedMessage]:
        """Observe a message that is received, until it is answered. `served` is whether anything serves its method.

        The span's parent comes from the `_meta` of the message, and a span that is current is linked. Without trace context
        in `_meta` the current span is the parent, for example that of a web framework, or else the one that the headers of
        the HTTP request name.
        """
        params = _observed_params(call.params)
        ambient = trace.get_current_span().get_span_context()
        sent = _carrier(params.get("_meta", {}))
        received = extract(sent)
        if not _span_context(received).is_valid:
            outer = context.get_current()
            received = extract(sent, outer if ambient.is_valid else extract(_carrier(call.origin.headers or {}), outer))
        token = context.attach(received)
        try:
            parent = _span_context(received)
            links = [Link(ambient)] if ambient.is_valid and ambient != parent else []
            name = "mcp.server.operation.duration"
            with self._observing(
                name, SpanKind.SERVER, call.method, params, network, details, links, era=call.era
            ) as made:
                if not served:
                    made.metric_attributes["mcp.method.name"] = _OTHER
                elif made.target is not None and made.target not in self._targets:
                    made.hide_target()
                yield made
                if made.target is not None and len(self._targets) < _MAX_TARGETS:
                    self._targets.add(made.target)
                    made.show_target()
        finally:
            context.detach(token)

    @contextmanager
    def nesting(self, method: str, params: Mapping[str, Any]) -> Iterator[ObservedMessage]:
        """Observe what a handler requests of its own server, below the span of its call. It is not measured: its call is."""
        with self._observing(None, SpanKind.INTERNAL, method, params, {}, {}) as made:
            yield made

    @contextmanager
    def _observing(
        self,
        histogram: str | None,
        kind: SpanKind,
        method: str,
        params: Mapping[str, Any],
        network: Attributes,
        details: Attributes,
        links: Sequence[Link] = (),
        *,
        era: Era | None = None,
    ) -> Iterator[ObservedMessage]:
        target, about = _target(method, params)
        method = shorten(method)
        attributes = {"mcp.method.name": method, **network, **about}
        start = time.perf_counter()
        with self._tracer.start_as_current_span(
            method if target is None else f"{method} {target}",
            kind=kind,
            attributes={**attributes, **details},
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            operation = ObservedMessage(span, target, attributes, era)
            try:
                yield operation
            except BaseException as exc:
                operation.raised(exc)
                raise
            finally:
                if histogram is not None:
                    self.histograms[histogram].record(time.perf_counter() - start, operation.metric_attributes)

    def session_ended(self, side: str, start: float, attributes: Attributes) -> None:
        """Record the duration of a session of the "client" or the "server" that began at this `time.perf_counter()`."""
        self.histograms[f"mcp.{side}.session.duration"].record(time.perf_counter() - start, attributes)


def _carrier(values: Mapping[str, Any]) -> dict[str, str]:
    """The trace context among the members of `_meta`, or among headers."""
    return {key: value for key in TRACE_KEYS if isinstance(value := values.get(key), str)}


def _span_context(of: context.Context) -> SpanContext:
    return trace.get_current_span(of).get_span_context()


class ObservedMessage:
    """One message, while it is observed."""

    def __init__(self, span: Span, target: str | None, attributes: Mapping[str, Any], era: Era | None) -> None:
        self._span = span
        #: That of a received message: it decides which error the peer gets.
        self._era = era
        #: The name of the tool or prompt.
        self.target = target
        # A URI is for spans only: there are too many.
        self.metric_attributes = {name: value for name, value in attributes.items() if name != "mcp.resource.uri"}
        self._hidden: dict[str, Any] = {}

    def set(self, name: str, value: str | None, *, metric: bool = False) -> None:
        """Add an attribute that is known by now to the span, and to the metric."""
        if value is None:
            return
        self._span.set_attribute(name, value)
        if metric:
            self.metric_attributes[name] = value

    def record_exception(self, exc: BaseException) -> None:
        """Record an exception of a handler in the span; the operation may have a result all the same."""
        self._span.record_exception(exc)

    def hide_target(self) -> None:
        """Leave the target out of the metric, since it may not exist."""
        for name in ("gen_ai.tool.name", "gen_ai.prompt.name"):
            if name in self.metric_attributes:
                self._hidden[name] = self.metric_attributes.pop(name)

    def show_target(self) -> None:
        """Record the target after all."""
        self.metric_attributes.update(self._hidden)

    def finished(self, method: str, result: object) -> None:
        """Record what a result says: that a tool failed, or which revision was negotiated.

        `result` is a struct, a dict or JSON text.
        """
        if method not in ("tools/call", "initialize"):
            return
        try:
            if isinstance(result, msgspec.Raw):
                result = _result.decode(result)
            elif isinstance(result, dict):
                result = msgspec.convert(result, _Result)
        except (msgspec.MsgspecError, RecursionError):
            return
        if method == "initialize":
            self.set("mcp.protocol.version", getattr(result, "protocol_version", None), metric=True)
        elif getattr(result, "is_error", False) is True:
            self._fail("tool_error", None)

    def raised(self, exc: BaseException) -> None:
        """Record how the operation failed: with a JSON-RPC error, by cancellation, or with an error on this side."""
        if isinstance(exc, asyncio.CancelledError):
            self._fail("cancelled", None)
            return
        if self._era is not None:
            if not isinstance(exc, ProtocolError):
                self._span.record_exception(exc)
                exc = InternalError()
            exc, _ = self._era.finish_error(exc)
        if not isinstance(exc, PeerError | ProtocolError):
            self._fail(type(exc).__name__, str(exc))
            return
        code, text = str(exc.error.code), exc.error.message
        self.set("rpc.response.status_code", code, metric=True)
        # The text may quote invalid arguments.
        self._fail(code, "Invalid request parameters" if exc.error.code == InvalidParams.code else text)

    def _fail(self, error_type: str, description: str | None) -> None:
        self.set("error.type", error_type, metric=True)
        self._span.set_status(StatusCode.ERROR, shorten(description) if description else None)


def _target(method: str, params: Mapping[str, Any]) -> tuple[str | None, dict[str, str]]:
    """The target of a message, for the name of the span, and its attributes. URIs are not in the name: there may be many."""
    name, uri, ref = params.get("name"), params.get("uri"), params.get("ref")
    if method == "completion/complete" and isinstance(ref, Mapping):
        name = ref.get("name")
    if method == "tools/call" and isinstance(name, str):
        name = shorten(name)
        return name, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if method in ("prompts/get", "completion/complete") and isinstance(name, str):
        name = shorten(name)
        return name, {"gen_ai.prompt.name": name}
    return None, {"mcp.resource.uri": shorten(uri)} if isinstance(uri, str) else {}
