"""What the tests of the HTTP server share: a server with a few tools, served for real, and a raw HTTP/1.1 connection.

The connection knows just enough HTTP to read what a server sends, piece by piece, and to misbehave on purpose.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from gemel import Context, Server
from gemel.protocol.http.sse import Decoder, Event
from gemel.server.context import served_call
from gemel.transports.http.server.app import HttpApp
from tests.serving import serving_app
from tests.support import V2025_11, V2026_07

META = "io.modelcontextprotocol/"
BOTH_TYPES = "application/json, text/event-stream"
#: A header that is not to be sent, though it usually is.
ABSENT = "(absent)"
ROOT = Path(__file__).resolve().parents[2]


class Log:
    """What happened in the handlers of one server, and a gate that some of them wait at."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.gate = asyncio.Event()
        self._changed = asyncio.Event()

    def add(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, event: str, seconds: float = 5.0) -> None:
        """Wait until the event was added. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while event not in self.events:
                self._changed.clear()
                await self._changed.wait()


def make_server(log: Log, **options: Any) -> Server[Any]:
    """A server whose tools wait, stream, ask, flood and fail."""
    server: Server[Any] = Server("rig", version="1", **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait(ctx: Context[Any], name: str = "wait") -> str:
        """Wait at the gate."""
        log.add(f"{name} begins")
        try:
            await log.gate.wait()
        except asyncio.CancelledError:
            log.add(f"{name} is cancelled")
            raise
        log.add(f"{name} ends")
        return name

    @server.tool
    async def stream(ctx: Context[Any], count: int, name: str = "stream") -> str:
        """Tell the client `count` things, then wait at the gate."""
        for number in range(count):
            await ctx.report_progress(number, count, f"{name} {number}")
        log.add(f"{name} has told")
        await log.gate.wait()
        log.add(f"{name} ends")
        return name

    @server.tool
    async def flood(ctx: Context[Any], count: int) -> str:
        """Tell the client so many pieces of 64 KiB."""
        try:
            for number in range(count):
                await ctx.report_progress(number, count, "x" * 65536)
        except asyncio.CancelledError:
            log.add("flood is cancelled")
            raise
        log.add("flood ends")
        return "done"

    @server.tool
    async def poll(ctx: Context[Any]) -> str:
        """Close the stream, then wait at the gate, then tell one thing more."""
        closed = served_call(ctx).session.channel.close_stream(served_call(ctx).call, 50)
        log.add(f"closed: {closed}")
        await log.gate.wait()
        await ctx.report_progress(1, 2, "after")
        return "polled"

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        """Ask the client for its roots."""
        roots = await ctx.list_roots()
        return roots[0].uri

    @server.tool
    async def more() -> str:
        """Make the list of tools change."""

        @server.tool(f"tool{len(log.events)}")
        async def another() -> None: ...

        log.add("changed")
        return "changed"

    return server


class Reply:
    """The head of a response, and its body once it was read."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.body = b""

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def streams(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"


class Wire:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = Decoder()
        self._events: list[Event] = []
        self.comments = 0
        #: The bytes of an event stream that is sent in one piece; None for one in chunks.
        self._length: int | None = None

    async def send(self, method: str, headers: Mapping[str, str], body: bytes = b"", path: str = "/mcp") -> None:
        fields = {"Host": "127.0.0.1", **headers}
        if method == "POST":
            fields.setdefault("Content-Length", str(len(body)))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value != ABSENT)
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        await self.writer.drain()

    async def head(self) -> Reply:
        async with asyncio.timeout(10):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in lines[1:] if line)
        reply = Reply(int(lines[0].split()[1]), {name.lower(): value for name, _, value in pairs})
        self._length = int(reply.headers["content-length"]) if "content-length" in reply.headers else None
        return reply

    async def reply(self) -> Reply:
        """A whole response."""
        reply = await self.head()
        async with asyncio.timeout(10):
            if "content-length" in reply.headers:
                reply.body = await self.reader.readexactly(int(reply.headers["content-length"]))
            elif reply.status not in (204, 304):
                while chunk := await self.chunk():
                    reply.body += chunk
        return reply

    async def chunk(self) -> bytes:
        """The next chunk of a response without a length; empty at its end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def event(self, seconds: float = 10) -> Event | None:
        """The next event of the stream; None at its end in good order."""
        async with asyncio.timeout(seconds):
            while not self._events:
                chunk = await (self.chunk() if self._length is None else self.reader.readexactly(self._length))
                if self._length:
                    self._length = 0
                if not chunk:
                    return None
                self.comments += chunk.count(b": keep-alive")
                self._events.extend(self._decoder.feed(chunk))
        return self._events.pop(0)

    async def message(self) -> Any:
        """The JSON of the next event that carries a message; None at the end."""
        while (event := await self.event()) is not None:
            if event.data:
                return json.loads(event.data)
        return None

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        """End it with a reset."""
        self.writer.transport.abort()


class Site:
    """A server that is being served, and how to call it: from `address`, by default the one that it listens on."""

    def __init__(self, port: int, app: HttpApp | None = None, address: str | None = None) -> None:
        self.port = port
        self.app = app
        self.address = address
        self.wires: list[Wire] = []

    def at(self, address: str) -> Site:
        """The same server, called from another address, such as 127.0.0.2."""
        other = Site(self.port, self.app, address)
        other.wires = self.wires
        return other

    def close(self) -> None:
        for wire in self.wires:
            wire.close()

    async def open(self) -> Wire:
        local = None if self.address is None else (self.address, 0)
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.port, local_addr=local))
        self.wires.append(wire)
        return wire

    async def call(self, headers: Mapping[str, str], body: Any, method: str = "POST", path: str = "/mcp") -> Wire:
        """Send one request on a connection of its own; the answer is to be read from it."""
        wire = await self.open()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await wire.send(method, headers, b"" if method != "POST" else data, path)
        return wire

    async def ask(self, headers: Mapping[str, str], body: Any, method: str = "POST", path: str = "/mcp") -> Reply:
        """Send one request and read the whole answer."""
        wire = await self.call(headers, body, method, path)
        reply = await wire.reply()
        wire.close()
        return reply

    async def tool(self, name: str, call_id: Any = 1, /, **arguments: Any) -> Wire:
        """Call a tool in the stateless era."""
        return await self.call(*modern_call(name, call_id, **arguments))

    async def session(self, revision: str = V2025_11, **headers: str) -> dict[str, str]:
        """Shake hands; the headers for what follows."""
        mine = await self.begin_session(revision, **headers)
        done = await self.ask(mine, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (done.status, done.body) == (202, b"")
        return mine

    async def begin_session(self, revision: str = V2025_11, **headers: str) -> dict[str, str]:
        """Send `initialize` alone; the headers for what follows."""
        first = {**JSON_HEADERS, **headers}
        reply = await self.ask(first, initialize(revision))
        assert reply.status == 200, reply.body
        return {**first, "Mcp-Session-Id": reply.headers["mcp-session-id"], "MCP-Protocol-Version": revision}

    async def listen(self, session: Mapping[str, str], last_event_id: str | None = None) -> Wire:
        """Open the GET stream of a session."""
        headers = {**session, "Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        return await self.call(headers, b"", "GET")


def exchange(
    site: Site, headers: Mapping[str, str], body: Any, send: Callable[[Any], Awaitable[None]]
) -> asyncio.Task[None]:
    """Let the application serve one POST as any HTTP server does, in a task that may be cancelled."""
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.get_running_loop().create_future()
        asked = True
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def serve() -> None:
        assert site.app is not None
        await site.app(scope, receive, send)

    pairs = [(name.lower().encode(), value.encode()) for name, value in {"Host": "127.0.0.1", **headers}.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": pairs}
    return asyncio.create_task(serve())


JSON_HEADERS = {"Content-Type": "application/json", "Accept": BOTH_TYPES}


def modern(method: str, params: Mapping[str, Any] | None = None, call_id: Any = 1) -> tuple[dict[str, str], Any]:
    """Headers and body of a stateless request."""
    meta = {f"{META}protocolVersion": V2026_07, f"{META}clientCapabilities": {}, "progressToken": "p"}
    body = {"jsonrpc": "2.0", "id": call_id, "method": method, "params": {"_meta": meta, **(params or {})}}
    headers = {**JSON_HEADERS, "MCP-Protocol-Version": V2026_07, "Mcp-Method": method}
    return headers, body


def modern_call(name: str, call_id: Any = 1, /, **arguments: Any) -> tuple[dict[str, str], Any]:
    headers, body = modern("tools/call", {"name": name, "arguments": arguments}, call_id)
    return {**headers, "Mcp-Name": name}, body


def handshake_call(name: str, call_id: Any = 1, /, **arguments: Any) -> dict[str, Any]:
    """The body of a tool call in a session."""
    params = {"_meta": {"progressToken": "p"}, "name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": call_id, "method": "tools/call", "params": params}


def initialize(revision: str = V2025_11) -> dict[str, Any]:
    info = {"name": "rig", "version": "1"}
    params = {"protocolVersion": revision, "capabilities": {"roots": {}}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def text_of(message: Any) -> str:
    """The text of a tool's result."""
    return str(message["result"]["content"][0]["text"])


@asynccontextmanager
async def serving(
    server: Server[Any],
    *,
    engine: Literal["gemel", "uvicorn"] = "gemel",
    proxies: Sequence[str] = (),
    **options: Any,
) -> AsyncIterator[Site]:
    """Serve on a free port, in this loop."""
    app = server.http_app(**options)
    async with serving_app(app, engine=engine, trusted_proxies=proxies) as url:
        site = Site(int(url.rsplit(":", 1)[1].split("/")[0]), app)
        try:
            yield site
        finally:
            site.close()


@asynccontextmanager
async def process(directory: Path, program: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python program in a process of its own, killed at the end if it is still there."""
    file = directory / "program.py"
    file.write_text(program)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{directory}"}
    made = await asyncio.create_subprocess_exec(
        sys.executable,
        *(arguments or (str(file),)),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        cwd=directory,
    )
    try:
        yield made
    finally:
        if made.returncode is None:
            made.send_signal(signal.SIGKILL)
        await made.communicate()
