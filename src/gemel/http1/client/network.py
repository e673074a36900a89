"""Open connections: TLS contexts, the addresses of a host, TCP keep-alive, and errors that say why it failed."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from itertools import zip_longest
from typing import Any, TypeAlias

from gemel.errors import DefinitionError

#: Seconds until the next address of a host is tried while one has not answered (RFC 8305, "Connection Attempt Delay").
NEXT_ADDRESS_SECONDS = 0.25
#: When TCP asks whether a silent peer is still there. A stream may be silent for hours, a peer that vanished is noticed
#: after about two minutes.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))

#: What `tls=` takes: a context, the path of a file with further authorities, True, or False to verify nothing.
TlsSetting: TypeAlias = ssl.SSLContext | str | bool
#: Returns the addresses of a host and port as `socket.getaddrinfo` does; raises for those that must not be used.
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[Any]]]


class TlsContext:
    """The TLS context of a client: built once, in a thread, when the first connection needs it.

    To load the system's authorities takes tens of milliseconds, during which no event loop should wait.
    """

    def __init__(self, setting: TlsSetting) -> None:
        self._setting = True if isinstance(setting, ssl.SSLContext) else setting
        self._context: Future[ssl.SSLContext] | None = None
        if isinstance(setting, ssl.SSLContext):
            self._context = Future()
            self._context.set_result(setting)

    async def get(self) -> ssl.SSLContext:
        """Return the context. Raises DefinitionError if it can't be built; the next call tries again."""
        building = self._context
        if building is None:
            building = self._context = Future()
            threading.Thread(target=self._build, args=[building], name="gemel-tls", daemon=True).start()
        if building.done():
            return building.result()
        return await asyncio.shield(asyncio.wrap_future(building))

    def _build(self, building: Future[ssl.SSLContext]) -> None:
        try:
            building.set_result(make_context(self._setting))
        except Exception as exc:
            self._context = None
            building.set_exception(exc)


def make_context(setting: str | bool) -> ssl.SSLContext:
    """Make a TLS context for clients. It takes tens of milliseconds.

    Args:
        setting: The path of a file with further authorities, True, or False to verify nothing.

    Raises:
        DefinitionError: The file can't be read.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if setting is False:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif setting is not True:
        try:
            context.load_verify_locations(setting)
        except OSError as exc:
            raise DefinitionError(f"tls={setting!r}: the file with the certificates can't be read: {exc}") from exc
    return context


#: Clients without a setting of their own share one context.
DEFAULT_TLS = TlsContext(True)


async def open_socket(host: str, port: int, resolver: Resolver | None = None) -> socket.socket:
    """Connect to a host at the first of its addresses that answers (RFC 8305, "Happy Eyeballs").

    Args:
        host: A name or an address.
        port: The port.
        resolver: Resolves the host in place of `resolve`.

    Raises:
        OSError: The host is unknown, or no address can be reached.
    """
    waiting = _alternate(await (resolver or resolve)(host, port))
    attempts: set[asyncio.Task[socket.socket]] = set()
    error: BaseException | None = None
    try:
        while waiting or attempts:
            if waiting:
                attempts.add(asyncio.create_task(_connect(waiting.pop(0))))
            delay = NEXT_ADDRESS_SECONDS if waiting else None
            finished, _ = await asyncio.wait(attempts, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            for attempt in finished:
                attempts.discard(attempt)
                if attempt.exception() is None:
                    return attempt.result()
                error = error or attempt.exception()
    finally:
        for attempt in attempts:
            attempt.add_done_callback(_close_unused)
            attempt.cancel()
    assert error is not None
    raise error


async def resolve(host: str, port: int) -> Sequence[Any]:
    """Return the addresses of a host as `socket.getaddrinfo` does; an address needs no resolver."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _alternate(addresses: Sequence[Any]) -> list[Any]:
    """Alternate between the address families, the preferred one first."""
    families: dict[int, list[Any]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    return [address for group in zip_longest(*families.values()) for address in group if address is not None]


async def _connect(address: Any) -> socket.socket:
    family, kind, protocol, _, place = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, place)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    except BaseException:
        sock.close()
        raise
    return sock


def _close_unused(attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


# --- Errors -----------------------------------------------------------------------------------------------------------

#: Alerts (RFC 8446, section 6) of a server that wanted another client certificate, or one at all.
_NO_CERTIFICATE = ("certificate required", "bad certificate", "handshake failure")


def wants_certificate(exc: ssl.SSLError) -> bool:
    """Whether the server ended TLS because of the client's certificate, or may have done so."""
    return any(alert in _reason(exc) for alert in _NO_CERTIFICATE)


def _reason(exc: ssl.SSLError) -> str:
    return (exc.reason or str(exc)).replace("_", " ").lower()


def explain_tls(exc: ssl.SSLError) -> str:
    """Say what failed in TLS, and what to do about it."""
    reason = _reason(exc)
    if "no application protocol" in reason:
        return f"{reason}. The server doesn't speak HTTP/1.1, perhaps HTTP/2 only: {OTHER_CLIENT}"
    if wants_certificate(exc):
        return f"{reason}. The server may want a client certificate: pass `tls` an SSLContext after load_cert_chain()"
    return f"{reason}. Does the server speak https on this port?"


#: What to do about a server or a proxy that needs more than HTTP/1.1.
OTHER_CLIENT = 'use another HTTP client, wire="httpx2" (the extra httpx2)'


def explain_failure(host: str, port: int, exc: Exception) -> str:
    """Say why there is no connection, and what to do."""
    place = f"{host}:{port}"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return (
            f"The certificate of {place} was not accepted: {exc.verify_message}. Pass `tls` the file of its authority"
        )
    if isinstance(exc, ssl.SSLError):
        return f"No TLS with {place}: {explain_tls(exc)}"
    if isinstance(exc, socket.gaierror):
        return f"The host {host!r} was not found: {exc.strerror}"
    advice = ". Is the server running?" if isinstance(exc, OSError) and exc.errno is not None else ""
    return f"No connection to {place}: {str(exc) or type(exc).__name__}{advice}"
