"""Running an HTTP app as a process of its own: sockets, signals, and an end that comes in time.

Must not know MCP, nor HTTP's syntax. What serves is imported when something is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hinge.errors import StartError
from hinge.signals import stop_on_signals
from hinge.transports.http.server.app import HttpApp

if TYPE_CHECKING:
    import ssl

#: How a port is chosen.
_HOW = "(port=… in code, --port on the command line)"
#: What may pass between the end of the last call and the end of the process: answers are on their way.
MARGIN = 0.3


async def serve_http(
    app: HttpApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    uds: str | None = None,
    tls: ssl.SSLContext | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then stop within `limits.drain` and half a second; a second signal ends at once.

    `port` 0 takes a free one. `uds` is the path of a Unix socket to be used instead; who may connect follows from the
    umask. `announce` is given the URL when the server is ready; by default it is printed on stderr. Raises StartError
    when the server can't start.
    """
    listening = bind(host, port, uds)
    try:
        await serve_sockets(app, listening, tls=tls, announce=announce)
    finally:
        unbind(listening, uds)


async def serve_sockets(
    app: HttpApp,
    listening: list[socket.socket],
    *,
    tls: ssl.SSLContext | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """`serve_http` on sockets that listen already. They are closed at the end."""
    from hinge.http1.server.listener import Listener

    app.health = True
    app.watch_signals = False
    await app.start()
    listener = Listener(app.serve, 2 * app.options.header_bytes)
    stopping = asyncio.Event()
    try:
        with stop_on_signals(lambda _signal: stopping.set()):
            await listener.open(listening, tls)
            (announce or print_url)(url_of(listening[0], app.options.path, tls is not None))
            await stopping.wait()
            listener.drain()
            await app.stop()
            await listener.leave(MARGIN)
    finally:
        # A cancellation has brought us here; after a signal there is nothing left to do.
        listener.drain()
        await app.stop()
        listener.close()


def print_url(url: str) -> None:
    """Say on stderr that the server is ready; stdout may belong to somebody else."""
    print(f"Serving MCP at {url}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- sockets


def bind(host: str, port: int, uds: str | None) -> list[socket.socket]:
    """Listening sockets: a Unix one, or one for each address of the host. Raises StartError with the reason."""
    return [_bind_unix(uds)] if uds is not None else _bind(host, port)


def unbind(listening: list[socket.socket], uds: str | None) -> None:
    """Undo `bind`."""
    for one in listening:
        one.close()
    if uds is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(uds)


def _bind(host: str, port: int) -> list[socket.socket]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as exc:
        raise StartError(f"The host {host!r} has no address to listen on: {exc.strerror}") from exc
    listening: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            listening.append(_listen(family, (address[0], port, *address[2:])))
        except OSError as exc:
            for one in listening:
                one.close()
            raise StartError(f"Can't listen on {host} port {port}: {_why(exc, port)}") from exc
        port = port or listening[0].getsockname()[1]
    return listening


def _listen(family: int, address: Any) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(2048)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _why(exc: OSError, port: int) -> str:
    import errno

    if exc.errno == errno.EADDRINUSE:
        return f"the port is in use; stop what uses it, or choose another {_HOW}"
    if exc.errno == errno.EACCES and port < 1024:
        return f"ports below 1024 need special rights; choose another {_HOW}"
    return exc.strerror or str(exc)


def _bind_unix(path: str) -> socket.socket:
    """A listening Unix socket; a file that a dead server left behind is replaced. Raises StartError."""
    if os.path.exists(path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            except OSError as exc:
                raise StartError(f"Can't listen on {path}: there is something else ({exc.strerror})") from exc
            else:
                raise StartError(f"Can't listen on {path}: another server does")
    try:
        return _listen(socket.AF_UNIX, path)
    except OSError as exc:
        raise StartError(f"Can't listen on {path}: {exc.strerror}") from exc


def url_of(listening: socket.socket, path: str, secure: bool) -> str:
    """Where clients find the endpoint."""
    if listening.family == getattr(socket, "AF_UNIX", None):
        return f"unix:{listening.getsockname()}{path}"
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{shown}:{port}{path}"
