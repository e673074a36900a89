"""A proxy that sends each HTTP request to another server, so that no client stays with one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import cycle

from tests.ports import free_port

_BUSY = b"HTTP/1.1 %d Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class RoundRobin:
    """Forwards requests to the ports in turn. Each has a connection of its own, which ends with its response.

    The turn of a server that refuses the connection goes to the next one; 502 tells that there is no answer.

    Args:
        ports: Where the servers are.
        fails: Whether a request, with its head, is answered with 502, as if its server had died.
        refuses: The status with which a request, with its head, is refused, as by a proxy that is busy; 0 to forward it.
    """

    def __init__(
        self,
        ports: Sequence[int],
        fails: Callable[[bytes], bool] = lambda request: False,
        refuses: Callable[[bytes], int] = lambda request: 0,
    ) -> None:
        self.port = free_port()
        self._fails = fails
        self._refuses = refuses
        #: Requests by port.
        self.requests: Counter[int] = Counter()
        self._ports = list(ports)
        self._turns = cycle(range(len(ports)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RoundRobin]:
        """Serve as long as the block runs."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 24)
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head[:-4].split(b"\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
            body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
            if self._fails(head + body):
                writer.write(_BAD_GATEWAY)
                writer.close()
                return
            if status := self._refuses(head + body):
                writer.write(_BUSY % status)
                writer.close()
                return
            kept = [line for line in lines if not line.lower().startswith(b"connection:")]
            behind, ahead = await self._connect()
            ahead.write(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]) + body)
            answered = False
            left = asyncio.ensure_future(reader.read(1))  # the client leaves a stream
            try:
                while not left.done():
                    reading = asyncio.ensure_future(behind.read(65536))
                    await asyncio.wait([reading, left], return_when=asyncio.FIRST_COMPLETED)
                    if not reading.done():
                        reading.cancel()
                        break
                    data = b"" if reading.exception() else reading.result()
                    if not data:
                        break
                    answered = True
                    writer.write(data)
                    await writer.drain()
            finally:
                if not answered and not left.done():
                    writer.write(_BAD_GATEWAY)
                left.cancel()
                ahead.close()
        writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server whose turn it is, or one after it. Raises ConnectionRefusedError if there is none."""
        turn = next(self._turns)
        for port in self._ports[turn:] + self._ports[:turn]:
            with suppress(ConnectionRefusedError):
                connection = await asyncio.open_connection("127.0.0.1", port)
                self.requests[port] += 1
                return connection
        raise ConnectionRefusedError
