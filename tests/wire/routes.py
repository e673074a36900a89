"""The ways from a scenario to its server: memory, a child's stdio, a Unix socket, HTTP with and without sessions, and the
WebSocket transport of docs/reference/transports.md.

Each carries the texts of messages and nothing else; what comes back lies in an inbox in the order of its arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeAlias

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from gemel import Server
from gemel.transports.memory import connect
from tests.serving import over_websocket, target
from tests.support import UNKNOWN_ORIGIN, Channel, Inbound, Origin, Outgoing
from tests.transports.http_rig import JSON_HEADERS, Site, Wire, serving
from tests.transports.quiet_session import QuietSession
from tests.wire import server as wire_server

PATIENCE = 10.0


class Route(ABC):
    """One client's conversation with one server, as a scenario drives it."""

    def __init__(self) -> None:
        self.inbox: list[bytes] = []
        self._came = asyncio.Event()

    def take(self, data: bytes) -> None:
        """A message came."""
        self.inbox.append(data)
        self._came.set()

    async def next(self, fits: Callable[[bytes], bool] = lambda data: True) -> bytes:
        """Take the first message that fits out of the inbox; wait for it. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for place, data in enumerate(self.inbox):
                    if fits(data):
                        return self.inbox.pop(place)
                self._came.clear()
                await self._came.wait()

    @abstractmethod
    async def send(self, data: bytes, era: str) -> None:
        """The client sends a message; returns when it is on its way."""

    async def cancel(self, request_id: Any, era: str) -> None:
        """The client no longer wants the answer to this request."""
        params: dict[str, Any] = {"requestId": request_id, "reason": "enough"}
        await self.send(_text({"method": "notifications/cancelled", "params": params}), era)

    @abstractmethod
    async def finish(self) -> None:
        """The client has said all: wait until the server has, too; what it said last is in the inbox."""

    async def leave(self) -> None:
        """The client is gone, whatever it still waits for."""
        await self.finish()


def _text(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


# ---------------------------------------------------------------- memory


class Memory(Route):
    """One end of a pair of channels."""

    channel: Channel

    async def send(self, data: bytes, era: str) -> None:
        await self.channel.send(Outgoing(data))

    async def finish(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await self.channel.close()


class Ear(QuietSession):
    """The session at the client's end: it puts everything into the inbox and owes nothing."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> None:
        assert isinstance(data, bytes)
        self._take(data)


@contextlib.asynccontextmanager
async def memory(server: Server[Any]) -> AsyncIterator[Route]:
    route = Memory()
    async with server.running():
        route.channel = await connect(server.serve, limits=server.limits).open(lambda channel: Ear(route.take))
        try:
            yield route
        finally:
            await route.channel.close()


# ---------------------------------------------------------------- lines


