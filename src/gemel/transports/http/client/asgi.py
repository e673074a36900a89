"""The client transport to an ASGI app in this process: Streamable HTTP without sockets, in both eras."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Unpack
from weakref import WeakKeyDictionary

from gemel.channel import Transport
from gemel.http1.asgi import AsgiApp
from gemel.http1.client.asgi import AsgiWire, app_lifespan
from gemel.lifespan import Lifespan
from gemel.loops import PerLoop
from gemel.options import accepts, resolve
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.transports.http.client.legacy_sse import SseTransport
from gemel.transports.http.client.options import AsgiOptions
from gemel.transports.http.client.transport import HttpTransport

#: The lifespans of apps, which all transports of an event loop share.
_lifespans: WeakKeyDictionary[AsgiApp, PerLoop[Lifespan]] = WeakKeyDictionary()


def _lifespan_of(app: AsgiApp, limit: float) -> Lifespan:
    lifespans = _lifespans.get(app)
    if lifespans is None:
        lifespans = _lifespans[app] = PerLoop(lambda: Lifespan(app_lifespan, app, "an ASGI app", limit))
    return lifespans.here()


class AsgiTransport(HttpTransport):
    """An ASGI app in this process, which a client connects to as if it was a server at a URL.

    Its lifespan is entered for the first client of an event loop, and left after the last one.

    Args:
        app: The app.
        limits: Limits of messages and waiting times.
        **options: See AsgiOptions.

    Raises:
        DefinitionError: The URL or an option can't work.
    """

    @accepts(AsgiOptions)
    def __init__(self, app: AsgiApp, *, limits: Limits = DEFAULT_LIMITS, **options: Unpack[AsgiOptions]) -> None:
        settings = resolve(AsgiOptions, options, type(self).__name__)
        self._app = app
        self._lifespan: Lifespan | None = None
        of_http: Any = {"headers": settings["headers"], "auth": settings["auth"], "wire": self._make_wire}
        super().__init__(settings["url"], limits=limits, **of_http)

    def _make_wire(self) -> AsgiWire:
        return AsgiWire(self._app, None if self._lifespan is None else self._lifespan.state)

    def running(self) -> AbstractAsyncContextManager[None]:
        """See Transport: the lifespan of the app."""
        self._lifespan = _lifespan_of(self._app, self.limits.teardown)
        return self._lifespan

    def older(self) -> Transport:
        return _AsgiSse(self, self.url, limits=self.limits, **self._settings)


class _AsgiSse(SseTransport):
    """HTTP+SSE to the same app."""

    def __init__(self, newer: AsgiTransport, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._newer = newer

    def running(self) -> AbstractAsyncContextManager[None]:
        """See Transport: the lifespan of the app."""
        return self._newer.running()
