"""Run an HTTP app as a process of its own: listening sockets, signals, shutdown within a time limit.

The HTTP server is imported when something is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from gemel.errors import Overloaded, StartError
from gemel.jsonrpc import encode_failure
from gemel.local_sockets import NO_UNIX_SOCKETS, is_pipe, remove_dead_socket
from gemel.signals import stop_on_signals
from gemel.transports.http.server.app import HttpApp
from gemel.transports.http.server.exchange import JSON_TYPE, STOPPING

if TYPE_CHECKING:
    import ssl

    from gemel.http1.server.access_log import ServeRequest
    from gemel.http1.server.listener import Listener

#: Seconds after the last call in which responses may still reach their clients.
MARGIN = 0.3
#: Seconds for which a worker that is being replaced answers on its open connections, before it stops as by a signal.
RETIRE_SECONDS = 2.0
#: Bytes of a response that the kernel takes before its client has room for them.
UNSENT_BYTES = 128 * 1024
#: Since Python 3.12 in `socket`.
_TCP_NOTSENT_LOWAT = 25


class ServingOptions(TypedDict, total=False):
    """How a process serves an app, besides its address; see `HttpOptions`."""

    tls: ssl.SSLContext | None
    announce: Callable[[str], None] | None
    engine: Literal["gemel", "uvicorn"]
    access_log: bool
    trusted_proxies: Sequence[str]
    #: Set when others take over: what is connected is served, then the process stops.
    retiring: asyncio.Event


async def serve_http(
    app: HttpApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    uds: str | None = None,
    **options: Unpack[ServingOptions],
) -> None:
    """Serve until SIGTERM or SIGINT, then stop within `limits.drain` and half a second; a second signal kills the process.

    Args:
        app: The app to serve.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        uds: The path of a Unix socket, or on Windows the name of a pipe, to listen on instead.
        options: See `HttpOptions`.

    Raises:
        StartError: The server can't start.
    """
    if uds is not None and is_pipe(uds):
        await _serve_pipe(app, uds, **options)
        return
    listening = bind(host, port, uds)
    try:
        await serve_sockets(app, listening, **options)
    finally:
        unbind(listening, uds)


async def serve_sockets(app: HttpApp, listening: list[socket.socket], **options: Unpack[ServingOptions]) -> None:
    """The same as `serve_http` on listening sockets, which are closed at the end."""
    tls, announce = options.get("tls"), options.get("announce") or print_url

    def ready() -> None:
        announce(url_of(listening[0], app.options.path, tls is not None))

    app.health = True
    app.watch_signals = False
    if options.get("engine") == "uvicorn":
        from gemel.transports.http.server.uvicorn import serve_with_uvicorn

        access_log, proxies = options.get("access_log", False), options.get("trusted_proxies", ())
        await app.start()
        retiring = options.get("retiring") or asyncio.Event()
        await serve_with_uvicorn(
            app, listening, retiring, tls=tls, access_log=access_log, trusted_proxies=proxies, ready=ready
        )
        return
    await _serve(app, lambda listener: listener.open(listening, tls), ready, options)


async def _serve_pipe(app: HttpApp, name: str, **options: Unpack[ServingOptions]) -> None:
    """The same as `serve_http` on a named pipe of Windows."""
    if options.get("tls") is not None:
        raise StartError(f"Can't serve HTTPS on {name}: a named pipe carries no TLS; leave it out, or listen on a port")
    if options.get("engine") == "uvicorn":
        raise StartError(f"uvicorn can't serve on the named pipe {name}: use the built-in engine, or a port")
    announce = options.get("announce") or print_url
    app.health = True
    app.watch_signals = False
    await _serve(app, lambda listener: listener.open_pipe(name), lambda: announce(f"{name}{app.options.path}"), options)


async def _serve(
    app: HttpApp,
    open_listener: Callable[[Listener], Awaitable[None]],
    ready: Callable[[], None],
    options: ServingOptions,
) -> None:
    """Serve with the built-in HTTP server until a signal or cancellation."""
    from gemel.http1.server.listener import Listener

    life = await app.start()
    rules = app.options
    serve = _wrapped(life.serve, options.get("access_log", False), options.get("trusted_proxies", ()))
    # The app counts the headers of a complete head; one that goes on beyond that is given up here.
    farewell = encode_failure(None, Overloaded(STOPPING.text).error).decode(), JSON_TYPE
    listener = Listener(serve, 2 * rules.header_bytes, 2 * rules.headers, rules.limits.stream_wait, farewell)
    stopping, retiring = asyncio.Event(), options.get("retiring") or asyncio.Event()
    try:
        with stop_on_signals(lambda _signal: stopping.set()):
            await open_listener(listener)
            ready()
            await _first(stopping, retiring)
            await listener.stop_accepting(alone="retiring" not in options)
            if not stopping.is_set():
                # Not all clients send a request again that meets the end of its connection: they end with their next one.
                await listener.wait_drained(RETIRE_SECONDS, stopping)
            listener.close_unused()
            await app.stop()
            await listener.end(MARGIN)
    finally:
        # Needed if the task was cancelled; after a signal this does nothing.
        listener.drain()
        await app.stop()
        listener.close()


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _wrapped(serve: ServeRequest, access_log: bool, proxies: Sequence[str]) -> ServeRequest:
    if not access_log and not proxies:
        return serve
    from gemel.http1.server.access_log import with_access_log, with_trusted_proxies

    if access_log:
        serve = with_access_log(serve)
    return with_trusted_proxies(serve, proxies) if proxies else serve


def print_url(url: str) -> None:
    """Print on stderr that the server is ready."""
    print(f"Serving MCP at {url}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- sockets


def bind(host: str, port: int, uds: str | None) -> list[socket.socket]:
    """Open the sockets to listen on: a Unix one, or one for each address of the host.

    TCP sockets begin to listen when the app has started, so that nobody connects to a server that can't answer. A Unix
    socket listens from now on: otherwise another server would take it for one that a dead server left behind.

    Raises:
        StartError: An address is in use or not available.
    """
    return [_bind_unix(uds)] if uds is not None else _bind_tcp(host, port)


def unbind(listening: list[socket.socket], uds: str | None) -> None:
    """Close the sockets of `bind`."""
    for each in listening:
        each.close()
    if uds is not None:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(uds).st_mode):
                os.unlink(uds)


def _bind_tcp(host: str, port: int) -> list[socket.socket]:
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as exc:
        raise StartError(f"The host {host!r} has no address to listen on: {exc.strerror}") from exc
    listening: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(addresses):
        try:
            listening.append(_open(family, (address[0], port, *address[2:])))
        except OSError as exc:
            unbind(listening, None)
            raise StartError(f"Can't listen on {host} port {port}: {_advice(exc, port)}") from exc
        port = port or listening[0].getsockname()[1]
    return listening


class ListeningSocket(socket.socket):
    """A listening socket that reports only once that the process has no file descriptor left.

    asyncio would try again for each place in the backlog, and log each failure. It tries again after a second anyway.
    """

    _exhausted = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises BlockingIOError also after a failure that was reported."""
        if self._exhausted:
            self._exhausted = False
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as exc:
            self._exhausted = exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
            raise


