"""Flows: exchanges of HTTP requests as generators without I/O, and the fetcher that drives one over the HTTP client.

def document(url: str) -> Flow[bytes]:
    response = yield HttpRequest("GET", url)
    return response.body
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from typing import TypeAlias, TypeVar
from urllib.parse import urljoin

import msgspec

from gemel.auth.url_rules import UrlRules, describe
from gemel.errors import AuthorizationFailed, CallError, ConnectionLost
from gemel.http1.client.network import DEFAULT_TLS, TlsContext
from gemel.http1.client.pool import SocketWire
from gemel.http1.client.wire import HeaderPairs, Wire, WireResponse

#: Maximum size of a response.
MAX_BODY = 1 << 20
#: Maximum number of redirects in a row. Only GET follows them.
MAX_REDIRECTS = 3
#: Seconds for one request with its response.
REQUEST_SECONDS = 10.0

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SECRET_HEADERS = frozenset({"authorization", "cookie", "dpop", "proxy-authorization"})


class HttpRequest(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A request that a flow wants made.

    Attributes:
        method: The HTTP method.
        url: The URL.
        headers: Names and values.
        body: The content, None for none.
    """

    method: str
    url: str
    headers: HeaderPairs = ()
    body: bytes | None = None

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {describe(self.url)})"


class HttpResponse(msgspec.Struct, frozen=True):
    """The response to a request of a flow.

    Attributes:
        status: The HTTP status.
        headers: Lower-case names to values.
        body: The content, at most `MAX_BODY` bytes.
        url: The URL that it came from, after redirects.
    """

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    url: str = ""

    def __repr__(self) -> str:
        return f"HttpResponse({self.status}, {len(self.body)} bytes)"


ResultT = TypeVar("ResultT")
#: Yields requests, is sent their responses, or thrown `FetchFailed` or `UrlRefused`, and returns a result.
Flow: TypeAlias = Generator[HttpRequest, HttpResponse, ResultT]


class FetchFailed(AuthorizationFailed):
    """A request of a flow got no response that can be used.

    Args:
        request: The method and the URL.
        why: What happened in place of a response.
    """

    def __init__(self, request: str, why: str) -> None:
        super().__init__(f"{request}: {why}")
        self.request = request


def begin_with(why: str, error: AuthorizationFailed) -> None:
    """Let the text of an error begin with what the server wants, which matters more than what failed afterwards.

    Args:
        why: The beginning.
        error: The error. It keeps its class, which says what failed.
    """
    if not str(error).startswith(why):
        error.args = (f"{why}{error}",)


class Fetcher:
    """Makes the requests of flows. It belongs to one event loop; close it after use.

    Args:
        rules: Which URLs may be requested.
        tls: As `tls` of a client.
        proxy: As `proxy` of a client. A proxy resolves names itself: then only addresses in URLs can be checked.
        server_wire: Makes the wire for requests to the origin of the MCP server; by default it is reached like others.

    Example:
        >>> async with Fetcher(UrlRules("https://example.com/mcp")) as fetcher:
        ...     result = await fetcher.run(flow)
    """

    def __init__(
        self,
        rules: UrlRules,
        *,
        tls: TlsContext = DEFAULT_TLS,
        proxy: str | None = None,
        server_wire: Callable[[], Wire] | None = None,
    ) -> None:
        self.rules = rules
        self._wire: Wire = SocketWire(tls=tls, proxy=proxy, connect=REQUEST_SECONDS, resolver=rules.resolve)
        self._make_server_wire = server_wire
        self._server_wire: Wire | None = None

    async def __aenter__(self) -> Fetcher:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._wire.close()
        if self._server_wire is not None:
            await self._server_wire.close()

    async def run(self, flow: Flow[ResultT]) -> ResultT:
        """Drive a flow to its end.

        Args:
            flow: The generator. A request that fails is thrown into it as AuthorizationFailed.

        Returns:
            What the flow returns.

        Raises:
            AuthorizationFailed: The flow raised it, or did not handle the failure of a request.
        """
        try:
            request = next(flow)
            while True:
                try:
                    response = await self.fetch(request)
                except AuthorizationFailed as exc:
                    request = flow.throw(exc)
                else:
                    request = flow.send(response)
        except StopIteration as done:
            result: ResultT = done.value
            return result
        finally:
            flow.close()

    async def fetch(self, request: HttpRequest) -> HttpResponse:
        """Make one request; GET follows redirects, each of which is checked.

        Args:
            request: The request.

        Returns:
            The response, whatever its status.

        Raises:
            UrlRefused: The URL, or that of a redirect, must not be requested.
            FetchFailed: There was no response, or it is too large.
        """
        what = f"{request.method} {describe(request.url)}"
        for _ in range(MAX_REDIRECTS + 1):
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    response = await self._exchange(request)
            except TimeoutError:
                raise FetchFailed(what, f"no answer within {REQUEST_SECONDS:g} s") from None
            except AuthorizationFailed:
                raise
            except CallError as exc:
                raise FetchFailed(what, str(exc)) from exc
            location = response.headers.get("location")
            if request.method != "GET" or response.status not in _REDIRECTS or not location:
                return response
            request = _redirected(request, location)
        raise FetchFailed(what, f"more than {MAX_REDIRECTS} redirects")

    async def _exchange(self, request: HttpRequest) -> HttpResponse:
        target = self.rules.check(request.url)
        wire = self._wire
        if target.origin == self.rules.server_origin and self._make_server_wire is not None:
            if self._server_wire is None:
                self._server_wire = self._make_server_wire()
            wire = self._server_wire
        try:
            response = await wire.open(request.method, request.url, request.headers, request.body)
        except ConnectionLost:
            if request.method != "GET":
                raise
            # The server may have closed an idle connection while the request was on its way (RFC 9112, section 9.3.1).
            response = await wire.open(request.method, request.url, request.headers, request.body)
        try:
            body = await _read(response, f"{request.method} {describe(request.url)}")
            return HttpResponse(response.status, response.headers, body, request.url)
        finally:
            response.close()


def _redirected(request: HttpRequest, location: str) -> HttpRequest:
    """The request for the target of a redirect, without what is for the first origin only."""
    try:
        url = urljoin(request.url, location).partition("#")[0]
    except ValueError:
        url = location
    headers = [pair for pair in request.headers if pair[0].lower() not in _SECRET_HEADERS]
    return HttpRequest("GET", url, headers)


async def _read(response: WireResponse, what: str) -> bytes:
    parts, size = [], 0
    while piece := await response.read():
        parts.append(piece)
        size += len(piece)
        if size > MAX_BODY:
            raise FetchFailed(what, f"the answer has more than {MAX_BODY} bytes")
    return b"".join(parts)
