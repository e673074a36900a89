"""`server.run("http", engine="uvicorn")`: the app in uvicorn in place of the built-in HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from gemel.errors import StartError
from gemel.signals import stop_on_signals
from gemel.transports.http.server.app import HttpApp
from gemel.version import missing_extra

if TYPE_CHECKING:
    import ssl

try:
    import uvicorn
    import uvicorn.config
except ImportError:
    raise StartError(missing_extra("engine='uvicorn' needs", "uvicorn")) from None


#: uvicorn's own, with the access log on standard error, too.
_LOGGING = deepcopy(uvicorn.config.LOGGING_CONFIG)
_LOGGING["handlers"]["access"]["stream"] = "ext://sys.stderr"


class _Server(uvicorn.Server):
    """Stops as the built-in server does: the first signal drains, and the process ends with status 0."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._on_stop = on_stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with stop_on_signals(self._stop):
            yield

    def _stop(self, _signal: str) -> None:
        self.request_stop()

    def request_stop(self) -> None:
        """Stop. The app drains meanwhile: uvicorn tells it only after all responses, and cancels those that take long."""
        self._on_stop()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def without_query(record: logging.LogRecord) -> bool:
    """Leave the query out, which has codes in it if it is that of a login."""
    if isinstance(record.args, tuple) and len(record.args) == 5:
        path, query, _ = str(record.args[2]).partition("?")
        record.args = (*record.args[:2], f"{path}?…" if query else path, *record.args[3:])
    return True


async def serve_with_uvicorn(
    app: HttpApp,
    listening: list[socket.socket],
    retiring: asyncio.Event,
    *,
    tls: ssl.SSLContext | None,
    access_log: bool,
    trusted_proxies: Sequence[str],
    ready: Callable[[], None],
) -> None:
    """Serve on listening sockets until a signal or a cancellation, or until `retiring` is set."""
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_level="info" if access_log else "warning",
        log_config=_LOGGING,
        access_log=access_log,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(app.options.limits.drain) + 1,
    )
    logging.getLogger("uvicorn.access").addFilter(without_query)
    config.load()
    config.ssl = tls
    server: Any = _Server(config, ready, app.stop_soon)
    serving = asyncio.ensure_future(server.serve(listening))
    waiting = asyncio.ensure_future(retiring.wait())
    try:
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            server.request_stop()
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.request_stop()
        await asyncio.wait([serving])
        raise
    finally:
        waiting.cancel()
