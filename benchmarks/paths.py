"""What a user does with Gemel, in one process and without sockets: each path gives a function that does it once.

They are measured by `benchmarks.profile` and counted by `benchmarks.ceilings`.
"""

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from benchmarks.traffic import CLIENTS, calls
from benchmarks.wire import (
    INITIALIZE,
    INITIALIZED,
    REVISION,
    SESSION_REVISION,
    WrongAnswer,
    call,
    check,
    check_http,
    http_listen,
    http_post,
    http_request,
    http_standing,
)
from gemel import Changed, Client, Server

if TYPE_CHECKING:
    from gemel.http1.server.listener import Listener

#: Does it once and looks at the answer.
One = Callable[[], Awaitable[None]]
#: Tools of a large server, the size of a large result, and streams that are told of one change.
TOOLS, SIZE, STREAMS = 1000, 1_000_000, 100

_HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"mcp-protocol-version", REVISION.encode()),
    (b"mcp-method", b"tools/call"),
    (b"mcp-name", b"add"),
]


def adding_server() -> Server[Any]:
    """The server that is called."""
    server: Server[Any] = Server("bench", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


def sync_server() -> Server[Any]:
    """The same with a plain function, which runs in a thread."""
    server: Server[Any] = Server("bench", version="1")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


def large_server() -> Server[Any]:
    """A server with many tools."""
    server: Server[Any] = Server("bench", version="1")
    for number in range(TOOLS):

        @server.tool(f"forecast_{number}")
        async def forecast(city: str, days: int = 3, units: Literal["metric", "imperial"] = "metric") -> list[float]:
            """The weather of the coming days.

            Args:
                city: Where.
                days: How many days.
                units: The units of the result.
            """
            return [20.0] * days

    return server


#: The same, made once: making it costs more than listing its tools.
listed_server = cache(large_server)


# ---------------------------------------------------------------- HTTP


_ADDRESSES = {"sockname": ("127.0.0.1", 8000), "peername": ("127.0.0.1", 50000)}


class _Transport(asyncio.Transport):
    """Takes what our HTTP server writes, while somebody waits for it."""

    __slots__ = ("written",)

    def __init__(self) -> None:
        super().__init__(_ADDRESSES)
        self.written: asyncio.Future[bytes]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.set_result(bytes(data))

    def is_closing(self) -> bool:
        return False


class _Listening(_Transport):
    """Takes a first response, then calls `tell` with all that is written."""

    __slots__ = ("tell",)

    def __init__(self) -> None:
        super().__init__()
        self.tell: Callable[[bytes], None] | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.tell is None:
            super().write(data)
        else:
            self.tell(bytes(data))


class HttpClient:
    """A connection to our own HTTP server."""

    def __init__(self, listener: "Listener", transport: _Transport | None = None) -> None:
        from gemel.http1.server.connection import HttpConnection

        self.transport = transport or _Transport()
        self.connection = HttpConnection(listener)
        self.connection.connection_made(self.transport)

    async def post(self, request: bytes) -> tuple[bytes, bytes]:
        """Send a request. Returns head and body of what is written for it first."""
        self.transport.written = asyncio.get_running_loop().create_future()
        self.connection.data_received(request)
        head, _, body = (await self.transport.written).partition(b"\r\n\r\n")
        del self.transport.written
        return head, body

    async def open_session(self) -> str:
        """Open a session of the handshake era. Returns its id."""
        head, _ = await self.post(http_post(8000, SESSION_REVISION, INITIALIZE))
        opened = next(line[16:] for line in head.decode().split("\r\n") if line.lower().startswith("mcp-session-id: "))
        await self.post(http_post(8000, SESSION_REVISION, INITIALIZED, f"Mcp-Session-Id: {opened}"))
        return opened


@asynccontextmanager
async def http_listener(server: Server[Any]) -> AsyncIterator["Listener"]:
    """Our own HTTP server, without sockets."""
    from gemel.http1.server.listener import Listener

    app = server.http_app()
    life = await app.start()
    listener = Listener(life.serve, 1 << 17)
    await listener.open([], None)
    yield listener
    for connection in list(listener.connections):
        connection.connection_lost(None)
    listener.close()
    await app.stop()


@asynccontextmanager
async def over_http(
    make: Callable[[], Server[Any]] = adding_server, *, session: bool = False, events: bool = False
) -> AsyncIterator[One]:
    """Our own HTTP server, from the bytes of a request to the bytes of its response."""
    async with http_listener(make()) as listener:
        client = HttpClient(listener)
        opened = await HttpClient(listener).open_session() if session else None
        request = http_request(3, 8000, session=opened, events=events)

        async def one() -> None:
            head, body = await client.post(request)
            if events:
                check_http(head, body, 3)
            else:
                check(body, 3)

        yield one


@asynccontextmanager
async def over_http_as_clients(variants: int) -> AsyncIterator[One]:
    """The same for the calls of four clients in turn, each on its connection, of which each client sends so many variants."""
    async with http_listener(adding_server()) as listener:
        sent = {HttpClient(listener): calls(client, variants, 8000) for client in CLIENTS}
        turns = cycle([(client, each[number]) for number in range(variants) for client, each in sent.items()])

        async def one() -> None:
            client, each = next(turns)
            _, body = await client.post(each.request)
            check(body, each.number)

        yield one


@asynccontextmanager
async def told_of_changes(*, sessions: bool = False) -> AsyncIterator[One]:
    """One change that streams are told of, all at once: those of requests, or the standing streams of sessions."""
    server = adding_server()
    async with http_listener(server) as listener:
        told: list[bytes] = []
        all_told = asyncio.Event()

        def tell(event: bytes) -> None:
            told.append(event)
            if len(told) == STREAMS:
                all_told.set()

        for number in range(STREAMS):
            transport = _Listening()
            client = HttpClient(listener, transport)
            opened = http_standing(await client.open_session(), 8000) if sessions else http_listen(number, 8000)
            await client.post(opened)
            transport.tell = tell

        async def one() -> None:
            server.notify(Changed("tools"))
            await all_told.wait()
            if len(told) != STREAMS or any(event.find(b"tools/list_changed") < 0 for event in told):
                raise WrongAnswer(f"the streams were told {told!r}")
            told.clear()
            all_told.clear()

        yield one


def _scope(body: bytes) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "root_path": "",
        "headers": [*_HEADERS, (b"content-length", b"%d" % len(body))],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }


