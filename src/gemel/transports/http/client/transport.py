"""The client transport for Streamable HTTP, in both eras."""

from __future__ import annotations

from gemel.channel import Channel, Serve, Transport
from gemel.http1.client.wire import Wire, WireResponse
from gemel.transports.http.client.channel import HttpChannel, UrlTransport
from gemel.transports.http.client.options import Credentials

__all__ = ["Credentials", "HttpChannel", "HttpTransport", "Wire", "WireResponse"]


class HttpTransport(UrlTransport):
    """A server at a URL, reached by Streamable HTTP.

    `headers` go with every request: a mapping, or a callable (may be async) that gives one each time; the headers that
    the protocol sets are left out. `auth` gives the value of the Authorization header before each request (a callable,
    may be async), or is an object that has a say when the server answers 401 or 403: see Credentials and AuthScheme.
    `tls` and `proxy` are those of SocketWire. `wire` makes another Wire for each channel, which closes it.

    Raises DefinitionError for what can't work: a URL that isn't one, a header with a line end in it.
    """

    async def open(self, serve: Serve, /) -> Channel:
        """Start a conversation. Connects with the first message, so it doesn't fail."""
        return HttpChannel(self._endpoint(self.url, self._wire()), self.limits, serve)

    def older(self) -> Transport:
        """The HTTP+SSE transport to the same URL, for a server that does not have Streamable HTTP."""
        from gemel.transports.http.client.legacy_sse import SseTransport

        return SseTransport(self.url, limits=self.limits, **self._settings)
