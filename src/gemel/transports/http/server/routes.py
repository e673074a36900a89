"""Other ASGI apps beside the endpoint: which one a path belongs to, and their end when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from gemel.errors import DefinitionError
from gemel.http1.asgi import TEXT_TYPE, AsgiApp, Message, Scope
from gemel.protocol.http.request import Refusal
from gemel.transports.http.server.exchange import BODY_TOO_SLOW
from gemel.transports.http.server.raw_exchange import RawExchange


class RoutedApps:
    """ASGI apps by path: `/metrics` is that path alone, `/static/` everything below it.

    Raises:
        DefinitionError: A path is malformed or already served, or an app can't be called.
    """

    def __init__(self, routes: Mapping[str, AsgiApp], taken: frozenset[str]) -> None:
        self._exact: dict[str, AsgiApp] = {}
        self._below: list[tuple[str, AsgiApp]] = []
        for path, app in routes.items():
            if not path.startswith("/") or not callable(app):
                raise DefinitionError(f'routes: write {{"/metrics": app}} with an ASGI app, not {{{path!r}: {app!r}}}')
            if path in taken or path == "/":
                raise DefinitionError(f"routes: {path} is served already: choose another path")
            if path.endswith("/"):
                self._below.append((path, app))
            else:
                self._exact[path] = app
        self._below.sort(key=lambda item: -len(item[0]))
        self._taken = taken

    def find(self, scope: Scope) -> tuple[AsgiApp, Scope] | None:
        """Find the app of a request and the scope to call it with."""
        root: str = scope.get("root_path", "")
        path = scope["path"].removeprefix(root)
        app = self._exact.get(path)
        if app is not None:
            return app, scope
        if path in self._taken:
            return None
        for prefix, below in self._below:
            if path.startswith(prefix):
                return below, {**scope, "root_path": root + prefix[:-1]}
        return None


class RoutedRequest:
    """A request of another app: its body must arrive in time, and it ends when the server stops."""

    watched = False

    def __init__(self, raw: RawExchange, body_wait: float) -> None:
        self._raw = raw
        self._body_wait = body_wait
        #: When the app began to wait for the body; None before, and once all of it has arrived.
        self._waiting_since: float | None = None
        self._body_complete = False
        self._begun = False
        self._stopped = False

    async def run(self, app: AsgiApp, scope: Scope) -> None:
        """Serve it. If the server cancels it, the connection is cut."""
        try:
            await app(scope, self._receive, self._send)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            self._raw.task.uncancel()
            if self._waiting_since is not None and not self._begun:
                await self.refuse(BODY_TOO_SLOW)
            else:
                self._raw.cut()

    async def _receive(self) -> Message:
        if self._waiting_since is None and not self._body_complete:
            self._waiting_since = asyncio.get_running_loop().time()
        message = await self._raw.receive()
        if not message.get("more_body", False):
            self._body_complete = True
            self._waiting_since = None
        return message

    def _send(self, message: Message) -> Awaitable[None]:
        self._begun = True
        return self._raw.send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal as plain text."""
        await self._raw.respond(refusal.status, TEXT_TYPE, refusal.text.encode(), refusal.headers)

    def watch(self) -> None:
        """The app itself notices when its client leaves."""

    def beat(self, now: float) -> None:
        """Give up on a slow body."""
        if self._waiting_since is not None and now - self._waiting_since > self._body_wait:
            self.stop("")

    def drain(self) -> None:
        """It may finish."""

    def stop(self, reason: str) -> None:
        """The time to drain is over."""
        if not self._stopped:
            self._stopped = True
            self._raw.task.cancel()

    def end_unfinished(self, reason: str) -> None:
        """Only the app can answer."""

    def cut(self) -> None:
        """It is still open after `stop`."""
        self._raw.cut()
