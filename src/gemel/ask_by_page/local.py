"""Pages on the loopback interface, for servers without HTTP: the user of the machine answers in a browser there."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from gemel.errors import Overloaded, StartError
from gemel.http1.asgi import AsgiApp
from gemel.http1.server.listener import Listener
from gemel.http1.server.request import ServedRequest
from gemel.protocol.http.request import RawHeaders

_HEAD_BYTES = 32 * 1024
#: Seconds for a page to reach the browser at the end.
_LEAVE_SECONDS = 0.3
_HOST = "127.0.0.1"
#: What the path of each page begins with.
PATH = "/ask"


class LocalPages:
    """Serves an app on a free port of 127.0.0.1, in one event loop, from the first page on.

    Args:
        app: The app. It is reached by its own address only, not by names that lead here.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._listener: Listener | None = None
        self._starting = asyncio.Lock()
        self._socket: socket.socket | None = None
        #: Scheme and host; "" before the first page.
        self.origin = ""

    async def start(self) -> str:
        """Listen, if that was not begun yet. Returns the origin. Raises Overloaded if no port is free."""
        async with self._starting:
            if self._listener is None:
                bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                listener = Listener(self._serve, _HEAD_BYTES)
                try:
                    bound.setblocking(False)
                    bound.bind((_HOST, 0))
                    await listener.open([bound], None)
                except (OSError, StartError) as exc:
                    listener.close()
                    bound.close()
                    raise Overloaded("No page can be shown: no port of this machine can be used") from exc
                self._listener, self._socket = listener, bound
                self.origin = f"http://{_HOST}:{bound.getsockname()[1]}"
        return self.origin

    async def close(self) -> None:
        """Stop listening."""
        listener, self._listener = self._listener, None
        if listener is not None and self._socket is not None:
            listener.drain()
            await listener.end(_LEAVE_SECONDS)
            listener.close()
            self._socket.close()

    def abandon(self) -> None:
        """Give the port back when the event loop can't be used any more."""
        if self._socket is not None:
            self._socket.close()

    async def _serve(self, request: ServedRequest) -> None:
        headers: RawHeaders = request.scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if hosts != [self.origin.removeprefix("http://").encode()]:
            await request.respond(421, b"text/plain; charset=utf-8", b"This address is not served here.", ())
            return
        if str(request.scope["path"]).rpartition("/")[0] != PATH:  # a page has one address, for which its cookie is
            await request.respond(404, b"text/plain; charset=utf-8", b"There is no page here.", ())
            return
        with suppress(OSError):  # the browser is gone
            await self._app(request.scope, request.receive, request.send)