@asynccontextmanager
async def over_asgi() -> AsyncIterator[One]:
    """The ASGI app, called as uvicorn calls it."""
    app, body = adding_server().http_app(), call(3)
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    told: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    life = asyncio.create_task(
        app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, received.get, told.put)
    )
    received.put_nowait({"type": "lifespan.startup"})
    await told.get()

    async def one() -> None:
        parts = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return parts.pop() if parts else await asyncio.get_running_loop().create_future()

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await app(_scope(body), receive, send)
        check(sent[1]["body"], 3)

    yield one
    received.put_nowait({"type": "lifespan.shutdown"})
    await life


# ---------------------------------------------------------------- stdio


@asynccontextmanager
async def over_stdio() -> AsyncIterator[One]:
    """A server on standard input and output, which are pipes. Meanwhile `print` writes to standard error."""
    (stdin, to_server), (from_server, stdout) = os.pipe(), os.pipe()
    saved = os.dup(0), os.dup(1)
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    serving = asyncio.create_task(adding_server().run_async())
    loop, request = asyncio.get_running_loop(), call(3) + b"\n"
    answer: asyncio.Future[bytes] = loop.create_future()
    loop.add_reader(from_server, lambda: answer.set_result(os.read(from_server, 1 << 16)))

    async def one() -> None:
        nonlocal answer
        answer = loop.create_future()
        os.write(to_server, request)
        check(await answer, 3)

    yield one
    loop.remove_reader(from_server)
    os.close(to_server)
    await serving
    for number, descriptor in enumerate(saved):
        os.dup2(descriptor, number)
    for descriptor in (*saved, stdin, stdout, from_server):
        os.close(descriptor)


# ---------------------------------------------------------------- the client over HTTP

_RESPONSE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Fri, 01 Aug 2026 10:00:00 GMT\r\n"
    b"Content-Length: %d\r\n\r\n%b"
)
_RESULT = (
    b'{"jsonrpc":"2.0","id":%b,"result":{"resultType":"complete","content":[{"type":"text","text":"10"}],'
    b'"structuredContent":10,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}}}}'
)
_ID = re.compile(rb'"id":(\d+)')


class _Answering(asyncio.Transport):
    """A connection to a server that answers each call in the next turn of the event loop."""

    def __init__(self, connection: asyncio.Protocol, sock: socket.socket) -> None:
        super().__init__({"socket": sock})
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        found = _ID.search(data)
        assert found is not None, data
        body = _RESULT % found[1]
        self._loop.call_soon(self._connection.data_received, _RESPONSE % (len(body), body))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self._connection.connection_lost(None)


@asynccontextmanager
async def _wire() -> AsyncIterator[Any]:
    """Our HTTP client's connections, without sockets."""
    from gemel.http1.client.pool import SocketWire

    class Wire(SocketWire):
        async def _open_connection(self, target: Any, route: Any, connection: Any) -> None:
            connection.connection_made(_Answering(connection, ours))

    ours, theirs = socket.socketpair()  # the connection looks whether anything has come
    with ours, theirs:
        yield Wire


