"""Sends the requests of an API: with a client that is given, by calling an ASGI app, or with Gemel's own HTTP client."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from gemel.errors import CallError, DefinitionError, ToolError
from gemel.http1.client.pool import SocketWire
from gemel.openapi.operation import ApiRequest
from gemel.server.server import Server

logger = logging.getLogger("gemel")


class ApiResponse(NamedTuple):
    """The response of an API.

    Attributes:
        status: The HTTP status.
        headers: The headers by lower-case name.
        body: The whole body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient(Protocol):
    """Sends requests. Its results are ApiResponse objects or tuples of the same three values; `httpx.AsyncClient` fits as well."""

    @property
    def request(self) -> Callable[..., Awaitable[Any]]:
        """An async function of `(method, url, headers, body)`; it may follow redirects."""
        ...


Fetch: TypeAlias = Callable[[str, str, Mapping[str, str], bytes | None], Awaitable[Any]]
Headers: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str]]


class ApiClient:
    """Sends requests with the given client, or with a connection pool that is open while the server runs."""

    def __init__(self, client: Any, headers: Headers | None, *, timeout: float, limit: int) -> None:
        self._fetch = _fetch_function(client, limit)
        self._headers = headers
        self._timeout = timeout
        self._limit = limit
        self._pool: SocketWire | None = None

    @asynccontextmanager
    async def lifespan(self, server: Server[Any]) -> AsyncIterator[None]:
        """Keep connections open while the server runs."""
        self._pool = SocketWire(connect=self._timeout)
        try:
            yield
        finally:
            pool, self._pool = self._pool, None
            await pool.close()

    async def send(self, request: ApiRequest) -> ApiResponse:
        """Send a request. Raises ToolError, whose text does not contain the address."""
        given = self._headers() if callable(self._headers) else self._headers
        own = {name.lower() for name in given or ()}
        headers = {
            **{name: value for name, value in request.headers.items() if name.lower() not in own},
            **(given or {}),
        }
        try:
            async with asyncio.timeout(self._timeout):
                if self._fetch is not None:
                    return ApiResponse(*await self._fetch(request.method, request.url, headers, request.body))
                return await self._request(request, headers)
        except ToolError:
            raise
        except TimeoutError:
            raise ToolError(f"The API did not answer within {self._timeout:g} seconds") from None
        except (CallError, OSError) as exc:
            logger.warning("%s %s failed: %s", request.method, request.url.partition("?")[0], exc)
            raise ToolError("The API can't be reached") from exc

    async def _request(self, request: ApiRequest, headers: Mapping[str, str]) -> ApiResponse:
        pool = self._pool or SocketWire(connect=self._timeout)
        try:
            body = request.body if request.body is not None or request.method in ("GET", "HEAD") else b""
            response = await pool.open(request.method, request.url, list(headers.items()), body)
            try:
                received = bytearray()
                while request.method != "HEAD" and (piece := await response.read()):
                    received += piece
                    if len(received) > self._limit:
                        raise ToolError(f"The response of the API has more than {self._limit} bytes")
                return ApiResponse(response.status, response.headers, bytes(received))
            finally:
                response.release(finish=True)
        finally:
            if pool is not self._pool:
                await pool.close()


def _fetch_function(client: Any, limit: int) -> Fetch | None:
    """Return the function that sends a request: a method of the client, or the client itself; None for our own client."""
    if client is None:
        return None
    if is_asgi_app(client):
        return lambda method, url, headers, body: request_app(client, method, url, headers, body, limit)
    if not callable(getattr(client, "request", client)):
        raise DefinitionError("http_client must be an async function or have an async method `request`")
    fetch = cast("Fetch", getattr(client, "request", client))
    if "content" not in inspect.signature(fetch).parameters:
        return fetch
    request = cast("Callable[..., Awaitable[Any]]", fetch)

    async def request_httpx(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> ApiResponse:
        response = await request(method, url, headers=dict(headers), content=body)
        return ApiResponse(response.status_code, response.headers, response.content)

    return request_httpx


# ---------------------------------------------------------------- ASGI apps

#: An ASGI 3 app: `(scope, receive, send)`.
AsgiApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


def is_asgi_app(client: Any) -> bool:
    """Return whether an object is called with `(scope, receive, send)`."""
    try:
        names = list(inspect.signature(client).parameters)
    except (TypeError, ValueError):
        return False
    return names[:3] == ["scope", "receive", "send"]


async def request_app(
    app: AsgiApp, method: str, url: str, headers: Mapping[str, str], body: bytes | None, limit: int
) -> tuple[int, dict[str, str], bytes]:
    """Call an app; return status, headers by lower-case name, and body.

    Raises ToolError if there is no response, or if its body has more than `limit` bytes.
    """
    exchange = _AsgiExchange(body or b"", limit)
    await app(_scope(method, url, headers, len(body or b"")), exchange.receive, exchange.send)
    if exchange.status is None:
        raise ToolError("The API sent no response")
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


class _AsgiExchange:
    """One request to an ASGI app, and the response."""

    def __init__(self, body: bytes, limit: int) -> None:
        self._request: list[bytes] = [body]
        self._limit = limit
        self._finished = asyncio.Event()
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = bytearray()

    async def receive(self) -> dict[str, Any]:
        """Return the whole body, then wait for the end of the response."""
        if self._request:
            return {"type": "http.request", "body": self._request.pop(), "more_body": False}
        await self._finished.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """Keep a part of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            pairs = message.get("headers", ())
            self.headers = {
                bytes(name).decode("latin-1").lower(): bytes(value).decode("latin-1") for name, value in pairs
            }
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            if len(self.body) > self._limit:
                raise ToolError(f"The response of the API has more than {self._limit} bytes")
            if not message.get("more_body", False):
                self._finished.set()