class Lines(Route):
    """One message per line over a pair of streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader = reader
        self.writer = writer
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while line := await self._reader.readline():
            self.take(line)

    async def send(self, data: bytes, era: str) -> None:
        self.writer.write(data + b"\n")
        await self.writer.drain()

    async def finish(self) -> None:
        if not self.writer.is_closing():
            self.writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            await self.reading

    async def leave(self) -> None:
        self.writer.close()
        async with asyncio.timeout(PATIENCE):
            await self.reading


@contextlib.asynccontextmanager
async def unix(server: Server[Any]) -> AsyncIterator[Route]:
    async with target(server, "unix") as address:
        route = Lines(*await asyncio.open_unix_connection(address.removeprefix("unix:")))
        try:
            yield route
        finally:
            route.writer.close()
    await route.reading


class Program:
    """The server as a program that is started once, and serves one conversation on its standard streams after the other."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._orders, theirs = socket.socketpair()
        self._orders.setblocking(False)
        with theirs, tempfile.TemporaryFile() as complaints:
            self._complaints = os.dup(complaints.fileno())
            words = [sys.executable, wire_server.__file__, str(theirs.fileno())]
            self._process = subprocess.Popen(words, pass_fds=[theirs.fileno()], stderr=complaints)

    def close(self) -> None:
        """It ends when nobody will ask any more."""
        self._orders.close()
        try:
            code = self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            said = os.pread(self._complaints, 100_000, 0).decode()
            os.close(self._complaints)
        assert code == 0, said

    @contextlib.asynccontextmanager
    async def conversation(self, options: dict[str, Any]) -> AsyncIterator[Lines]:
        """Serve with these options from now on; at the end of the block the server must come to its end, too."""
        loop = asyncio.get_running_loop()
        theirs, ours = os.pipe()
        output, their_output = os.pipe()
        socket.send_fds(self._orders, [json.dumps(options).encode()], [theirs, their_output])
        os.close(theirs)
        os.close(their_output)
        reader = asyncio.StreamReader()
        hearing, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb"))
        saying, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(ours, "wb"))
        route = Lines(reader, asyncio.StreamWriter(saying, flow, None, loop))
        try:
            yield route
        finally:
            saying.close()
            try:
                async with asyncio.timeout(PATIENCE):
                    assert await loop.sock_recv(self._orders, 100) == b"over"
                    await route.reading
            except BaseException:
                self._process.kill()
                with contextlib.suppress(AssertionError):
                    self.close()
                self._start()
                raise
            finally:
                hearing.close()


#: While a module runs that has scenarios over stdio.
_program: list[Program] = []


@contextlib.contextmanager
def program_on_stdio() -> Iterator[None]:
    """What the way over stdio needs, as long as the block goes on."""
    _program.append(Program())
    try:
        yield
    finally:
        _program.pop().close()


@contextlib.asynccontextmanager
async def stdio(options: dict[str, Any]) -> AsyncIterator[Route]:
    async with _program[-1].conversation(options) as route:
        yield route


# ---------------------------------------------------------------- the documented transport


class WebSocket(Route):
    """A client of the WebSocket transport that the documentation writes."""

    def __init__(self, socket: ClientConnection) -> None:
        super().__init__()
        self._socket = socket
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                self.take(await self._socket.recv(decode=False))

    async def send(self, data: bytes, era: str) -> None:
        await self._socket.send(data, text=True)

    async def finish(self) -> None:
        for _ in range(20):  # as in memory; each pong shows that the server has read what was sent before
            await (await self._socket.ping())
        await self.leave()

    async def leave(self) -> None:
        await self._socket.close()
        await self.reading


@contextlib.asynccontextmanager
async def websocket(server: Server[Any]) -> AsyncIterator[Route]:
    async with over_websocket(server) as url:
        route = WebSocket(await connect_websocket(url, subprotocols=[Subprotocol("mcp")]))
        try:
            yield route
        finally:
            await route.leave()


# ---------------------------------------------------------------- HTTP