def _open(family: int, address: Any) -> socket.socket:
    is_unix = family == getattr(socket, "AF_UNIX", None)
    # asyncio switches Nagle's algorithm off only where the protocol is named: events of a stream would wait for each other.
    listening = ListeningSocket(family, socket.SOCK_STREAM, 0 if is_unix else socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if sys.platform == "linux" and not is_unix:
            # Connections inherit it. What a slow client has not read then waits here, where it is counted, and each piece
            # that it reads is noticed.
            listening.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        listening.bind(address)
        if is_unix:
            listening.listen(2048)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _advice(exc: OSError, port: int) -> str:
    choose = "choose another (port=… in code, --port on the command line)"
    if exc.errno == errno.EADDRINUSE:
        return f"the port is in use; stop what uses it, or {choose}"
    if exc.errno == errno.EACCES and port < 1024:
        return f"ports below 1024 need special rights; {choose}"
    return exc.strerror or str(exc)


def _bind_unix(path: str) -> socket.socket:
    """Listen on a Unix socket. A file that a dead server left behind is replaced."""
    if is_pipe(path):
        raise StartError(f"Several workers can't share the named pipe {path}: start one, or use a port")
    if not hasattr(socket, "AF_UNIX"):
        raise StartError(NO_UNIX_SOCKETS)
    remove_dead_socket(path)
    try:
        return _open(socket.AF_UNIX, path)
    except OSError as exc:
        raise StartError(f"Can't listen on {path}: {exc.strerror}") from exc


def url_of(listening: socket.socket, path: str, secure: bool) -> str:
    """The URL of the endpoint."""
    if listening.family == getattr(socket, "AF_UNIX", None):
        return f"unix:{listening.getsockname()}{path}"
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{name}:{port}{path}"
