"""CORS: web pages of the origins that `allowed_origins` lists may read what the server answers, and may ask first.

https://fetch.spec.whatwg.org/#http-cors-protocol. No cookies are involved: clients send tokens in `Authorization`, so that
`Access-Control-Allow-Credentials` is never sent.
"""

from __future__ import annotations

from gemel.http1.asgi import HeaderPairs, Scope
from gemel.protocol.http.origin import Guard

#: Headers of responses that pages need: without the first one a page of the handshake revisions loses its session.
_EXPOSED = b"Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate, DPoP-Nonce, Retry-After"
_METHODS = b"GET, POST, DELETE"
#: Seconds for which a browser may remember the answer.
_MAX_AGE = b"7200"
#: The most bytes of header names that a page may ask for.
_MOST_NAMES = 4096


class Cors:
    """What one app tells the pages of other origins.

    Args:
        guard: Who may call.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def headers(self, scope: Scope) -> HeaderPairs:
        """The headers of every response to a request; none if it does not come from a page of a listed origin."""
        origin = _header(scope, b"origin")
        if origin is None or not self._guard.lists_origin(origin):
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        )

    def preflight(self, scope: Scope) -> HeaderPairs:
        """The further headers of the answer to a preflight request; none if it is not one."""
        if scope["method"] != "OPTIONS" or _header(scope, b"access-control-request-method") is None:
            return ()
        names = _header(scope, b"access-control-request-headers") or b""
        asked = ((b"access-control-allow-headers", names),) if 0 < len(names) <= _MOST_NAMES else ()
        return ((b"access-control-allow-methods", _METHODS), *asked, (b"access-control-max-age", _MAX_AGE))


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((bytes(value) for key, value in scope["headers"] if key == name), None)
