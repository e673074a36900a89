"""The server on the loopback interface to which a browser returns after a login (RFC 8252 §7.3)."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from gemel.errors import AuthorizationFailed, DefinitionError
from gemel.http1.server.listener import Listener
from gemel.http1.server.request import ServedRequest

#: Addresses on which a host listens; the second one only where the system has it.
_ADDRESSES = {"localhost": ("127.0.0.1", "::1"), "127.0.0.1": ("127.0.0.1",), "::1": ("::1",)}
#: Maximum bytes of the head of a request: codes and states are long at some authorization servers.
_HEAD_BYTES = 32 * 1024
#: Free ports that are tried until one is free for IPv4 and IPv6.
_TRIES = 20
#: Seconds for the page to reach the browser.
_LEAVE_SECONDS = 1.0
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><p>{text}</p></html>
"""
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"connection", b"close"),
)


class CallbackServer:
    """Waits for one redirect at a time.

    Args:
        host: `localhost`, `127.0.0.1` or `::1`.
        port: The port, 0 for a free one.
        path: The path of the redirect URI.

    Raises:
        DefinitionError: Host or path can't work.
    """

    def __init__(self, host: str, port: int, path: str) -> None:
        self._sockets: list[socket.socket] = []
        if host not in _ADDRESSES:
            raise DefinitionError(f"host={host!r} is not possible: use {', '.join(map(repr, _ADDRESSES))}")
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or set(path) & set("?#% "):
            raise DefinitionError(f'path={path!r} is not possible: write "/callback"')
        self._host = host
        self._port = port
        self._is_fixed = port != 0
        self._path = path
        #: Answers to other logins that were refused during the last one.
        self.dropped = 0

    def __del__(self) -> None:
        self.close()

    @property
    def redirect_uri(self) -> str:
        """The address of this server; reserves the port. Raises AuthorizationFailed if it is in use."""
        return f"http://{self._authority()}{self._path}"

    def _authority(self) -> str:
        if not self._sockets:
            self._sockets = self._reserve()
            self._port = self._sockets[0].getsockname()[1]
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def _reserve(self) -> list[socket.socket]:
        """Bind all addresses of the host to one port: nobody else may take what is sent to one of them."""
        # A free port that was registered with an authorization server is used again, if it can be.
        ports = [self._port] if self._is_fixed else [*([self._port] if self._port else []), *[0] * _TRIES]
        reason = ""
        for port in ports:
            try:
                return _bind(_ADDRESSES[self._host], port)
            except OSError as exc:
                reason = exc.strerror or str(exc)
        raise AuthorizationFailed(f"The login can't use port {self._port or 'of its own'} on {self._host}: {reason}")

    def close(self) -> None:
        """Give the port back."""
        for bound in self._sockets:
            bound.close()
        self._sockets = []

    @asynccontextmanager
    async def listen(self, is_expected: Callable[[str], bool]) -> AsyncIterator[asyncio.Future[str]]:
        """Serve in this block; the future gets the address of the redirect.

        Args:
            is_expected: Whether a query belongs to this login.
        """
        redirected: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        authority = self._authority()
        #: Browsers leave out the port of the scheme.
        expected_hosts = {authority.encode(), authority.removesuffix(":80").encode()}
        bound, self._sockets = self._sockets, []
        self.dropped = 0

        async def serve(request: ServedRequest) -> None:
            query = request.scope["query_string"].decode("ascii", "replace")
            hosts = [value for name, value in request.scope["headers"] if name == b"host"]
            status, text = 200, "You may close this page and go back to the program."
            if len(hosts) != 1 or hosts[0] not in expected_hosts:
                status, text = 421, "This address does not belong to the login."
            elif request.scope["path"] != self._path:
                status, text = 404, "There is nothing here."
            elif request.scope["method"] != "GET":
                status, text = 405, "Only GET is possible here."
            elif redirected.done() or not is_expected(query):
                status, text = 400, "This answer does not belong to the login that is under way. Start it again."
            title = "Login" if status == 200 else "Not possible"
            page = _PAGE.format(title=title, text=text).encode()
            await request.respond(status, b"text/html; charset=utf-8", page, _HEADERS)
            self.dropped += status == 400
            if status == 200 and not redirected.done():
                redirected.set_result(f"http://{authority}{self._path}?{query}")

        listener = Listener(serve, _HEAD_BYTES)
        try:
            await listener.open(bound, None)
            yield redirected
            listener.drain()
            await listener.end(_LEAVE_SECONDS)
        finally:
            listener.close()
            for one in bound:
                one.close()


def _bind(addresses: tuple[str, ...], port: int) -> list[socket.socket]:
    """Bind sockets to one port of several addresses. IPv6 is left out where the system has none beside IPv4."""
    bound: list[socket.socket] = []
    try:
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                bound.append(_bind_address(family, address, port))
            except OSError as exc:
                if not bound or exc.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
            else:
                port = bound[0].getsockname()[1]
    except OSError:
        for one in bound:
            one.close()
        raise
    return bound


def _bind_address(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    new = socket.socket(family, socket.SOCK_STREAM)
    try:
        new.setblocking(False)
        if sys.platform == "win32":
            new.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with suppress(OSError):
                new.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        new.bind((address, port))
        new.listen()  # from here on nobody else can listen there
    except OSError:
        new.close()
        raise
    return new
