"""A TCP proxy on loopback between a client and a server, which does one thing wrong at one byte. Knows nothing of MCP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from typing import Self


@dataclass
class Mishap:
    """`kind` happens to the stream in `direction` (`up` to the server, `down` to the client) at byte `at`, once.

    `delay` and `drip` happen to all of it.
    """

    kind: str = ""
    direction: str = "down"
    at: int = 0
    happened: bool = False


class Broken(Exception):
    """This connection is over."""


@dataclass
class _Link:
    """One connection through the proxy: both sockets."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def close(self) -> None:
        for writer in (self.client, self.server):
            writer.close()

    def reset(self) -> None:
        for writer in (self.client, self.server):
            sock: socket.socket | None = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """Carries bytes between whoever connects to `port` and the server at `target`; counts them by direction."""

    def __init__(self, target: int, mishap: Mishap | None = None) -> None:
        self._target = target
        self.mishap = mishap or Mishap()
        self.passed = {"up": 0, "down": 0}
        self._links: set[_Link] = set()
        self._accepting: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        await asyncio.sleep(0)
        for task in self._accepting:
            task.cancel()
        if self._accepting:
            await asyncio.wait(self._accepting)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._accept(reader, writer))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self._target)
        link = _Link(writer, forth)
        ways = [self._copy("up", reader, forth, link), self._copy("down", back, writer, link)]
        link.tasks = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(link.tasks)
        finally:
            for task in link.tasks:
                task.cancel()
            link.close()
            await asyncio.wait(link.tasks)

    async def _copy(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link) -> None:
        with contextlib.suppress(OSError, Broken):
            while data := await reader.read(65536):
                before = self.passed[way]
                self.passed[way] += len(data)
                for piece in await self._happen(way, data, self.mishap.at - before, link):
                    writer.write(piece)
                    await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

    async def _happen(self, way: str, data: bytes, at: int, link: _Link) -> list[bytes]:
        """What becomes of some bytes; the mishap is at place `at` of them."""
        mishap = self.mishap
        if mishap.kind == "delay":
            await asyncio.sleep(0.005)
        if mishap.kind == "drip":
            return [data[place : place + 7] for place in range(0, len(data), 7)]
        if mishap.happened or way != mishap.direction or not 0 <= at < len(data):
            return [data]
        match mishap.kind:
            case "cut" | "reset" | "stall":
                mishap.happened = True
                await self._end(mishap.kind, way, data[:at], link)
            case "swap":
                data = data[at:] + data[:at]
            case "double":
                data = data + data[at:]
            case "drop":
                data = data[:at] + data[at + 9 :]
            case "flip":
                data = data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]
            case _:
                return [data]
        mishap.happened = True
        return [data]

    async def _end(self, kind: str, way: str, data: bytes, link: _Link) -> None:
        writer = link.server if way == "up" else link.client
        writer.write(data)
        await writer.drain()
        if kind == "stall":
            await asyncio.sleep(3600)
        if kind == "cut":
            link.close()
        else:
            link.reset()
        raise Broken
