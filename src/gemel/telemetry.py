"""Whether this process records telemetry, and the measurements that need no message.

OpenTelemetry, and the modules that record with it, are imported only in a process that has installed a tracer provider or a
meter provider.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemel.spans import Telemetry


#: The variable by which `gemel dev` tells `gemel run` to set up a tracer provider where the program has none.
SHOWS_SPANS = "GEMEL_DEV_SHOWS_SPANS"
#: What is to be called when a server of this process has started, after its lifespan: a program may set up a provider until then.
_on_start: list[Callable[[], None]] = []


def when_started(function: Callable[[], None]) -> None:
    """Call a function once, when a server of this process has started.

    Args:
        function: Sets up a provider.
    """
    _on_start.append(function)


def server_started() -> None:
    """Call what `when_started` was given: a server has entered its lifespan."""
    while _on_start:
        _on_start.pop()()


def current_telemetry() -> Telemetry | None:
    """What records spans and metrics; None in a process without a tracer provider and a meter provider."""
    trace, metrics = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.metrics")
    tracers = trace.get_tracer_provider() if trace is not None else None
    meters = metrics.get_meter_provider() if metrics is not None else None
    if is_placeholder(tracers) and is_placeholder(meters):
        return None
    return _telemetry_of(tracers, meters)


def is_placeholder(provider: object) -> bool:
    """Whether the API made this provider because the process installed none."""
    return provider is None or "Proxy" in type(provider).__name__


@functools.lru_cache(maxsize=4)
def _telemetry_of(tracers: object, meters: object) -> Telemetry:
    from gemel.spans import Telemetry

    return Telemetry()


def count(name: str, amount: int, attributes: Mapping[str, str] | None = None) -> None:
    """Add to one of `Telemetry.counters`, if the process has a meter provider."""
    if "opentelemetry.metrics" in sys.modules:
        telemetry = current_telemetry()
        if telemetry is not None:
            telemetry.counters[name].add(amount, attributes)


def measure(name: str, seconds: float) -> None:
    """Record a duration in one of `Telemetry.histograms`, if the process has a meter provider."""
    if "opentelemetry.metrics" in sys.modules:
        telemetry = current_telemetry()
        if telemetry is not None:
            telemetry.histograms[name].record(seconds)


def records_events() -> bool:
    """Whether the current span records events: its process has a tracer provider, and the span is sampled."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or is_placeholder(trace.get_tracer_provider()):
        return False
    recording: bool = trace.get_current_span().is_recording()
    return recording


def add_event(name: str, attributes: Mapping[str, str | int | float]) -> None:
    """Add an event to the current span; only where `records_events`."""
    sys.modules["opentelemetry.trace"].get_current_span().add_event(name, attributes)
