"""Sends the requests of an API: with a client that is given, by calling an ASGI app, or with Gemel's own HTTP client."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from gemel.errors import CallError, DefinitionError, ToolError
from gemel.http1.asgi import is_asgi_app
from gemel.http1.client.asgi import AsgiWire
from gemel.http1.client.pool import SocketWire
from gemel.http1.client.wire import Wire
from gemel.loops import PerLoop
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
    """Sends requests with the given client, or with one of its own for each event loop, which is open while the server runs."""

    def __init__(self, client: object, headers: Headers | None, *, timeout: float, limit: int) -> None:
        app = client if is_asgi_app(client) else None
        self._fetch = _fetch_function(client) if app is None else None
        self._headers = headers
        self._timeout = timeout
        self._limit = limit
        make = partial(SocketWire, connect=timeout) if app is None else partial(AsgiWire, app)
        self._wires: PerLoop[Wire] = PerLoop(make, end=lambda wire: wire.close())

    @asynccontextmanager
    async def lifespan(self, server: Server[Any]) -> AsyncIterator[None]:
        """Close connections when the server has stopped."""
        try:
            yield
        finally:
            wire = self._wires.find()
            if wire is not None:
                self._wires.forget()
                await wire.close()

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
        body = request.body if request.body is not None or request.method in ("GET", "HEAD") else b""
        response = await self._wires.here().open(request.method, request.url, list(headers.items()), body)
        try:
            received = bytearray()
            while request.method != "HEAD" and (piece := await response.read()):
                received += piece
                if len(received) > self._limit:
                    raise ToolError(f"The response of the API has more than {self._limit} bytes")
            return ApiResponse(response.status, response.headers, bytes(received))
        finally:
            response.close(drain=True)


def _fetch_function(client: object) -> Fetch | None:
    """Return the function that sends a request: a method of the client, or the client itself; None for our own client."""
    if client is None:
        return None
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