class Http(Route):
    """One endpoint for both eras: a POST for each stateless message, a session (or none) for the handshake era."""

    def __init__(self, site: Site, *, sessions: bool) -> None:
        super().__init__()
        self._site = site
        self._sessions = sessions
        self._session: dict[str, str] = {}
        self._open: dict[asyncio.Task[None], Wire] = {}
        self._requests: dict[tuple[type, Any], asyncio.Task[None]] = {}
        self._standing: asyncio.Task[None] | None = None

    async def send(self, data: bytes, era: str) -> None:
        message = _loose(data)
        headers = _modern_headers(message) if era == "2026" else {**JSON_HEADERS, **self._session}
        wire = await self._site.call(headers, data)
        opens = era == "2025" and message.get("method") == "initialize"
        if era == "2025" and "id" not in message:
            await self._hear(wire)  # a session takes one message after the other, but the next may overtake this one
            if self._sessions and self._standing is None and message.get("method") == "notifications/initialized":
                await self._stand()
            return
        task = self._start(wire, self._hear(wire, opens=opens))
        if "id" in message and isinstance(message["id"], str | int):
            self._requests[type(message["id"]), message["id"]] = task
        if opens:
            await task

    async def cancel(self, request_id: Any, era: str) -> None:
        if era == "2025":
            await super().cancel(request_id, era)
            return
        task = self._requests[type(request_id), request_id]
        self._open[task].abort()
        await asyncio.wait([task])

    async def _stand(self) -> None:
        wire = await self._site.listen(self._session)
        self._standing = self._start(wire, self._hear(wire))

    def _start(self, wire: Wire, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._open[task] = wire
        task.add_done_callback(lambda done: self._open.pop(done, None))
        return task

    async def _hear(self, wire: Wire, *, opens: bool = False) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await wire.head()
            if opens and "mcp-session-id" in head.headers:
                self._session["Mcp-Session-Id"] = head.headers["mcp-session-id"]
            if head.streams:
                while (event := await wire.event(seconds=60)) is not None:
                    if event.data:
                        if opens:
                            self._agreed(json.loads(event.data))
                        self.take(event.data)
            elif body := await wire.reader.readexactly(int(head.headers.get("content-length", 0))):
                if opens:
                    self._agreed(json.loads(body))
                self.take(body)
        wire.close()

    def _agreed(self, answer: dict[str, Any]) -> None:
        """From now on a header names the revision, where the revision knows that header."""
        revision = answer.get("result", {}).get("protocolVersion", "")
        if revision >= "2025-06-18":
            self._session["MCP-Protocol-Version"] = revision

    async def finish(self) -> None:
        if self._standing is not None:
            await self._site.ask(self._session, b"", "DELETE")
        async with asyncio.timeout(PATIENCE):
            while self._open:
                await asyncio.wait(self._open)

    async def abandon(self) -> None:
        """Wait for nothing any more."""
        for task in list(self._open):
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)


def _loose(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


#: What `Mcp-Name` mirrors, by method.
_NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}


def _modern_headers(message: dict[str, Any]) -> dict[str, str]:
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    claim = meta.get("io.modelcontextprotocol/protocolVersion") if isinstance(meta, dict) else None
    headers = {**JSON_HEADERS, "MCP-Protocol-Version": claim if isinstance(claim, str) else "2026-07-28"}
    method = message.get("method")
    if isinstance(method, str) and "id" in message:
        headers["Mcp-Method"] = method
        name = params.get(_NAMED.get(method, ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = name
    return headers


@contextlib.asynccontextmanager
async def http(server: Server[Any], *, sessions: bool = True) -> AsyncIterator[Route]:
    async with serving(server, sessions=sessions) as site, at_site(site, sessions=sessions) as route:
        yield route


@contextlib.asynccontextmanager
async def at_site(site: Site, *, sessions: bool = True) -> AsyncIterator[Route]:
    route = Http(site, sessions=sessions)
    try:
        yield route
    finally:
        await route.abandon()


@contextlib.asynccontextmanager
async def single(server: Server[Any]) -> AsyncIterator[Route]:
    async with http(server, sessions=False) as route:
        yield route


Opener: TypeAlias = Callable[[dict[str, Any]], contextlib.AbstractAsyncContextManager[Route]]


def _to_a_new_server(way: Callable[[Server[Any]], contextlib.AbstractAsyncContextManager[Route]]) -> Opener:
    return lambda options: way(wire_server.build(**options))


#: By name: the way, and the groups that it belongs to.
ROUTES: dict[str, tuple[Opener, frozenset[str]]] = {
    "memory": (_to_a_new_server(memory), frozenset({"pipes", "stateful"})),
    "unix": (_to_a_new_server(unix), frozenset({"pipes", "lines", "stateful"})),
    "stdio": (stdio, frozenset({"pipes", "lines", "stateful"})),
    "websocket": (_to_a_new_server(websocket), frozenset({"pipes", "stateful"})),
    "http": (_to_a_new_server(http), frozenset({"posts", "stateful"})),
    "single": (_to_a_new_server(single), frozenset({"posts"})),
}
