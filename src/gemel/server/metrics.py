"""Metrics in the format of Prometheus, from the meter provider of the process, and from those of all workers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Iterator
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from gemel.errors import DefinitionError, StartError
from gemel.http1.asgi import TEXT_TYPE, Receive, Scope, Send
from gemel.version import missing_extra

if TYPE_CHECKING:
    from gemel.transports.http.server.workers.worker import WorkerPlace

#: Seconds that another worker has to send its metrics; without them it counts as down.
_SECONDS = 1.0


@functools.cache
def metrics_app(*, token: str | None = None, public: bool = False) -> Any:
    """Make an ASGI application that answers with the metrics of the server, in the format of Prometheus.

    Serve it beside the endpoint: `server.run("http", routes={"/metrics": metrics_app()})`. Metrics name the tools, also those
    that a caller may not see: a server that authenticates callers takes an app with a token, or one that says `public`. Call
    it before serving starts: it installs a meter provider, unless the process has one, which then needs a
    `PrometheusMetricReader` of its own. Of several workers any one answers with the metrics of all of them, which differ by
    the label `worker`.

    Args:
        token: What requests must send, as `Authorization: Bearer TOKEN`. Default: nothing.
        public: Whether a server that authenticates callers may serve it to everybody who reaches the port.

    Returns:
        The ASGI application, the same at each call with the same arguments.

    Raises:
        DefinitionError: The token is empty, or has characters that a header can't.
        StartError: The extra `metrics` is not installed.
    """
    if token is not None and (not token or not token.isascii() or not token.isprintable() or " " in token):
        raise DefinitionError("metrics_app: token= is a text of ASCII letters, digits and signs, without blanks")
    try:
        from opentelemetry import metrics
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import make_asgi_app
    except ImportError:
        raise StartError(missing_extra("metrics_app() needs", "metrics")) from None
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        metrics.set_meter_provider(MeterProvider(metric_readers=[PrometheusMetricReader()]))
    return MetricsApp(make_asgi_app(), None if token is None else f"Bearer {token}".encode(), public)


class MetricsApp:
    """Answers with the metrics of this process, or of all workers: each tells the others its own over a Unix socket."""

    def __init__(self, own: Any, credentials: bytes | None, public: bool) -> None:
        self._own = own
        self._credentials = credentials
        #: Whether it may stand beside an endpoint that authenticates callers.
        self.may_be_served = public or credentials is not None
        self._place: WorkerPlace | None = None
        self._server: asyncio.Server | None = None

    async def join_workers(self, place: WorkerPlace) -> None:
        """Be one of several workers; called in its process before it serves."""
        self._place = place
        path = _path(place, place.number)
        with contextlib.suppress(FileNotFoundError):  # of the process that this one replaces
            os.unlink(path)
        self._server = await asyncio.start_unix_server(_send_metrics, path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self._credentials is not None and not _has_credentials(scope, self._credentials):
            headers = [(b"content-type", TEXT_TYPE), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"The metrics need their token\n"})
            return
        if self._place is None:
            await self._own(scope, receive, send)
            return
        from prometheus_client import CollectorRegistry, make_asgi_app

        place = self._place
        states = place.board.read()
        texts = await asyncio.gather(*(_metrics_of(place, state.worker) for state in states))
        registry = CollectorRegistry(auto_describe=False)
        restarts = [state.restarts for state in states]
        registry.register(_Workers({str(number): text for number, text in enumerate(texts)}, restarts))
        await make_asgi_app(registry)(scope, receive, send)


class _Workers:
    """The metrics of all workers, as a collector.

    Args:
        texts: What each worker has sent, by its number; None for one that does not answer.
        restarts: How often each has been started again.
    """

    def __init__(self, texts: dict[str, str | None], restarts: list[int]) -> None:
        self._texts = texts
        self._restarts = restarts

    def collect(self) -> Iterator[Any]:
        """Give the metrics, each family once, with the label `worker`."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        from prometheus_client.parser import text_string_to_metric_families

        up = GaugeMetricFamily("gemel_worker_up", "Whether a worker answers.", labels=["worker"])
        restarts = CounterMetricFamily("gemel_worker_restarts", "How often a worker was replaced.", labels=["worker"])
        families: dict[str, Any] = {}
        for (worker, text), count in zip(self._texts.items(), self._restarts, strict=True):
            up.add_metric([worker], text is not None)
            restarts.add_metric([worker], count)
            for family in text_string_to_metric_families(text or ""):
                merged = families.setdefault(family.name, family)
                samples = [sample._replace(labels={**sample.labels, "worker": worker}) for sample in family.samples]
                merged.samples = samples if merged is family else merged.samples + samples
        yield up
        yield restarts
        yield from families.values()


def _has_credentials(scope: Scope, credentials: bytes) -> bool:
    given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
    return len(given) == 1 and compare_digest(given[0], credentials)


async def _send_metrics(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    from prometheus_client import generate_latest

    writer.write(generate_latest())
    with contextlib.suppress(OSError):
        await writer.drain()
    writer.close()


async def _metrics_of(place: WorkerPlace, worker: int) -> str | None:
    """Ask a worker for its metrics. Returns None if it does not answer."""
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_unix_connection(_path(place, worker))
            try:
                return (await reader.read()).decode()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None


def _path(place: WorkerPlace, worker: int) -> str:
    return os.path.join(place.folder, str(worker))
