"""Logins that the page starts: OAuth with the browser, each step as an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from gemel.auth.client.oauth import OAuthCredentials
from gemel.auth.client.user import BrowserLogin
from gemel.dev.target import DevTarget
from gemel.errors import CallError, GemelError
from gemel.http1.client.network import DEFAULT_TLS
from gemel.http1.client.pool import SocketWire
from gemel.http1.client.wire import HeaderPairs, Wire, WireResponse
from gemel.transports.http.client.options import Network

#: Shows a step: its members.
Show = Callable[[Mapping[str, Any]], object]


async def log_in(target: DevTarget, url: str, show: Show) -> bool:
    """Log in to a server. A person opens the link that is shown.

    Args:
        target: The server.
        url: Its URL.
        show: Called with each step.

    Returns:
        Whether somebody is logged in.
    """

    def link(address: str) -> bool:
        show({"step": "Open the page and log in", "url": address, "state": "open"})
        return True

    try:
        credentials = _credentials(target, url, BrowserLogin(open_url=link, show=lambda text: None), show)
        tokens = await credentials.login(again=True)
    except GemelError as exc:
        show({"step": "The login failed", "state": "failed", "error": str(exc)})
        return False
    scopes = f" with the scopes {' '.join(tokens.scopes)}" if tokens.scopes else ""
    show({"step": f"Logged in to {tokens.issuer}{scopes}", "state": "done"})
    return True


async def log_out(target: DevTarget, url: str, show: Show) -> None:
    """Forget the login to a server."""
    try:
        is_gone = await _credentials(target, url, None, show).logout()
    except GemelError as exc:
        show({"step": "The logout failed", "state": "failed", "error": str(exc)})
        return
    show({"step": "Logged out" if is_gone else "Nobody was logged in", "state": "done"})


def _credentials(target: DevTarget, url: str, authorizer: object, show: Show) -> OAuthCredentials:
    assert target.authorize is not None
    network = target.network or Network(DEFAULT_TLS, None, SocketWire)
    make = network.wire
    network = network._replace(wire=lambda: _ShownWire(make(), show))
    credentials: OAuthCredentials = target.authorize(authorizer).bind(url, network)
    return credentials


class _ShownWire:
    """An HTTP client whose requests are steps. Their bodies and parameters have secrets and are not shown."""

    def __init__(self, wire: Wire, show: Show) -> None:
        self._wire = wire
        self._show = show

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> WireResponse:
        """See Wire.open."""
        parts = urlsplit(url)
        step = f"{method} {parts.scheme}://{parts.netloc}{parts.path}"
        try:
            response = await self._wire.open(method, url, headers, body)
        except CallError as exc:
            self._show({"step": step, "state": "open", "error": str(exc)})
            raise
        self._show({"step": f"{step}: {response.status}", "state": "open"})
        return response

    async def close(self) -> None:
        """See Wire.close."""
        await self._wire.close()
