"""What the tests of our own HTTP server share: a server of any function on real sockets, and a client that writes bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from gemel.http1.server.listener import Listener
from gemel.http1.server.request import ServedRequest

JSON_TYPE = b"application/json"

Serve = Callable[[ServedRequest], Coroutine[Any, Any, None]]

#: The head of a request may have so many bytes here.
HEAD_BYTES = 4096


async def echo(request: ServedRequest) -> None:
    """Answers with the method, the path and the body."""
    body = await request.read(1 << 20)
    if body is not None:
        said = f"{request.scope['method']} {request.scope['path']} ".encode() + body
        await request.respond(200, JSON_TYPE, said, ())


class Line:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, *pieces: bytes) -> None:
        """Send pieces, each in a segment of its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of a response."""
        async with asyncio.timeout(10):
            first, *rest = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.partition(": ") for line in rest if line]
        assert len({name for name, _, _ in pairs}) == len(pairs), rest
        return int(first.split()[1]), {name: value for name, _, value in pairs}

    async def answer(self) -> tuple[int, str]:
        """Status and body of a response that says how long it is."""
        status, headers = await self.head()
        async with asyncio.timeout(10):
            return status, (await self.reader.readexactly(int(headers.get("content-length", "0")))).decode()

    async def rest(self) -> bytes:
        """All until the server closes the connection."""
        async with asyncio.timeout(10):
            return await self.reader.read()


class House:
    """A server that listens."""

    def __init__(self, listener: Listener, port: int) -> None:
        self.listener = listener
        self.port = port
        self._lines: list[Line] = []

    async def open(self) -> Line:
        self._lines.append(Line(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self._lines[-1]

    async def ask(self, *pieces: bytes) -> Line:
        line = await self.open()
        await line.say(*pieces)
        return line

    def close(self) -> None:
        for line in self._lines:
            line.writer.close()


@asynccontextmanager
async def listening(serve: Serve = echo) -> AsyncIterator[House]:
    """Serve on a free port; at the end nothing is left."""
    listener = Listener(serve, HEAD_BYTES)
    taken = socket.create_server(("127.0.0.1", 0))
    house = House(listener, taken.getsockname()[1])
    await listener.open([taken], None)
    try:
        yield house
    finally:
        house.close()
        listener.close()
        async with asyncio.timeout(5):
            while listener.connections or listener.tasks:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)


def get(path: str = "/a", *headers: str, version: str = "1.1", method: str = "GET") -> bytes:
    """A request without a body."""
    lines = [f"{method} {path} HTTP/{version}", "Host: here", *headers]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def post(body: bytes, *headers: str, path: str = "/a") -> bytes:
    """A request with a body."""
    return get(path, f"Content-Length: {len(body)}", *headers, method="POST") + body