@asynccontextmanager
async def client_over_http() -> AsyncIterator[One]:
    """A call of our client over HTTP, from the arguments to the result, with the response of a server."""
    async with Client(adding_server()) as local:
        discovery = local.discovery
    async with _wire() as wire, Client("http://127.0.0.1:8000/mcp", discovery=discovery, wire=wire) as client:

        async def one() -> None:
            result = await client.call_tool("add", {"a": 3, "b": 7})
            assert result.data == 10, result

        yield one


@asynccontextmanager
async def raw_post() -> AsyncIterator[One]:
    """The least of such a client: the same bytes posted on the same connections, and the response decoded."""
    body, headers = call(3), [(name.decode(), value.decode()) for name, value in _HEADERS[1:]]
    async with _wire() as make:
        wire = make()

        async def one() -> None:
            response = await wire.open("POST", "http://127.0.0.1:8000/mcp", headers, body)
            result = msgspec.json.decode(await response.read())["result"]
            response.close(drain=True)
            assert result["structuredContent"] == 10, result

        yield one
        await wire.close()


# ---------------------------------------------------------------- client and server together


@asynccontextmanager
async def in_memory() -> AsyncIterator[One]:
    """A call of a client in the same process."""
    async with Client(adding_server()) as client:
        await client.list_tools()  # its results are held against the schema from now on

        async def one() -> None:
            result = await client.call_tool("add", {"a": 3, "b": 7})
            assert result.data == 10, result

        yield one


@asynccontextmanager
async def with_receipts() -> AsyncIterator[One]:
    """The same with a receipt of each call, hashed with a key."""
    from gemel.receipts import Receipts

    with TemporaryDirectory() as folder:
        receipts = Receipts(Path(folder, "receipts.jsonl"), key=os.urandom(32))
        server = adding_server()
        server.add_middleware(receipts)
        async with Client(server) as client:
            await client.list_tools()

            async def one() -> None:
                result = await client.call_tool("add", {"a": 3, "b": 7})
                assert result.data == 10, result

            yield one
        receipts.close()


@asynccontextmanager
async def large_text() -> AsyncIterator[One]:
    """A call of a client in the same process whose result is a text of a megabyte."""
    server: Server[Any] = Server("bench")
    text = "0123456789" * (SIZE // 10)

    @server.tool
    async def read() -> str:
        """Read the text."""
        return text

    async with Client(server) as client:

        async def one() -> None:
            result = await client.call_tool("read")
            assert len(result.text) == SIZE

        yield one


@asynccontextmanager
async def listing() -> AsyncIterator[One]:
    """A client in the same process lists many tools."""
    async with Client(listed_server()) as client:

        async def one() -> None:
            assert len(await client.list_tools(cache="bypass")) == TOOLS

        yield one


@asynccontextmanager
async def registering() -> AsyncIterator[One]:
    """A server with many tools is made."""

    async def one() -> None:
        large_server()

    yield one


# ---------------------------------------------------------------- clients that wait

#: Adds so many of them.
More = Callable[[int], Awaitable[None]]


@asynccontextmanager
async def waiting(kind: Literal["connections", "sessions", "streams"]) -> AsyncIterator[More]:
    """Clients of our own HTTP server that wait: idle connections, HTTP sessions without one, streams of changes."""
    async with http_listener(adding_server()) as listener:
        caller = HttpClient(listener)

        async def more(count: int) -> None:
            for number in range(count):
                if kind == "sessions":
                    opened = await caller.open_session()
                    await caller.post(http_request(3, 8000, session=opened))
                    continue
                client = HttpClient(listener)
                await client.post(http_request(3, 8000) if kind == "connections" else http_listen(number, 8000))

        yield more


WAITING: dict[str, Callable[[], AbstractAsyncContextManager[More]]] = {
    kind: partial(waiting, kind) for kind in ("connections", "sessions", "streams")
}

PATHS: dict[str, Callable[[], AbstractAsyncContextManager[One]]] = {
    "http": over_http,
    "http_varied": partial(over_http_as_clients, 500),
    "http_repeated": partial(over_http_as_clients, 1),
    "session": partial(over_http, session=True),
    "session_events": partial(over_http, session=True, events=True),
    "asgi": over_asgi,
    "stdio": over_stdio,
    "client": client_over_http,
    "post": raw_post,
    "memory": in_memory,
    "memory_asyncio": in_memory,
    "receipts": with_receipts,
    "sync": partial(over_http, sync_server),
    "text": large_text,
    "list": listing,
    "register": registering,
    "fan_out": told_of_changes,
    "fan_out_sessions": partial(told_of_changes, sessions=True),
}
