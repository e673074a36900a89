"""Who may use the inspector: the token of the address, the cookie that replaces it, Host and Origin, response headers."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import time
from collections.abc import Iterable
from typing import NamedTuple

from gemel.http1.asgi import Scope
from gemel.http1.cookies import cookie_values

#: Seconds for which an address that a browser is started with can be used.
_ONCE_SECONDS = 60.0
#: Hosts that stand for all addresses of the machine.
_ANY = ("", "0.0.0.0", "::")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Denied(NamedTuple):
    """Why a request is refused."""

    status: int
    text: str


class Access:
    """Judges requests.

    A browser exchanges the token of the address for a cookie; a program sends the token in an Authorization header.

    Args:
        host: The host that is listened on.
        port: The port that is listened on.
    """

    def __init__(self, host: str, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        #: What the inspected program sends its spans with; good for nothing else.
        self.spans_token = secrets.token_urlsafe(24)
        self.cookie = f"gemel_dev_{port}"
        self._secret = secrets.token_urlsafe(32)
        self._port = port
        name = f"[{host}]" if ":" in host else host
        self._is_public = name not in _LOOPBACK
        if host in _ANY:
            name = socket.gethostname()
        self._hosts = {*_LOOPBACK, name.lower()}
        #: Tokens that can be exchanged once, until a time of `time.monotonic()`.
        self._once: dict[str, float] = {}
        self.base = f"http://{name}:{port}"
        #: The same for programs on this machine.
        self.local = f"http://127.0.0.1:{port}" if host in _ANY else self.base

    @property
    def address(self) -> str:
        """The address that is printed."""
        return f"{self.base}/?token={self.token}"

    def address_for_once(self) -> str:
        """Return an address for a browser that is started: it is in the list of processes, so that it can be used once."""
        token = secrets.token_urlsafe(24)
        self._once[token] = time.monotonic() + _ONCE_SECONDS
        return f"{self.base}/?token={token}"

    def refuse_site(self, scope: Scope) -> Denied | None:
        """Check Host and Origin, which guards against DNS rebinding and requests of other pages."""
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return Denied(403, f"This host is not served here: use {self.base}")
        origins = _values(scope, b"origin")
        if origins and origins != [f"http://{hosts[0]}"]:
            return Denied(403, "Other pages may not use this one")
        return None

    def refuse_caller(self, scope: Scope) -> Denied | None:
        """Check the cookie or the token, and the type of a body."""
        if not (self._has_cookie(scope) or _has_token(scope, self.token)):
            return Denied(401, "Use the address that `gemel dev` printed: it has the token")
        if scope["method"] == "POST":
            kinds = _values(scope, b"content-type")
            if len(kinds) != 1 or kinds[0].partition(";")[0].strip().lower() != "application/json":
                return Denied(403, "The Content-Type must be application/json")
        return None

    def refuse_exporter(self, scope: Scope) -> Denied | None:
        """Check the token of a program that sends spans."""
        if not _has_token(scope, self.spans_token):
            return Denied(401, "Spans are accepted from the inspected program")
        return None

    def exchange(self, token: str) -> str | None:
        """Return the Set-Cookie header for a token of an address; None if it is wrong."""
        if not (_equal(token, self.token) or self._take_once(token)):
            return None
        return f"{self.cookie}={self._secret}; HttpOnly; SameSite=Strict; Path=/"

    def _take_once(self, token: str) -> bool:
        now = time.monotonic()
        self._once = {one: until for one, until in self._once.items() if until > now}
        return self._once.pop(token, None) is not None

    def _is_own(self, host: str) -> bool:
        name, colon, port = host.lower().rpartition(":")
        if not colon or name.endswith(":"):
            return False
        if port != str(self._port):
            return False
        return name in self._hosts or (self._is_public and _is_ip(name))

    def _has_cookie(self, scope: Scope) -> bool:
        return any(_equal(value, self._secret) for value in cookie_values(scope["headers"], self.cookie))


def response_headers(frames: str | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of every response.

    Args:
        frames: The origin that MCP Apps are shown from; None for none.
    """
    frame_source = frames or "'none'"
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src data: blob:; "
        f"connect-src 'self'; frame-src {frame_source}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _values(scope: Scope, header: bytes) -> list[str]:
    pairs: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1").strip() for name, value in pairs if name.lower() == header]


def _has_token(scope: Scope, right: str) -> bool:
    values = _values(scope, b"authorization")
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    return scheme.lower() == "bearer" and _equal(token.strip(), right)


def _equal(given: str, right: str) -> bool:
    return secrets.compare_digest(given.encode(), right.encode())


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
