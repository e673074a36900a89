"""Lookups of names that anybody can choose: the resolver of the system can't be cancelled, and the threads for it are few."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

from gemel.auth.server.proxy.documents import TooBusy
from gemel.loops import PerLoop
from gemel.shares import Shares


class Lookups:
    """Looks names up in threads of its own, so that those that are never answered delay no other work of the process.

    A lookup counts until its thread ends, whoever still waits for it. Nothing can give way, so a share has at most a quarter of
    what others leave, and there is room for further ones.

    Args:
        most: How many may be under way at once, in one event loop.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._shares: PerLoop[Shares[object]] = PerLoop(Shares)

    async def resolve(self, share: str, host: str, port: int) -> Sequence[Any]:
        """Return the addresses of a host.

        Args:
            share: Who wants them.
            host: A name or an address.
            port: The port.

        Returns:
            The addresses, as `socket.getaddrinfo` does.

        Raises:
            OSError: The host is unknown.
            TooBusy: Too many lookups are under way.
        """
        with suppress(socket.gaierror):
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        shares = self._shares.here()
        held = shares.held(share)
        left = self._most - (len(shares) - held)
        if len(shares) >= self._most or held >= max(left // 4, 1):
            raise TooBusy
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[Any]] = loop.create_future()
        shares.add(share, future)

        def end(result: Sequence[Any] | Exception) -> None:
            shares.discard(share, future)
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        def look_up() -> None:
            result: Sequence[Any] | Exception
            try:
                result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except Exception as exc:
                result = exc
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(end, result)

        Thread(target=look_up, name="gemel-names", daemon=True).start()
        return await future
