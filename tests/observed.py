"""The real OpenTelemetry SDK with exporters in memory: what a process with telemetry records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind


class Observed:
    """The spans that ended, and the metrics by name."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider(metric_readers=[self._reader])

    def spans(self, kind: SpanKind, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if (span.kind, span.name) == (kind, name)]

    def span(self, kind: SpanKind, name: str) -> ReadableSpan:
        (span,) = self.spans(kind, name)
        return span

    def names(self, kind: SpanKind) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans() if span.kind is kind]

    def points(self, name: str) -> list[Any]:
        """The data points of a metric, one for each set of attributes."""
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        found = [metric for group in data.resource_metrics for scope in group.scope_metrics for metric in scope.metrics]
        return [point for metric in found if metric.name == name for point in metric.data.data_points]

    def everything(self) -> str:
        data = self._reader.get_metrics_data()
        spans = "".join(span.to_json() for span in self._exporter.get_finished_spans())
        return spans + (data.to_json() if data is not None else "")


def observing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    """For a fixture: providers that are installed for one test."""
    observed = Observed()
    # Their setters can be called once per process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", observed.tracers)
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", observed.meters)
    yield observed
    observed.meters.shutdown()
    observed.tracers.shutdown()


def attributes(recorded: Any) -> dict[str, Any]:
    """Those of a span or of a data point."""
    return dict(recorded.attributes or {})
