"""Metrics in the format of Prometheus, from the meter provider of the process."""

from __future__ import annotations

import functools
from typing import Any

from hinge.errors import StartError


@functools.cache
def metrics_app() -> Any:
    """Make an ASGI application that answers with this process's metrics, in the format of Prometheus.

    Serve it beside the endpoint: `server.run("http", routes={"/metrics": metrics_app()})`. It is open to everybody who
    reaches the port. Call it before serving starts: it installs a meter provider, unless the process has one, which then
    needs a `PrometheusMetricReader` of its own. Several workers have separate metrics.

    Returns:
        The ASGI application, the same at each call.

    Raises:
        StartError: The extra `metrics` is not installed.
    """
    try:
        from opentelemetry import metrics
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import make_asgi_app
    except ImportError:
        raise StartError("metrics_app() needs the extra metrics: pip install 'hinge[metrics]'") from None
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        metrics.set_meter_provider(MeterProvider(metric_readers=[PrometheusMetricReader()]))
    return make_asgi_app()
