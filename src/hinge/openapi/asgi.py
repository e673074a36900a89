"""Asking an ASGI app in this process, without a socket. Knows ASGI; must not know what is asked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from hinge.errors import ToolError

#: `(scope, receive, send)`, of the third version of ASGI.
AsgiApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


def is_asgi_app(client: Any) -> bool:
    """Whether this is called as `(scope, receive, send)`."""
    try:
        names = list(inspect.signature(client).parameters)
    except (TypeError, ValueError):
        return False
    return names[:3] == ["scope", "receive", "send"]


async def ask(
    app: AsgiApp, method: str, url: str, headers: Mapping[str, str], body: bytes | None, limit: int
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers by lower-case name, body. Raises ToolError for a body of more than `limit` bytes, and for none."""
    exchange = _Exchange(body or b"", limit)
    await app(_scope(method, url, headers, len(body or b"")), exchange.receive, exchange.send)
    if exchange.status is None:
        raise ToolError("The API gave no answer")
    return exchange.status, exchange.headers, bytes(exchange.body)


def _scope(method: str, url: str, headers: Mapping[str, str], length: int) -> dict[str, Any]:
    parts = urlsplit(url)
    given = {name.lower(): value for name, value in headers.items()}
    sent = {"host": parts.netloc, **({"content-length": str(length)} if length else {}), **given}
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": parts.scheme,
        "path": unquote(parts.path) or "/",
        "raw_path": parts.path.encode() or b"/",
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()],
        "client": ("127.0.0.1", 0),
        "server": (parts.hostname or "", port),
    }


class _Exchange:
    """One request and what is answered."""

    def __init__(self, body: bytes, limit: int) -> None:
        self._request: list[bytes] = [body]
        self._limit = limit
        self._over = asyncio.Event()
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = bytearray()

    async def receive(self) -> dict[str, Any]:
        """The whole body at once; then the client stays until it has its answer."""
        if self._request:
            return {"type": "http.request", "body": self._request.pop(), "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """Keep a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            pairs = message.get("headers", ())
            self.headers = {
                bytes(name).decode("latin-1").lower(): bytes(value).decode("latin-1") for name, value in pairs
            }
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            if len(self.body) > self._limit:
                raise ToolError(f"The API's answer has more than {self._limit} bytes")
            if not message.get("more_body", False):
                self._over.set()
