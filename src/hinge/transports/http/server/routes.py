"""Other ASGI apps beside the endpoint, behind the same door: which one a path belongs to, and its end when the server stops.

Must not know MCP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from hinge.errors import DefinitionError
from hinge.http1.asgi import TEXT_TYPE, Scope
from hinge.http1.server.carrier import Carrier
from hinge.protocol.http.headers import Refusal

AsgiApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


class Beside:
    """Apps by path: `/metrics` is that path alone, `/static/` all that is below it. Raises DefinitionError."""

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
        """Whose request this is, and what it is told."""
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


class BesideRequest:
    """One request of another app, as far as the server's end concerns it."""

    watched = False

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._stopped = False

    async def run(self, app: AsgiApp, scope: Scope) -> None:
        """Serve it; cancelled by us it ends without a word."""
        carrier = self._carrier
        try:
            await app(scope, carrier.receive, carrier.send)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            carrier.task.uncancel()
            carrier.cut()

    async def refuse(self, refusal: Refusal) -> None:
        """Turn it away at the door."""
        text = refusal.text.encode()
        await self._carrier.respond(refusal.status, TEXT_TYPE, text, refusal.headers)

    def watch(self) -> None:
        """The app listens to its client itself."""

    def beat(self, now: float) -> None:
        """The app has its own limits."""

    def drain(self) -> None:
        """It may finish."""

    def stop(self, reason: str) -> None:
        """The server can wait no longer."""
        if not self._stopped:
            self._stopped = True
            self._carrier.task.cancel()

    def cut(self) -> None:
        """It is still there though it was stopped."""
        self._carrier.cut()
