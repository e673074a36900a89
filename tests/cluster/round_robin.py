"""A proxy that sends each HTTP request to another server, so that no client stays with one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import cycle

from tests.ports import free_port


class RoundRobin:
    """Forwards requests to the ports in turn. Each has a connection of its own, which ends with its response.

    Args:
        ports: Where the servers are.
        fails: Whether a request, with its head, is answered with 502, as if its server had died.
    """

    def __init__(self, ports: Sequence[int], fails: Callable[[bytes], bool] = lambda request: False) -> None:
        self.port = free_port()
        self._fails = fails
        #: Requests by port.
        self.requests: Counter[int] = Counter()
        self._next = cycle(ports)

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
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                writer.close()
                return
            kept = [line for line in lines if not line.lower().startswith(b"connection:")]
            port = next(self._next)
            self.requests[port] += 1
            behind, ahead = await asyncio.open_connection("127.0.0.1", port)
            ahead.write(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]) + body)
            left = asyncio.ensure_future(reader.read(1))  # the client leaves a stream
            try:
                while not left.done():
                    reading = asyncio.ensure_future(behind.read(65536))
                    await asyncio.wait([reading, left], return_when=asyncio.FIRST_COMPLETED)
                    if not reading.done():
                        reading.cancel()
                        break
                    if not (data := reading.result()):
                        break
                    writer.write(data)
                    await writer.drain()
            finally:
                left.cancel()
                ahead.close()
        writer.close()
