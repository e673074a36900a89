"""A Wire over httpx2 (the extra `httpx2`): HTTP/2, SOCKS proxies, brotli, cookies.

Each request has a connection of its own while it lasts, over HTTP/2 too, since httpx2 does not reset streams (RFC 9113,
section 5.4.2): a server learns that a request was cancelled from the end of its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from http.cookiejar import CookieJar
from typing import Any, TypeVar

import httpx2

from gemel.errors import ConnectionLost, InvalidResponse, NotSent
from gemel.http1.client.connection import DRAIN_BYTES, DRAIN_SECONDS
from gemel.http1.client.network import TlsContext, explain_failure
from gemel.http1.client.pool import IDLE_SECONDS, Origin, Target, check_header, read_url
from gemel.http1.client.wire import HeaderPairs, WireResponse

logger = logging.getLogger("gemel")

ResultT = TypeVar("ResultT")

#: Seconds that tasks have to end when the wire is closed.
_CLOSE_SECONDS = 1.0

#: What httpx2 raises before it has sent a request.
_NOT_SENT = (
    *(httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError),
    *(httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL),
)


class HttpxWire:
    """HTTP/1.1 and HTTP/2 with kept connections and cookies.

    Args:
        tls: The TLS context; httpx2 sets its ALPN protocols.
        proxy: The URL of a proxy (http, https, socks5, socks5h), None for those of the environment, "" for none.
        connect: Seconds for opening a connection.
    """

    def __init__(self, *, tls: TlsContext, proxy: str | None = None, connect: float = 30.0) -> None:
        #: That of the last response; None before the first.
        self.http_version: str | None = None
        self._tls = tls
        self._proxy = proxy
        self._connect_limit = connect
        self._cookies = CookieJar()
        self._closed = False
        self._idle: dict[Origin, list[httpx2.AsyncClient]] = {}
        #: All clients, and when they became idle, by the loop's clock.
        self._clients: dict[httpx2.AsyncClient, float | None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Those among them that close a stream or a connection.
        self._closing: set[asyncio.Task[Any]] = set()
        self._reaper: asyncio.TimerHandle | None = None

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> WireResponse:
        """See Wire.open."""
        target = read_url(url)
        pairs = [check_header(name, value) for name, value in headers]
        if self._closed:
            raise NotSent("The wire is closed")
        client = await self._take(target.origin)
        try:
            request = client.build_request(method, url, headers=pairs, content=body)
            response = await self.wait(self.start(client.send(request, stream=True)))
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            self.start_closing(self.discard(client))
            raise _error(target, exc) from exc
        except BaseException:
            self.start_closing(self.discard(client))
            raise
        self.http_version = response.http_version.removeprefix("HTTP/").removesuffix(".0")
        return _HttpxResponse(self, client, target.origin, response)

    async def close(self) -> None:
        """See Wire.close."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks - self._closing:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
        for client in list(self._clients):
            await self.discard(client)

    def start(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
        """Run a coroutine in a task, which ends with the wire."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def start_closing(self, work: Coroutine[Any, Any, None]) -> None:
        """Close something in a task, which may finish when the wire is closed: httpx2 leaves open generators otherwise."""
        task = self.start(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def wait(self, task: asyncio.Task[ResultT]) -> ResultT:
        """Wait for a task of the wire. Raises ConnectionLost if it is cancelled by something else than the caller's end."""
        try:
            return await task
        except asyncio.CancelledError:
            here = asyncio.current_task()
            if here is not None and here.cancelling():
                raise
            raise ConnectionLost("The stream was closed on this side") from None

    async def _take(self, origin: Origin) -> httpx2.AsyncClient:
        if idle := self._idle.get(origin):
            client = idle.pop()
        else:
            client = httpx2.AsyncClient(
                http2=True,
                verify=await self._tls.get(),
                proxy=self._proxy or None,
                trust_env=self._proxy is None,
                cookies=self._cookies,
                timeout=httpx2.Timeout(None, connect=self._connect_limit),
                limits=httpx2.Limits(max_connections=1, keepalive_expiry=IDLE_SECONDS),
            )
        self._clients[client] = None
        return client

    def keep(self, origin: Origin, client: httpx2.AsyncClient) -> None:
        """Keep a client whose request is over for the next one."""
        loop = asyncio.get_running_loop()
        self._clients[client] = loop.time()
        self._idle.setdefault(origin, []).append(client)
        if self._reaper is None and not self._closed:
            self._reaper = loop.call_later(IDLE_SECONDS, self._reap)

    async def discard(self, client: httpx2.AsyncClient) -> None:
        """Close the connection of a client."""
        self._clients.pop(client, None)
        await client.aclose()

    def _reap(self) -> None:
        """Close what was idle for too long, and look again while anything is idle."""
        self._reaper = None
        loop = asyncio.get_running_loop()
        for idle in self._idle.values():
            for client in list(idle):
                since = self._clients.get(client)
                if since is not None and loop.time() - since >= IDLE_SECONDS:
                    idle.remove(client)
                    self.start_closing(self.discard(client))
        if any(self._idle.values()):
            self._reaper = loop.call_later(IDLE_SECONDS, self._reap)


class _HttpxResponse:
    """See WireResponse."""

    def __init__(self, wire: HttpxWire, client: httpx2.AsyncClient, origin: Origin, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = dict(response.headers.items())
        self._wire = wire
        self._client = client
        self._origin = origin
        self._response = response
        self._pieces: AsyncGenerator[bytes, None] = response.aiter_bytes()
        self._reading: asyncio.Task[bytes] | None = None
        self._ended = self._closed = False

    async def read(self) -> bytes:
        """See WireResponse.read."""
        if self._ended:
            return b""
        if self._closed:
            raise ConnectionLost("The stream was closed on this side")
        try:
            self._reading = self._wire.start(self._next())
            return await self._wire.wait(self._reading)
        except httpx2.DecodingError as exc:
            self.close()
            raise InvalidResponse(f"The server's answer can't be decompressed: {exc}") from exc
        except (httpx2.HTTPError, httpx2.StreamError) as exc:
            self.close()
            raise ConnectionLost(f"The server closed the connection in the middle of its answer: {exc}") from exc
        finally:
            self._reading = None

    async def _next(self) -> bytes:
        async for piece in self._pieces:
            if piece:
                return piece
        self._ended = True
        self._wire.keep(self._origin, self._client)
        return b""

    def close(self, *, drain: bool = False) -> None:
        """See WireResponse.close."""
        if self._ended or self._closed:
            return
        self._closed = True
        if self._reading is not None:
            self._reading.cancel()
            drain = False
        self._wire.start_closing(self._drain() if drain else self._discard(self._reading))

    async def _discard(self, reading: asyncio.Task[bytes] | None) -> None:
        """Close the stream, when nobody reads it any more, and its connection."""
        if reading is not None:
            await asyncio.wait([reading])
        try:
            await self._pieces.aclose()
            await self._response.aclose()
        except (httpx2.HTTPError, httpx2.StreamError) as exc:
            logger.debug("A stream could not be closed: %s", exc)
        finally:
            await self._wire.discard(self._client)

    async def _drain(self) -> None:
        size = 0
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while size < DRAIN_BYTES and (piece := await self._next()):
                    size += len(piece)
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError):
            pass
        if not self._ended:
            await self._discard(None)


def _error(target: Target, exc: Exception) -> Exception:
    """The error for a request without a response."""
    if isinstance(exc, _NOT_SENT):
        return NotSent(explain_failure(target.host, target.port, _system_error(exc)))
    if isinstance(exc, httpx2.RemoteProtocolError) and "disconnected" not in str(exc):
        return InvalidResponse(f"The server's answer is not valid HTTP: {exc}")
    return ConnectionLost(f"The server closed the connection without an answer: {exc}")


def _system_error(exc: Exception) -> Exception:
    """The system's error that an error of httpx2 was raised from, if any."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            return cause
        cause = cause.__cause__ or cause.__context__
    return exc
